"""The conformance suite that Pydantic AI ships for workspace backends."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai.workspaces import Workspace
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from exec_server.integrations.pydantic_ai import ExecServerCapability, ExecServerWorkspace
from integrations.lifetimes import check


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestExecServerWorkspace(WorkspaceBackendSuite):
    @pytest.fixture
    async def backend(self, server_url):
        workspace = ExecServerWorkspace(server_url)
        yield workspace
        await workspace.destroy()

    @pytest.fixture
    async def fresh_backend(self, server_url):
        made = []

        def make():
            made.append(ExecServerWorkspace(server_url))
            return made[-1]

        yield make
        for each in made:
            await each.close()

    @pytest.fixture
    async def attach_backend(self):
        made = []

        def attach(ref):
            made.append(ExecServerWorkspace(ref=ref))
            return made[-1]

        yield attach
        for each in made:
            await each.close()

    @pytest.fixture
    def destroy_environment(self):
        return lambda backend: backend.destroy()


@pytest.mark.anyio
async def test_a_capability_gives_the_run_its_workspace(server_url):
    agent = Agent(TestModel(), capabilities=[ExecServerCapability(server_url)])
    seen = []

    @agent.tool
    async def look(ctx) -> str:
        """Look."""
        workspace: Workspace = ctx.workspace
        seen.append(await workspace.run(["echo", "hello"]))
        return "done"

    await agent.run("look")
    assert seen[0].stdout == "hello\n"


LIFETIME = """
import asyncio, sys
from exec_server.integrations.pydantic_ai import ExecServerWorkspace
async def main(url, command):
    workspace = ExecServerWorkspace(url)
    try:
        await workspace.run(command, shell=True)
    finally:
        await workspace.destroy()
asyncio.run(main(*sys.argv[1:]))
"""


def test_nothing_is_left_when_the_program_ends(impatient_url, tmp_path, ending):
    check(LIFETIME, impatient_url, tmp_path, ending)

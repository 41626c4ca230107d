"""MCP servers that run on the executor, or that only the executor reaches."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator

from tests.interop.model import PATIENCE, Call
from tests.interop.scenarios import scenario
from tests.requirements import requirement
from tests.support.servers import CHILDREN

PROGRAM = str(CHILDREN / "mcp_server.py")
WHEREABOUTS = Call("whereabouts", {"word": "hello"}, namespace="mcp__probe")


def placed(**settings: object) -> str:
    """The server `probe` in config.toml, placed on the executor."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    head = ["[mcp_servers.probe]", 'environment_id = "remote"', "required = true"]
    return "\n".join([*head, *lines, ""])


@contextlib.asynccontextmanager
async def mcp_over_http() -> AsyncIterator[str]:
    """An MCP server on the loopback; its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, "http", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            port = int((await process.stdout.readline()).split()[1])
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.communicate()


@requirement("interop:mcp")
@scenario("MCP over stdio, on the executor")
async def test_an_mcp_server_runs_on_the_executor(codex):
    config = placed(command=sys.executable, args=[PROGRAM, "stdio"], cwd=str(codex.work))
    async with codex.exec(config=config) as model:
        output = await model.call(WHEREABOUTS)
    assert "hello from " in output


@requirement("interop:mcp")
@scenario("MCP over HTTP, through the executor")
async def test_an_mcp_server_is_reached_through_the_executor(codex):
    async with mcp_over_http() as url:
        async with codex.exec(config=placed(url=url)) as model:
            output = await model.call(WHEREABOUTS)
    assert "hello from " in output
    if codex.executor.tap is not None:
        assert "http/request" in codex.executor.tap.methods()


@requirement("interop:mcp")
@scenario("MCP servers of the executor's own configuration")
async def test_mcp_servers_that_the_executor_configures_are_found(codex, server_home):
    async with mcp_over_http() as url:
        config = server_home / ".codex" / "config.toml"
        config.write_text(f'[mcp_servers.probe]\nurl = "{url}"\n')
        async with codex.exec() as model:
            output = await model.call(WHEREABOUTS)
    assert "hello from " in output

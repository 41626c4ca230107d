"""The documented contract of ADK's environments, and its own toolset on ours."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from google.adk.tools.environment import EnvironmentToolset

from exec_server.integrations.google_adk import ExecServerAdkEnvironment
from integrations.lifetimes import check

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
async def environment(server_url):
    made = ExecServerAdkEnvironment(server_url)
    await made.initialize()
    yield made
    await made.close()


async def test_commands_run_in_the_directory(environment):
    done = await environment.execute("pwd; echo err >&2; exit 3")
    assert (done.exit_code, done.stdout) == (3, f"{environment.working_dir}\n")
    assert (done.stderr, done.timed_out) == ("err\n", False)


async def test_a_timeout_is_a_result_with_the_output_so_far(environment):
    late = await environment.execute("echo so far; sleep 600", timeout=1)
    assert late.timed_out and late.stdout == "so far\n"


async def test_files(environment):
    await environment.write_file(Path("sub/a.txt"), "text")
    assert await environment.read_file(environment.working_dir / "sub/a.txt") == b"text"
    with pytest.raises(FileNotFoundError):
        await environment.read_file(Path("none"))


async def test_it_can_be_closed_twice_and_leaves_nothing(server_url):
    made = ExecServerAdkEnvironment(server_url)
    await made.initialize()
    await made.initialize()
    directory = made.working_dir
    pid = int((await made.execute("setsid sleep 600 & echo $!")).stdout)
    await made.close()
    await made.close()
    assert not directory.exists()
    async with asyncio.timeout(60):
        while os.path.exists(f"/proc/{pid}"):
            await asyncio.sleep(0.05)


async def test_the_toolset_uses_it(environment):
    tools = await EnvironmentToolset(environment=environment).get_tools()
    assert tools


LIFETIME = """
import asyncio, sys
from exec_server.integrations.google_adk import ExecServerAdkEnvironment
async def main(url, command):
    environment = ExecServerAdkEnvironment(url)
    await environment.initialize()
    try:
        await environment.execute(command)
    finally:
        await environment.close()
asyncio.run(main(*sys.argv[1:]))
"""


def test_nothing_is_left_when_the_program_ends(impatient_url, tmp_path, ending):
    check(LIFETIME, impatient_url, tmp_path, ending)

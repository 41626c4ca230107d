"""What the README shows can be pasted, and does what it shows."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys

import pytest

from tests.requirements import requirement
from tests.support.source_tree import REPOSITORY

pytestmark = pytest.mark.one_loop

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
SHOWN_URL = "ws://127.0.0.1:8765"
PROGRAM = f"{sys.executable} -m exec_server"

# A command of the session with `run`, and the line that it prints.
RUNS = re.findall(r"^\$ (.*exec-server run .*)\n(?!\$)(.+)$", README, re.MULTILINE)


async def output_of(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@requirement("embedding:readme")
@pytest.mark.parametrize(("command", "printed"), RUNS)
async def test_a_command_of_the_session_prints_what_is_shown(server, command, printed):
    command = command.replace(SHOWN_URL, server.url).replace("exec-server", PROGRAM, 1)
    assert await output_of("sh", "-c", command) == f"{printed}\n"


@requirement("embedding:readme")
async def test_the_program_runs(server):
    (program,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    program = program.replace(SHOWN_URL, server.url)
    assert (await output_of(sys.executable, "-c", program)).startswith("git version")


@requirement("embedding:readme")
def test_it_is_short_and_its_links_lead_somewhere():
    assert len(RUNS) == 2
    assert len(README.splitlines()) < 120
    linked = re.findall(r"\]\(([^)#]+)", README)
    assert [path for path in linked if not (REPOSITORY / path).exists()] == []

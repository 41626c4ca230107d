"""A program that ends inside of the connect block says nothing of its own about it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests.requirements import requirement
from tests.support.wire import PATIENCE

PROGRAM = """
import asyncio, sys, uvloop
import exec_server

async def main():
    async with exec_server.connect(sys.argv[1]) as box:
        await box.run(["true"])
        process = await box.start(["cat"], stdin=True)
        {end}

{run}(main())
"""


@requirement("client/quiet-exit")
@pytest.mark.parametrize("run", ["asyncio.run", "uvloop.run"])
@pytest.mark.parametrize("end", ["sys.exit(3)", "raise KeyboardInterrupt"])
async def test_an_exit_inside_of_the_block_is_quiet(server, end, run):
    program = PROGRAM.format(end=end, run=run)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "always", "-c", program, server.url), stderr=subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        _, errors = await child.communicate()
    assert b"Warning" not in errors
    assert b"never" not in errors and b"destroyed" not in errors
    assert child.returncode != 0
    if end == "sys.exit(3)":
        assert (child.returncode, errors) == (3, b"")

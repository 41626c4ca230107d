"""The documented contract of AG2's sandboxes."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from ag2.tools.sandbox import Sandbox, SandboxFactory

from exec_server.integrations.ag2 import ExecServerAg2Environment
from integrations.lifetimes import check


@pytest.fixture
async def sandbox(server_url, tmp_path):
    factory = ExecServerAg2Environment(server_url, str(tmp_path))
    assert isinstance(factory, SandboxFactory)
    async with factory.open() as made:
        yield made


async def test_it_is_a_sandbox(sandbox, tmp_path):
    assert isinstance(sandbox, Sandbox)
    assert sandbox.workdir == PurePosixPath(tmp_path) and sandbox.host_workdir is None


async def test_commands(sandbox, tmp_path):
    done = await sandbox.exec(["sh", "-c", "pwd; echo $A >&2; exit 3"], env={"A": "b"})
    assert (done.output, done.exit_code) == (f"{tmp_path}\nb\n", 3)
    assert (await sandbox.exec(["nonesuch"])).exit_code == 127


async def test_a_timeout_is_124_with_the_output_so_far(sandbox):
    late = await sandbox.exec(["sh", "-c", "echo so far; sleep 600"], timeout=1)
    assert late.exit_code == 124 and late.output.startswith("so far\n")


async def test_files(sandbox, tmp_path):
    await sandbox.put_file(PurePosixPath("sub/a"), b"data")
    assert (tmp_path / "sub/a").read_bytes() == b"data"
    await sandbox.remove_file(PurePosixPath("sub/a"))
    await sandbox.remove_file(PurePosixPath("sub/a"))
    assert not (tmp_path / "sub/a").exists()
    for wrong in ("/etc/x", "../x"):
        with pytest.raises(ValueError):
            await sandbox.put_file(PurePosixPath(wrong), b"")


LIFETIME = """
import asyncio, sys
from exec_server.integrations.ag2 import ExecServerAg2Environment
async def main(url, command):
    async with ExecServerAg2Environment(url, "/").open() as box:
        await box.exec(["sh", "-c", command], timeout=600)
asyncio.run(main(*sys.argv[1:]))
"""


def test_nothing_is_left_when_the_program_ends(impatient_url, tmp_path, ending):
    check(LIFETIME, impatient_url, tmp_path, ending)

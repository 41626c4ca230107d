"""A server of another release goes on with the keeper of the one before, whose files are gone."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import exec_server
from tests.requirements import requirement
from tests.sandbox.test_processes import on_both_backends, workspace_write
from tests.support.durable import StateServers, read_all
from tests.support.servers import OURS
from tests.support.wire import Wire, start_params

pytestmark = pytest.mark.one_loop


@pytest.fixture
def replaced(tmp_path: Path) -> Iterator[tuple[StateServers, str]]:
    """A server whose keeper was started by an installation that does not exist any more."""
    old = tmp_path / "old"
    shutil.copytree(Path(exec_server.__file__).parent, old / "exec_server")
    servers = StateServers(
        tmp_path / "state", command=[sys.executable, "-c", RUN.format(path=str(old))]
    )
    try:
        yield servers, str(old)
    finally:
        servers.close()


RUN = """
import sys
sys.path.insert(0, {path!r})
from exec_server.cli.main import main
sys.exit(main())
"""


async def replace(servers: StateServers, old: str) -> str:
    """Start a job, then put the new release in the place of the old one; the session."""
    async with Wire(servers.url) as wire:
        session: str = (await wire.initialize())["sessionId"]
        await wire.start("first", ["cat"], pipeStdin=True, durable=True)
        command = Path(f"/proc/{servers.keeper_pid}/cmdline").read_bytes()
        assert old.encode() in command
        servers.kill()
    shutil.rmtree(old)
    servers.command = OURS
    servers.start()
    return session


@requirement("durable:replaced")
async def test_an_old_keeper_serves_a_new_server(replaced):
    servers, old = replaced
    session = await replace(servers, old)
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        assert await wire.write("first", b"still here", "w1") == "accepted"
        await wire.call("process/closeStdin", {"processId": "first"})
        data, answer = await read_all(wire, "first")
        assert (data, answer["exitCode"]) == (b"still here", 0)
        await wire.start("tty", ["sh", "-c", "stty size; exit 4"], tty=True, durable=True)
        data, answer = await read_all(wire, "tty")
        assert (data, answer["exitCode"]) == (b"24 80\r\n", 4)
        # An empty name takes the slow way, which needs another module.
        params = start_params("odd", ["sh", "-c", "echo odd"], arg0="", durable=True)
        await wire.call("process/start", params)
        data, _ = await read_all(wire, "odd")
        assert data == b"odd\n"
        servers.kill()
    # The output of a time without a server needs the journal, and room on the disk.
    servers.start()


@requirement("durable:replaced")
@on_both_backends
async def test_an_old_keeper_starts_sandboxes_for_a_new_server(replaced, tmp_path, backend):
    servers, old = replaced
    session = await replace(servers, old)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        script = "echo in > $0/workspace/in; (echo out > $0/out) 2>/dev/null || echo refused"
        started = await wire.start(
            "a",
            ["sh", "-c", script, str(tmp_path)],
            sandbox=workspace_write(workspace, backend),
            durable=True,
        )
        assert started["sandboxRung"] == backend
        data, answer = await read_all(wire, "a")
        assert (data, answer["exitCode"]) == (b"refused\n", 0)
    assert (workspace / "in").exists()
    assert not (tmp_path / "out").exists()

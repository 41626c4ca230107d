"""The ends of processes under a server of an unprivileged user."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from exec_server import workspace_write
from exec_server.client.client import ExecServerClient
from exec_server.client_urls import connect
from tests.process.test_ends import DAEMON, decided, end_of, kernel_release, runs_daemon, sh
from tests.requirements import requirement
from tests.sandbox.escape.users import user
from tests.support.backends import needs_bubblewrap
from tests.support.servers import start_server

pytestmark = pytest.mark.one_loop

NOBODY = user("nobody")


@pytest.fixture
async def client() -> AsyncIterator[ExecServerClient]:
    """Connected to a server of `nobody`."""
    if NOBODY is None:
        pytest.skip("no server of an unprivileged user can be run here")
    options = ("--listen", "ws://127.0.0.1:0", "--allow-other-users")
    env = {"PYTHONPATH": NOBODY.path, "HOME": "/"}
    with start_server(*options, command=NOBODY.command, env=env, cwd="/") as server:
        async with connect(server.url) as connected:
            yield connected


@requirement("ends:fourteen", "ends:usage-of-a-tree", "ends:failed-starts")
@needs_bubblewrap
async def test_reports_need_no_rights(client: ExecServerClient):
    assert NOBODY is not None
    # The sender of a signal is known only if it was a client.
    process = await client.start(["sleep", "100"])
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    assert (end_of(process).cause, end_of(process).signal) == ("signal", "SIGKILL")
    assert end_of(process).by is None and "not known" in end_of(process).evidence
    process = await client.start(["sleep", "100"])
    await process.terminate()
    await process.wait()
    assert (end_of(process).cause, end_of(process).by.kind) == ("terminated", "client")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chown(folder, NOBODY.uid, NOBODY.gid)
        await check_sandboxed(client, folder)
        locked = Path(folder, "locked")
        locked.mkdir(0)
        os.chown(locked, NOBODY.uid, NOBODY.gid)
        with pytest.raises(PermissionError) as failure:
            await client.start(["true"], cwd=locked)
        assert failure.value.filename == str(locked) and "cwd" in str(failure.value)


@requirement("ends:never-a-wrong-cause")
async def test_a_limit_that_a_signal_imitates_is_unknown(client: ExecServerClient):
    done = await client.run(sh("kill -XFSZ $$"), limits={"disk": "10M"})
    assert done.end is not None and done.end.evidence is not None
    assert (done.end.cause, done.end.limit) == ("unknown", None)
    assert "disk" in done.end.evidence


async def check_sandboxed(client: ExecServerClient, folder: str) -> None:
    assert NOBODY is not None
    sandbox: Any = workspace_write([folder])
    if kernel_release() >= (6, 15):
        assert (await decided(client, sh("exit 139"), sandbox=sandbox)).cause == "exited"
        end = await decided(client, sh("kill -SEGV $$"), sandbox=sandbox)
        assert (end.cause, end.signal) == ("signal", "SIGSEGV")
    Path(folder, "daemon.py").write_text(DAEMON)
    done = await client.run(runs_daemon(NOBODY.python), cwd=folder, sandbox=sandbox)
    assert (done.stdout, done.sandbox_rung) == (b"done\n", "bubblewrap"), done.stderr
    assert done.usage is not None and done.usage.cpu is not None
    assert 0.5 <= done.usage.cpu < 2.0
    written = done.usage.written
    assert written is not None and (written == 0 or 8 << 20 <= written < (8 << 20) + (1 << 17))

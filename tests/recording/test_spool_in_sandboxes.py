"""A sandboxed command cannot open the spool, in which secrets are not masked yet."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

import exec_server
from exec_server.protocol.sandbox import read_only
from exec_server.recording.recorder import TerminalRecorder
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap, needs_landlock, without


def _spool() -> str:
    """The path of a segment that this process holds."""
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/{os.getpid()}/fd/{name}"
        if os.path.lexists(path) and os.readlink(path).startswith("/memfd:recordings"):
            return path
    raise AssertionError("there is no spool")


@requirement("recording:spool-hidden")
@pytest.mark.parametrize(
    "missing",
    [
        pytest.param((), marks=needs_bubblewrap, id="bubblewrap"),
        pytest.param(("bubblewrap",), marks=needs_landlock, id="landlock"),
    ],
)
async def test_a_sandboxed_command_cannot_open_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
):
    without(monkeypatch, *missing)
    with closing(TerminalRecorder(tmp_path, quota=1 << 20, secrets=["hunter2-Tr0ub4dor"])) as made:
        async with serve(recorder=made) as running, exec_server.connect(running.url) as client:
            terminal = await client.start(["cat"], tty=True)
            async with terminal:
                path = _spool()
                opened = await client.run(["cat", path])
                confined = await client.run(["cat", path], sandbox=read_only())
                # It is one that can be opened, so the test would notice.
                assert b"hunter2-Tr0ub4dor" in opened.stdout
                assert confined.returncode != 0 and confined.stdout == b""

"""The start of a sandboxed program, before there is one."""

from __future__ import annotations

import asyncio
import os

import pytest

from exec_server.errors import InternalError, InvalidRequest
from exec_server.process.sandboxed_start import ConfinedStart
from exec_server.process.spawn import Launch, Spawner
from exec_server.protocol.sandbox import workspace_write
from tests.requirements import requirement
from tests.support.wire import PATIENCE


def confined(spawner: Spawner, workspace: object, cwd: bytes, *, is_wanted: bool) -> ConfinedStart:
    context = workspace_write([str(workspace)])
    launch = Launch(b"true", [b"true"], {b"PATH": b"/usr/bin:/bin"}, cwd, None, False)
    return ConfinedStart(
        launch,
        context,
        is_proxied=False,
        is_wanted=lambda: is_wanted,
        spawner=spawner,
        on_exit=lambda status, *_: None,
    )


@requirement("sandbox/placeholders:removed")
async def test_a_start_that_was_called_off_leaves_nothing(tmp_path):
    spawner = Spawner(orphan_grace=0.2)
    start = confined(spawner, tmp_path, os.fsencode(tmp_path), is_wanted=False)
    with pytest.raises(InvalidRequest, match="cancelled"):
        async with asyncio.timeout(PATIENCE):
            await start.begin()
    assert list(tmp_path.iterdir()) == []
    assert spawner.keeper_pid is None


@requirement("sandbox/process:no-cwd")
@pytest.mark.parametrize(("name", "words"), [("missing", "os error 2"), ("file", "os error 20")])
async def test_a_working_directory_that_is_none_fails_the_start(tmp_path, name, words):
    (tmp_path / "file").touch()
    spawner = Spawner(orphan_grace=0.2)
    start = confined(spawner, tmp_path, os.fsencode(tmp_path / name), is_wanted=True)
    with pytest.raises(InternalError, match=words):
        async with asyncio.timeout(PATIENCE):
            await start.begin()
    await spawner.stop(within=PATIENCE)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]

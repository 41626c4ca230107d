"""A start whose journal cannot be made is refused, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from exec_server.process.journal import Journal
from exec_server.server.serving import serve
from tests.support.children import child
from tests.support.tether import Tether
from tests.support.wire import Wire, start_params


@pytest.mark.one_loop
async def test_a_start_without_room_for_its_journal_is_refused(tmp_path, monkeypatch, no_leaks):
    def refuse(*_: Any, **__: Any) -> Journal:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    argv = child("says_its_last_signal.py", tmp_path / "tether")
    state = tmp_path / "state"
    with Tether(tmp_path) as tether:
        async with serve(state_directory=state) as running, Wire(running.url) as wire:
            await wire.initialize()
            with monkeypatch.context() as patches:
                patches.setattr(Journal, "create", refuse)
                refused = await wire.error("process/start", start_params("a", argv, durable=True))
            assert os.strerror(errno.ENOSPC) in refused["message"]
            assert (await wire.call("job/list", {}))["jobs"] == []
            # The same name can be used at once.
            await wire.start("a", ["true"], durable=True)
            await wire.event("a", "process/closed")
            assert len(list((state / "jobs").iterdir())) == 1
        assert await tether.released() == b""

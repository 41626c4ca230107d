"""Writes to FIFOs: the thread ends at whatever moment the write is cancelled."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from exec_server.errors import InternalError
from exec_server.files.operations.fifo_writes import SpecialWrites
from exec_server.protocol.method import NOTHING
from tests.requirements import requirement
from tests.support.files import open_descriptors, until


def threads() -> int:
    return sum(thread.name == "exec-server fifo" for thread in threading.enumerate())


@requirement("fs/writeFile:fifo")
async def test_a_write_that_is_cancelled_at_any_moment_ends(tmp_path):
    """Cancelled before the thread opens the FIFO, while it does, or while it writes."""
    os.mkfifo(tmp_path / "fifo")
    path = os.fsencode(tmp_path / "fifo")
    writes = SpecialWrites(limit=1)
    before = open_descriptors()
    for turns in range(60):
        writing = writes.start(path, bytes(200_000))
        for _ in range(turns % 10):
            await asyncio.sleep(0)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if turns % 3 == 0 else None
        writing.cancel()
        await until(lambda: threads() == 0)
        if reader is not None:
            os.close(reader)
        # The only slot is free again.
        await until(lambda: writes._running == 0)
    assert open_descriptors() == before


@requirement("fs/writeFile:special-bounded")
async def test_there_are_only_so_many(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    path = os.fsencode(tmp_path / "fifo")
    writes = SpecialWrites(limit=2)
    waiting = [writes.start(path, b"a") for _ in range(2)]
    spare = os.open("/dev/null", os.O_WRONLY)
    with pytest.raises(InternalError, match="more than 2"):
        writes.start(path, b"b", spare)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(spare)
    with open(path, "rb") as reader:
        assert await asyncio.gather(*waiting) == [NOTHING, NOTHING]
        assert reader.read() == b"aa"
    await until(lambda: threads() == 0)


@requirement("fs/writeFile:device")
async def test_devices_are_written_by_their_path_or_descriptor():
    writes = SpecialWrites(limit=2)
    assert await writes.start(b"/dev/null", b"x") is NOTHING
    assert await writes.start(b"/dev/null", b"x", os.open("/dev/null", os.O_WRONLY)) is NOTHING
    with pytest.raises(InternalError, match="No space left"):
        await writes.start(b"/dev/full", b"x")
    await until(lambda: threads() == 0)

"""Output of a durable process on a disk that is full for a while: all of it is told, once."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.process.durable import journal_pump
from exec_server.process.durable.journal_log import Bounds, JournalLog
from exec_server.process.durable.journal_pump import JournalPump
from exec_server.process.pump import OutputGate
from tests.support.wire import PATIENCE


class Told:
    """What a pump tells of, as the client would receive it."""

    def __init__(self, log: JournalLog, reader: int) -> None:
        self.gate = OutputGate()
        self.records: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.ended = asyncio.Event()
        self.pump = JournalPump(
            (reader,),
            "stdout",
            log,
            gate=self.gate,
            window=OutputGate(),
            chunk_bytes=1 << 16,
            on_record=lambda record: self.records.put_nowait((record.seq, log.read(record))),
            on_end=self.ended.set,
        )
        self.pump.resume()

    async def next(self) -> tuple[int, bytes]:
        async with asyncio.timeout(PATIENCE):
            return await self.records.get()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    yield reader, writer
    os.close(writer)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JournalLog]:
    monkeypatch.setattr(journal_pump, "_RETRY_SECONDS", 0.01)
    made = JournalLog.create(tmp_path / "job", ("stdout",), Bounds(1 << 20, 1000))
    yield made
    made.clear()


class FullDisk:
    """Refuses so many calls of a function of the operating system."""

    def __init__(self, patches: pytest.MonkeyPatch, name: str, times: int) -> None:
        self._function = getattr(os, name)
        self._times = times
        self.refused = asyncio.Event()
        patches.setattr(os, name, self._call)

    def _call(self, *args: Any, **options: Any) -> Any:
        if self._times:
            self._times -= 1
            self.refused.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._function(*args, **options)


@pytest.mark.parametrize("name", ["splice", "pwrite"])
async def test_output_is_told_as_soon_as_the_disk_has_room(log, pipe, monkeypatch, name):
    """With `pwrite` the bytes are in the file already, and the pipe is empty."""
    reader, writer = pipe
    told = Told(log, reader)
    FullDisk(monkeypatch, name, times=3)
    os.write(writer, b"hello")
    assert await told.next() == (1, b"hello")
    os.write(writer, b"again")
    assert await told.next() == (2, b"again")
    told.pump.close()


async def test_a_closed_gate_holds_back_what_waited_for_the_disk(log, pipe, monkeypatch):
    reader, writer = pipe
    told = Told(log, reader)
    disk = FullDisk(monkeypatch, "pwrite", times=1)
    os.write(writer, b"hello")
    async with asyncio.timeout(PATIENCE):
        await disk.refused.wait()
    parked = asyncio.Event()
    park = told.gate.park

    def note_and_park(pump: Any) -> None:
        parked.set()
        park(pump)

    monkeypatch.setattr(told.gate, "park", note_and_park)
    told.gate.close()
    # The next attempt meets the gate.
    async with asyncio.timeout(PATIENCE):
        await parked.wait()
    assert told.records.empty()
    told.gate.open()
    assert await told.next() == (1, b"hello")
    told.pump.close()

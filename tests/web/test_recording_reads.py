"""Reads of recordings have threads of their own, a limit and a deadline."""

from __future__ import annotations

import asyncio
import threading

import pytest

from exec_server.errors import InternalError, InvalidRequest
from exec_server.web.recordings.recording_reads import Check, RecordingReads
from tests.support.wire import PATIENCE


async def test_what_a_read_returns_and_raises():
    reads = RecordingReads()
    assert await reads.run(lambda check: "text") == "text"
    with pytest.raises(FileNotFoundError):
        await reads.run(lambda check: open("/nowhere/at/all"))


async def test_reads_that_hang_take_no_other_thread_and_are_limited():
    disk, begun = threading.Event(), threading.Semaphore(0)

    def hang(check: Check) -> str:
        begun.release()
        disk.wait(PATIENCE)
        return "late"

    reads = RecordingReads(threads=2, most=4, seconds=PATIENCE)
    # The third and fourth find no thread.
    tasks = [asyncio.create_task(reads.run(hang)) for _ in range(4)]
    try:
        for _ in range(2):
            assert await asyncio.to_thread(begun.acquire, timeout=PATIENCE)
        with pytest.raises(InvalidRequest, match="too many"):
            await reads.run(hang)
    finally:
        disk.set()
    assert await asyncio.gather(*tasks) == ["late"] * 4


async def test_a_read_that_hangs_is_given_up():
    disk = threading.Event()
    reads = RecordingReads(seconds=0.05)
    try:
        with pytest.raises(InternalError, match="too long"):
            await reads.run(lambda check: disk.wait(PATIENCE))
    finally:
        disk.set()


async def test_a_long_read_stops_by_itself_at_its_deadline():
    def long(check: Check) -> None:
        while True:
            check()

    reads = RecordingReads(threads=1, seconds=0.05)
    with pytest.raises(InternalError, match="too long"):
        await reads.run(long)
    # The only thread is free again; it may take its time until then.
    patient = RecordingReads(threads=0, seconds=PATIENCE)
    patient._queue = reads._queue
    assert await patient.run(lambda check: "next") == "next"


async def test_a_read_that_is_not_wanted_any_more_makes_room():
    began = threading.Event()
    over = threading.Event()

    def long(check: Check) -> None:
        began.set()
        try:
            while True:
                check()
        finally:
            over.set()

    reads = RecordingReads(threads=1, seconds=PATIENCE)
    task = asyncio.create_task(reads.run(long))
    await asyncio.to_thread(began.wait, PATIENCE)
    task.cancel()
    assert await asyncio.to_thread(over.wait, PATIENCE)
    assert await reads.run(lambda check: "next") == "next"

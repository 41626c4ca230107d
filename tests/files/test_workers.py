"""Threads for blocking work: they start when needed, are bounded, and end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from exec_server.files.workers import Share, Workers
from tests.requirements import requirement
from tests.support.files import until
from tests.support.wire import PATIENCE


def threads() -> int:
    return sum(thread.name == "exec-server files" for thread in threading.enumerate())


@pytest.fixture
async def workers():
    before = threads()
    found = Workers(limit=3, idle_seconds=PATIENCE)
    yield found
    found.stop()
    await until(lambda: threads() == before)


class Held:
    """Functions that wait in their threads, and the number of those that do."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.entered = 0
        self._lock = threading.Lock()

    def wait(self, value: object = None) -> object:
        with self._lock:
            self.entered += 1
        assert self.released.wait(PATIENCE)
        return value


def fail() -> None:
    raise ValueError("on purpose")


async def test_what_a_function_returns_or_raises_arrives(workers):
    share = Share(workers, width=2)
    assert await share.run(lambda one, two: one + two, 1, 2) == 3
    with pytest.raises(ValueError, match="on purpose"):
        await share.run(fail)


async def test_a_thread_is_used_again(workers):
    share = Share(workers, width=2)
    idents = {await share.run(threading.get_ident) for _ in range(20)}
    assert len(idents) == 1
    assert threading.get_ident() not in idents


@requirement("fs:threads-bounded")
async def test_no_more_threads_than_allowed(workers):
    held = Held()
    shares = [Share(workers, width=1) for _ in range(5)]
    calls = [share.run(held.wait, number) for number, share in enumerate(shares)]
    await until(lambda: held.entered == 3)
    assert threads() == 3
    held.released.set()
    assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4]


@requirement("fs:threads-bounded")
async def test_one_share_leaves_threads_to_the_others(workers):
    held = Held()
    greedy, modest = Share(workers, width=2), Share(workers, width=2)
    calls = [greedy.run(held.wait, number) for number in range(6)]
    await until(lambda: held.entered == 2)
    assert await modest.run(lambda: "at once") == "at once"
    held.released.set()
    # All jobs ran, in order.
    assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4, 5]


async def test_after_gets_the_outcome_of_a_cancelled_call(workers):
    share = Share(workers, width=1)
    held = Held()
    heard: list[tuple[object, object]] = []
    call = share.run(held.wait, "kept", after=lambda *outcome: heard.append(outcome))
    second = share.run(held.wait, "next")
    call.cancel()
    await until(lambda: held.entered == 1)
    # The thread is busy until the job is done, cancelled or not.
    assert not second.done()
    held.released.set()
    assert await second == "next"
    assert heard == [("kept", None)]


async def test_idle_threads_end():
    before = threads()
    workers = Workers(limit=2, idle_seconds=0.0)
    share = Share(workers, width=2)
    for _ in range(50):
        assert await share.run(lambda: 1) == 1
    await until(lambda: threads() == before)
    assert await share.run(lambda: 2) == 2
    workers.stop()
    await until(lambda: threads() == before)


async def test_a_job_after_the_stop_is_still_done():
    workers = Workers(limit=2, idle_seconds=PATIENCE)
    share = Share(workers, width=2)
    assert await share.run(lambda: 1) == 1
    workers.stop()
    assert await share.run(lambda: 2) == 2

"""Reads recordings in a few threads of their own, within a limited time.

A recording may be large, and its disk may not answer. So these reads take no thread that something
else on the page needs, and a thread that hangs does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from exec_server.errors import InternalError, InvalidRequest

Result = TypeVar("Result")
# Called by the work from time to time; it raises when the time is over.
Check = Callable[[], None]
Work = Callable[[Check], Result]

THREADS = 4
MOST_WAITING = 32
SECONDS = 30.0


class RecordingReads:
    """The threads, which are started when they are needed."""

    def __init__(
        self, *, threads: int = THREADS, most: int = MOST_WAITING, seconds: float = SECONDS
    ) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads_left = threads
        self._most = most
        self._seconds = seconds
        # Reads that were asked for and have not ended, also those whose time is over.
        self._running = 0

    async def run(self, work: Work[Result]) -> Result:
        """What *work* returns or raises. Raises InvalidRequest or InternalError if it cannot."""
        if self._running >= self._most:
            raise InvalidRequest("too many recordings are read at this moment")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Result] = loop.create_future()
        deadline = time.monotonic() + self._seconds
        self._running += 1
        self._queue.put(lambda: self._do(work, deadline, loop, done))
        if self._threads_left:
            self._threads_left -= 1
            threading.Thread(target=self._work, name="recording reads", daemon=True).start()
        try:
            async with asyncio.timeout(self._seconds):
                return await done
        except TimeoutError:
            raise _took_too_long() from None

    def _work(self) -> None:
        while True:
            self._queue.get()()

    def _do(
        self,
        work: Work[Result],
        deadline: float,
        loop: asyncio.AbstractEventLoop,
        done: asyncio.Future[Result],
    ) -> None:
        def check() -> None:
            if time.monotonic() > deadline or done.cancelled():
                raise _took_too_long()

        result: Any = None
        error: Exception | None = None
        try:
            check()
            result = work(check)
        except Exception as exc:
            error = exc
        with contextlib.suppress(RuntimeError):
            # The loop may have ended meanwhile.
            loop.call_soon_threadsafe(self._tell, done, result, error)

    def _tell(self, done: asyncio.Future[Result], result: Result, error: Exception | None) -> None:
        self._running -= 1
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)


def _took_too_long() -> InternalError:
    return InternalError("it takes too long to read the recording")

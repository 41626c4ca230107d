"""Threads for blocking work: all connections share them, and each has a limited share."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from exec_server.files.operations.oserrors import os_error

T = TypeVar("T")
Args = TypeVarTuple("Args")

# Called on the event loop with the result of a function, or with its exception.
Settle = Callable[[Any, BaseException | None], None]


def _ignore(outcome: Any, error: BaseException | None) -> None: ...


class _FileJob(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]
    settle: Settle


class Workers:
    """Up to *limit* threads, which start when they are needed and end after *idle_seconds*.

    They are daemons, so a thread that hangs in a system call does not keep the process alive.
    """

    def __init__(self, *, limit: int, idle_seconds: float) -> None:
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_FileJob | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        # The number of idle threads minus the number of waiting jobs.
        self._idle = 0

    def submit(self, job: _FileJob) -> None:
        with self._lock:
            self._idle -= 1
            is_short = self._idle < 0 and self._threads < self._limit
            if is_short:
                self._threads += 1
                self._idle += 1
        if is_short and not self._start_thread():
            job.settle(None, os_error(errno.EAGAIN))
            return
        self._jobs.put(job)

    def _start_thread(self) -> bool:
        """Start one more thread. False means that there is none at all to do the job."""
        try:
            threading.Thread(target=self._work, name="exec-server files", daemon=True).start()
        except (RuntimeError, MemoryError):
            with self._lock:
                self._threads -= 1
                self._idle -= 1
                if self._threads:
                    return True
                # The job does not wait any more.
                self._idle += 1
                return False
        return True

    def call(
        self, function: Callable[[*Args], object], *args: *Args, settle: Settle | None = None
    ) -> None:
        """Call *function* in a thread, and then *settle* on the event loop, if it is given."""
        self.submit(_FileJob(function, args, settle or _ignore))

    def stop(self) -> None:
        """Let every thread end when it has nothing to do."""
        self._idle_seconds = 0.0
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            try:
                outcome, error = job.function(*job.args), None
            except BaseException as exc:
                outcome, error = None, exc
            # This comes before `settle`, which may submit the next job and would start a thread.
            with self._lock:
                self._idle += 1
            # The event loop may be closed already.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(job.settle, outcome, error)
            # An idle thread must not keep the data of its last job alive.
            del job, outcome, error

    def _next_job(self) -> _FileJob | None:
        """The next job; None if this thread should end."""
        while True:
            try:
                job = self._jobs.get(timeout=self._idle_seconds)
            except Empty:
                job = None
            if job is not None:
                return job
            with self._lock:
                # If it is 0 or less, a job is counted on this thread and about to be put.
                if self._idle > 0:
                    self._threads -= 1
                    self._idle -= 1
                    return None


class Share:
    """One connection's part of the workers: at most *width* jobs at a time, in order."""

    def __init__(self, workers: Workers, *, width: int) -> None:
        self._workers = workers
        self._width = width
        self._running = 0
        self._waiting: deque[_FileJob] = deque()

    def run(
        self, function: Callable[[*Args], T], *args: *Args, after: Settle | None = None
    ) -> asyncio.Future[T]:
        """Call *function* in a thread. Cancelling the future does not end the call. *after* gets
        the outcome in any case, before the future is settled."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(outcome: Any, error: BaseException | None) -> None:
            self._leave()
            if after is not None:
                after(outcome, error)
            if answer.done():
                return
            if error is None:
                answer.set_result(outcome)
            else:
                answer.set_exception(error)

        self._enter(_FileJob(function, args, settle))
        return answer

    def _enter(self, job: _FileJob) -> None:
        if self._running < self._width:
            self._running += 1
            self._workers.submit(job)
        else:
            self._waiting.append(job)

    def _leave(self) -> None:
        self._running -= 1
        if self._waiting:
            self._enter(self._waiting.popleft())

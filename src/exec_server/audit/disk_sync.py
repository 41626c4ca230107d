"""When the lines of an audit log are written through to the disk; a thread does it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal

logger = logging.getLogger(__name__)

SyncPolicy = Literal["always", "interval", "never"]

_INTERVAL_SECONDS = 1.0


class DiskSync:
    """Counts what was written, and how much of it has reached the disk.

    With `always` a sync begins with the first line, and all lines that come meanwhile share the
    next one. With `interval` there is at most one each second.
    """

    def __init__(self, policy: SyncPolicy) -> None:
        self.policy = policy
        self.written = 0
        self.synced = 0
        self.failures = 0
        # Called when `synced` has grown.
        self.on_synced: Callable[[], None] = _nothing
        self._is_failing = False
        self._descriptor: int | None = None
        self._running: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def is_failing(self) -> bool:
        return self._is_failing

    def wrote(self, descriptor: int) -> None:
        """A line was written to *descriptor*."""
        self.written += 1
        if self.policy == "never":
            return
        self._descriptor = descriptor
        if self._running is not None or self._timer is not None:
            return
        if self.policy == "always":
            self._begin()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_INTERVAL_SECONDS, self._begin)

    def finish(self, descriptor: int) -> None:
        """Write everything through before *descriptor* is closed; this blocks."""
        if self.policy != "never" and self.synced < self.written:
            self._settle(self.written, _try_sync(descriptor))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._threads is not None:
            self._threads.shutdown()
        self._descriptor = None

    def _begin(self) -> None:
        self._timer = None
        if self._descriptor is None or self.synced >= self.written:
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="audit sync")
        # The file may be closed meanwhile, because it is rotated.
        own = os.dup(self._descriptor)
        loop = asyncio.get_running_loop()
        self._running = loop.run_in_executor(self._threads, _sync_and_close, own)
        self._running.add_done_callback(partial(self._ended, self.written))

    def _ended(self, until: int, future: asyncio.Future[None]) -> None:
        self._running = None
        if future.cancelled():
            return
        error = future.exception()
        self._settle(until, error if isinstance(error, OSError) else None)
        if self._descriptor is not None and self.synced < self.written and self._timer is None:
            if self.policy == "always":
                self._begin()
            else:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(_INTERVAL_SECONDS, self._begin)

    def _settle(self, until: int, error: OSError | None) -> None:
        if error is not None:
            self.failures += 1
            if not self._is_failing:
                logger.error("the audit log cannot be written to the disk: %s", error.strerror)
        self._is_failing = error is not None
        self.synced = max(self.synced, until)
        self.on_synced()


def _try_sync(descriptor: int) -> OSError | None:
    try:
        os.fdatasync(descriptor)
    except OSError as exc:
        return exc
    return None


def _sync_and_close(descriptor: int) -> None:
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _nothing() -> None: ...

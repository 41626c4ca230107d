"""How the C library treats memory that was freed."""

from __future__ import annotations

import asyncio
from functools import cache

# Giving memory back takes time, and the next use faults it in again. So it is done for at least
# this much, this long after it was freed, and not more often.
_LARGE = 8 << 20
_DELAY = 2.0


@cache
def keep_freed_memory(size: int) -> None:
    """Let glibc keep freed blocks of up to *size* bytes for the next use.

    By default glibc takes a large block from the kernel and gives it back when it is freed, so
    that every use faults its pages in again. Freeing one block of *size* bytes raises that limit
    to *size*, and lets twice as much stay free. The block is never touched, so it costs nothing.
    """
    bytes(size)


class _FreedMemory:
    """Counts what was freed since memory was given back for the last time."""

    def __init__(self) -> None:
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, size: int) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # A timer of a former loop never fires.
            self._loop, self._timer = loop, None
        self._size += size
        if self._size >= _LARGE and self._timer is None:
            self._timer = loop.call_later(_DELAY, self._give_back, loop)

    def _give_back(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._size = 0
        loop.run_in_executor(None, _trim)


_freed = _FreedMemory()


def give_back_memory(size: int) -> None:
    """*size* bytes are freed in this turn of the event loop; return memory to the system soon."""
    _freed.add(size)


def _trim() -> None:
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Only glibc has this function; other libraries return memory by themselves.
    if trim is not None:
        trim(0)

"""Input that was typed and not passed on yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

# More than a person types during an outage; the rest of a longer paste waits in the terminal.
_MOST_BYTES = 256 * 1024


class TypeAhead:
    """A buffer: keys are read at one end while the process takes them at the other."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._write = write
        self._waiting = bytearray()
        self._is_ended = False
        self._has_news = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def put(self, data: bytes) -> None:
        """Add *data*; waits while the buffer is full, unless `pass_on` has ended."""
        if self._is_ended:
            return
        self._waiting += data
        self._is_idle.clear()
        self._has_news.set()
        if len(self._waiting) > _MOST_BYTES:
            self._has_room.clear()
            await self._has_room.wait()

    async def settle(self) -> None:
        """Wait until everything so far is passed on, or `pass_on` has ended."""
        await self._is_idle.wait()

    def end(self) -> None:
        """There is no more input."""
        self._is_ended = True
        self._has_news.set()

    async def pass_on(self) -> None:
        """Write everything up to `end`; raises what the write raises."""
        try:
            while self._waiting or not self._is_ended:
                await self._has_news.wait()
                self._has_news.clear()
                data = bytes(self._waiting)
                self._waiting.clear()
                self._has_room.set()
                if data:
                    await self._write(data)
                if not self._waiting:
                    self._is_idle.set()
        finally:
            self._is_ended = True
            self._has_room.set()
            self._is_idle.set()

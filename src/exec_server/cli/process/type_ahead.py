"""What was typed and is not passed on yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

# More than anybody types during an outage; what is pasted beyond waits in the terminal.
_MOST_BYTES = 256 * 1024


class TypeAhead:
    """Lets one side go on reading keys while the other waits for a process to take them."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._write = write
        self._waiting = bytearray()
        self._is_ended = False
        self._has_news = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def put(self, data: bytes) -> None:
        """Have *data* passed on; returns when there is room for more, or no use for it."""
        if self._is_ended:
            return
        self._waiting += data
        self._is_idle.clear()
        self._has_news.set()
        if len(self._waiting) > _MOST_BYTES:
            self._has_room.clear()
            await self._has_room.wait()

    async def settle(self) -> None:
        """Until everything so far is passed on, or nobody wants it any more."""
        await self._is_idle.wait()

    def end(self) -> None:
        """Nothing more comes."""
        self._is_ended = True
        self._has_news.set()

    async def pass_on(self) -> None:
        """Write everything, up to the end; raises as the write does."""
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

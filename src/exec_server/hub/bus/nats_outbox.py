"""The queue of messages to publish. It is bounded, and losses are logged."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

logger = logging.getLogger(__name__)

# The memory that a message takes besides its bytes.
_OVERHEAD = 128


class Outbox:
    """Messages in order. A message that exceeds the limit is lost."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: deque[tuple[str, bytes]] = deque()
        self._waiting = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._lost_in_a_row = 0
        self.lost = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, subject: str, data: bytes) -> None:
        size = _OVERHEAD + len(data)
        if self._waiting + size > self._limit:
            self.lose(1, "too many wait")
            return
        self._waiting += size
        self._messages.append((subject, data))
        self._filled.set()
        self._emptied.clear()

    async def filled(self) -> None:
        """Return when a message waits."""
        await self._filled.wait()

    async def emptied(self) -> None:
        """Return when no message waits."""
        await self._emptied.wait()

    def take(self) -> tuple[str, bytes]:
        subject, data = self._messages.popleft()
        self._waiting -= _OVERHEAD + len(data)
        if not self._messages:
            self._filled.clear()
            self._emptied.set()
        return subject, data

    def clear(self, why: str) -> None:
        if self._messages:
            self.lose(len(self._messages), why)
        while self._messages:
            self.take()

    def lose(self, count: int, why: str) -> None:
        """Count lost messages. Only the first loss in a row is logged at once."""
        if not self._lost_in_a_row:
            logger.warning("messages to other nodes are lost: %s", why)
        self._lost_in_a_row += count
        self.lost += count

    def went_out(self) -> None:
        """All waiting messages were sent: log how many were lost before."""
        if self._lost_in_a_row:
            logger.warning("%d messages to other nodes were lost", self._lost_in_a_row)
            self._lost_in_a_row = 0

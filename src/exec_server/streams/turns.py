"""Whose turn it is to send: the streams of one connection share it."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from exec_server.streams.pace import BulkPace


class Waiting(Protocol):
    """Wants to send when the connection takes data again."""

    def take_turn(self) -> bool:
        """Send at most one chunk; True if there is more to send."""


class StreamTurns:
    """Closed while there is no connection, or while the connection takes no more.

    When it opens, those that have waited send one chunk each, in turn, until it closes again. So a
    stream that always has data does not delay the others by more than a chunk each. With a *pace*,
    bulk makes way for small messages.
    """

    def __init__(self, pace: BulkPace | None = None) -> None:
        self.pace = pace
        self.is_open = False
        self._waiting: deque[Waiting] = deque()

    def close(self) -> None:
        self.is_open = False

    def open(self) -> None:
        self.is_open = True
        waiting = self._waiting
        while waiting and self.is_open:
            each = waiting.popleft()
            if each.take_turn():
                waiting.append(each)

    def wait(self, each: Waiting) -> None:
        """Let *each* have its turn once the connection takes data."""
        if each not in self._waiting:
            self._waiting.append(each)

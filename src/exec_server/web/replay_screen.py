"""What a tab that comes late has to draw, for terminals and for plain output."""

from __future__ import annotations

from collections import deque
from typing import Protocol

# More than any screen shows, and little enough to be drawn at once.
TAIL_BYTES = 256 * 1024


class ReplayScreen(Protocol):
    """Takes all output of a process, and gives what paints its screen."""

    def feed(self, data: bytes) -> None: ...

    def resize(self, columns: int, rows: int) -> None: ...

    def draw(self) -> bytes:
        """The bytes that paint the screen on an empty terminal of the same size."""
        ...


class OutputTail:
    """The newest output, from the beginning of a line on."""

    def __init__(self, most: int = TAIL_BYTES) -> None:
        self._most = most
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._is_cut = False

    def feed(self, data: bytes) -> None:
        if len(data) > self._most:
            data = data[-self._most :]
            self._is_cut = True
        self._parts.append(data)
        self._size += len(data)
        while self._size - len(self._parts[0]) >= self._most:
            self._size -= len(self._parts.popleft())
            self._is_cut = True

    def resize(self, columns: int, rows: int) -> None:
        """Output without a terminal has no size."""

    def draw(self) -> bytes:
        whole = b"".join(self._parts)
        if not self._is_cut:
            return whole
        _, newline, rest = whole.partition(b"\n")
        return rest if newline else whole

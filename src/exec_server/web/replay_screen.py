"""What a tab that comes late has to draw, for terminals and for plain output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from exec_server.terminal import engine_name, open_engine

# More than any screen shows, and little enough to be drawn at once.
TAIL_BYTES = 256 * 1024
# So many rows above the screen are drawn again.
HISTORY_ROWS = 1000


class ReplayScreen(Protocol):
    """Takes all output of a process, and gives what paints its screen."""

    def feed(self, data: bytes) -> None: ...

    def resize(self, columns: int, rows: int) -> None: ...

    def draw(self) -> bytes:
        """The bytes that paint the screen on an empty terminal of the same size."""
        ...

    def close(self) -> None: ...


def load_engine() -> None:
    """Import the engine of terminals, which takes some tenths of a second."""
    engine_name()


class TerminalScreen:
    """The screen of a terminal, exact at every moment; what paints it contains no query."""

    def __init__(self, columns: int, rows: int, on_answer: Callable[[bytes], None]) -> None:
        """*on_answer* gets the answers to queries of the program, as they would be typed."""
        self._engine = open_engine(columns, rows, scrollback=HISTORY_ROWS)
        self._engine.on_answer = on_answer

    def feed(self, data: bytes) -> None:
        self._engine.feed(data)

    def resize(self, columns: int, rows: int) -> None:
        self._engine.resize(columns, rows)

    def draw(self) -> bytes:
        return self._engine.dump(history=HISTORY_ROWS)

    def close(self) -> None:
        self._engine.close()


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

    def close(self) -> None:
        """There is nothing to free."""

    def draw(self) -> bytes:
        whole = b"".join(self._parts)
        if not self._is_cut:
            return whole
        _, newline, rest = whole.partition(b"\n")
        return rest if newline else whole

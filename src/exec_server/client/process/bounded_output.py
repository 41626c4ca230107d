"""BoundedOutput: the beginning and the end of an output that may be without end."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Self


class Gap(NamedTuple):
    """A place in an output where *size* bytes are missing."""

    at: int
    size: int

    def __str__(self) -> str:
        return f"[... {self.size} bytes of output are missing here ...]"


def with_gap(content: bytes, gap: Gap | None, encoding: str) -> str:
    """*content* as a text; a line says where something is missing."""
    if gap is None:
        return content.decode(encoding, "replace")
    head = content[: gap.at].decode(encoding, "replace")
    tail = content[gap.at :].decode(encoding, "replace")
    newline = "" if head.endswith("\n") or not head else "\n"
    return f"{head}{newline}{gap}\n{tail}"


class BoundedOutput:
    """Keeps up to *max_bytes*: the first half, and as much of the end. None keeps everything.

    With *has_head* false only the end is kept.
    """

    def __init__(self, max_bytes: int | None, *, has_head: bool = True) -> None:
        self._head_bytes = None if max_bytes is None else has_head * (max_bytes - max_bytes // 2)
        self._tail_bytes = 0 if max_bytes is None else max_bytes - (self._head_bytes or 0)
        self._head: list[bytes] = []
        self._head_size = 0
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        # The number of bytes between the two that were not kept.
        self.dropped_bytes = 0

    def add(self, data: bytes) -> None:
        if self._head_bytes is not None:
            room = self._head_bytes - self._head_size
            if len(data) > room:
                self._add_to_tail(data[room:])
                data = data[:room]
        if data:
            self._head.append(data)
            self._head_size += len(data)

    def __iadd__(self, data: bytes) -> Self:
        self.add(data)
        return self

    def _add_to_tail(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_size += len(data)
        while (excess := self._tail_size - self._tail_bytes) > 0:
            oldest = self._tail.popleft()
            if len(oldest) > excess:
                self._tail.appendleft(oldest[excess:])
            gone = min(len(oldest), excess)
            self._tail_size -= gone
            self.dropped_bytes += gone

    @property
    def total_bytes(self) -> int:
        """The number of bytes that were added."""
        return self._head_size + self._tail_size + self.dropped_bytes

    @property
    def gap(self) -> Gap | None:
        """Where bytes are missing in the content; None if none are."""
        return Gap(self._head_size, self.dropped_bytes) if self.dropped_bytes else None

    def content(self) -> bytes:
        """Everything that was kept."""
        return b"".join((*self._head, *self._tail))

"""Number, retain and page what a process said."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from exec_server.protocol.process import Stream


class Chunk(NamedTuple):
    seq: int
    stream: Stream
    data: bytes


class Page(NamedTuple):
    chunks: list[Chunk]
    next_seq: int
    # Bytes that this log has discarded, when some of them lay after the cursor; else None.
    dropped_bytes: int | None


class OutputLog:
    """The newest output of one process, and the one counter of all its events.

    Every number from 1 on is given out exactly once, to a chunk, the exit or the close. Whole
    chunks are discarded from the oldest on, so that at most *max_bytes* in *max_chunks* remain.
    """

    __slots__ = (
        "_bytes",
        "_chunks",
        "_dropped",
        "_dropped_seq",
        "_max_bytes",
        "_max_chunks",
        "next_seq",
    )

    def __init__(self, *, max_bytes: int, max_chunks: int) -> None:
        self.next_seq = 1
        self._max_bytes = max_bytes
        self._max_chunks = max_chunks
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._dropped = 0
        self._dropped_seq = 0

    @property
    def total_bytes(self) -> int:
        """How much the process has said so far, discarded or not."""
        return self._bytes + self._dropped

    def take_seq(self) -> int:
        """A number for an event that is not output."""
        seq = self.next_seq
        self.next_seq = seq + 1
        return seq

    def append(self, stream: Stream, data: bytes) -> int:
        """Retain *data* and return its number."""
        seq = self.next_seq
        self.next_seq = seq + 1
        chunks = self._chunks
        chunks.append(Chunk(seq, stream, data))
        self._bytes += len(data)
        while self._bytes > self._max_bytes or len(chunks) > self._max_chunks:
            oldest = chunks.popleft()
            self._bytes -= len(oldest.data)
            self._dropped += len(oldest.data)
            self._dropped_seq = oldest.seq
        return seq

    def has_after(self, cursor: int) -> bool:
        """Whether any output after *cursor* is retained."""
        return bool(self._chunks) and self._chunks[-1].seq > cursor

    def after(self, cursor: int, *, max_bytes: int | None = None) -> Page:
        """Retained output after *cursor*: the first chunk always, then what fits *max_bytes*."""
        chunks = self._select(cursor, max_bytes)
        page_end = max_bytes is not None and chunks
        return Page(
            chunks,
            chunks[-1].seq + 1 if page_end else self.next_seq,
            self._dropped if self._dropped_seq > cursor else None,
        )

    def _select(self, cursor: int, max_bytes: int | None) -> list[Chunk]:
        selected: list[Chunk] = []
        total = 0
        for chunk in self._tail(cursor):
            total += len(chunk.data)
            if selected and max_bytes is not None and total > max_bytes:
                break
            selected.append(chunk)
            if max_bytes is not None and total >= max_bytes:
                break
        return selected

    def _tail(self, cursor: int) -> list[Chunk]:
        """Retained chunks after *cursor*, found from the newer end: readers usually follow."""
        tail: list[Chunk] = []
        for chunk in reversed(self._chunks):
            if chunk.seq <= cursor:
                break
            tail.append(chunk)
        tail.reverse()
        return tail

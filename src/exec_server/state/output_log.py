"""Number, retain and page the output of a process."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Protocol

import msgspec

from exec_server.protocol.process import Stream
from exec_server.state.retention import RetentionBudget
from exec_server.state.window import CHUNK_COST, cost


class Chunk(msgspec.Struct, frozen=True, gc=False):
    seq: int
    stream: Stream
    data: bytes


class Page(msgspec.Struct, frozen=True):
    chunks: list[Chunk]
    next_seq: int
    # The number of bytes that the log has discarded, if some of them lay after the cursor; else
    # None.
    dropped_bytes: int | None
    # True if there is more, although no size was asked for.
    has_more: bool = False


class ProcessLog(Protocol):
    """The output of a process and the counter of its events, wherever it is kept."""

    window: int | None
    acknowledged: int

    @property
    def next_seq(self) -> int: ...

    @property
    def retained_cost(self) -> int: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def is_within_retention(self) -> bool: ...

    @property
    def is_full(self) -> bool: ...

    @property
    def is_settled(self) -> bool: ...

    def take_seq(self) -> int: ...

    def append(self, stream: Stream, data: bytes) -> int: ...

    def acknowledge(self, seq: int) -> None: ...

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def forget_acknowledged(self) -> None: ...

    def clear(self) -> None: ...

    def release(self) -> None: ...

    def has_after(self, cursor: int) -> bool: ...

    def after(self, cursor: int, *, max_bytes: int | None = None) -> Page: ...


class OutputLog:
    """The newest output of one process, and the one counter of all its events.

    Every number from 1 on is given out exactly once, to a chunk, the exit or the close. Whole
    chunks are discarded from the oldest on, so that at most *max_bytes* in *max_chunks* remain.
    With a `window` nothing is discarded before it was acknowledged; `is_full` says when the process
    has to wait for that. Beyond these limits, the *budget* of all processes decides how much stays.
    """

    __slots__ = (
        "_budget",
        "_bytes",
        "_chunks",
        "_dropped",
        "_dropped_seq",
        "_max_bytes",
        "_max_chunks",
        "_unacknowledged",
        "_unacknowledged_cost",
        "acknowledged",
        "next_seq",
        "window",
    )

    def __init__(
        self, *, max_bytes: int, max_chunks: int, budget: RetentionBudget | None = None
    ) -> None:
        self.next_seq = 1
        self.window: int | None = None
        # The last number that the client has acknowledged.
        self.acknowledged = 0
        # The number of chunks after it, and their cost; both are counted only with a window.
        self._unacknowledged = 0
        self._unacknowledged_cost = 0
        self._max_bytes = max_bytes
        self._max_chunks = max_chunks
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._dropped = 0
        self._dropped_seq = 0
        if budget is None:
            budget = RetentionBudget(total_bytes=max_bytes + max_chunks * CHUNK_COST)
        self._budget = budget

    @property
    def retained_cost(self) -> int:
        """The memory that the retained output takes, about."""
        return self._bytes + CHUNK_COST * len(self._chunks)

    @property
    def total_bytes(self) -> int:
        """The number of bytes that the process has written so far, discarded or not."""
        return self._bytes + self._dropped

    @property
    def is_within_retention(self) -> bool:
        """True if no more is kept than of a process without a window."""
        return self._bytes <= self._max_bytes

    @property
    def is_full(self) -> bool:
        """True if the window has no room for another chunk."""
        return self.window is not None and self._unacknowledged_cost >= self.window

    @property
    def is_settled(self) -> bool:
        """True if no event waits for an acknowledgement, neither output nor exit nor close."""
        return self.window is None or self.acknowledged == self.next_seq - 1

    def take_seq(self) -> int:
        """Take the number for an event that is not output."""
        seq = self.next_seq
        self.next_seq = seq + 1
        return seq

    def append(self, stream: Stream, data: bytes) -> int:
        """Retain *data* and return its number."""
        seq = self.next_seq
        # If there is no memory for it, no number is given out.
        self._chunks.append(Chunk(seq, stream, data))
        self.next_seq = seq + 1
        self._bytes += len(data)
        if self.window is not None:
            self._unacknowledged += 1
            self._unacknowledged_cost += cost(data)
        if self._bytes > self._max_bytes or len(self._chunks) > self._max_chunks:
            self._evict()
        budget = self._budget
        budget.used += len(data) + CHUNK_COST
        if budget.used > budget.limit:
            budget.make_room()
        return seq

    def acknowledge(self, seq: int) -> None:
        """Everything up to *seq* has been taken by the client; an impossible number is ignored."""
        if self.window is None or not self.acknowledged < seq < self.next_seq:
            return
        self.acknowledged = seq
        taken = len(self._chunks) - self._unacknowledged
        for chunk in islice(self._chunks, taken, None):
            if chunk.seq > seq:
                break
            self._unacknowledged -= 1
            self._unacknowledged_cost -= cost(chunk.data)
        self._evict()

    def begin(self) -> None:
        """The process runs: from now on its output counts among that of all processes."""
        self._budget.join(self)

    def end(self) -> None:
        """No output will follow."""
        self._budget.end(self)

    def forget_acknowledged(self) -> None:
        """Discard what the client has acknowledged; it will not ask for it again."""
        if self.window is not None:
            self.trim(0)

    def clear(self) -> None:
        """Discard everything, for ever."""
        self._unacknowledged = self._unacknowledged_cost = 0
        self.trim(0)
        self._budget.leave(self)

    def trim(self, max_cost: int) -> None:
        """Discard the oldest output until *max_cost* is left, except what is unacknowledged."""
        while len(self._chunks) > self._unacknowledged and self.retained_cost > max_cost:
            self._drop_oldest()

    def release(self) -> None:
        """Give up the window: from now on output is retained as for a process without one."""
        self.window = None
        self._unacknowledged = self._unacknowledged_cost = 0
        self._evict()

    def _evict(self) -> None:
        chunks = self._chunks
        while len(chunks) > self._unacknowledged and (
            self._bytes > self._max_bytes or len(chunks) > self._max_chunks
        ):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._chunks.popleft()
        size = len(oldest.data)
        self._bytes -= size
        self._dropped += size
        self._dropped_seq = oldest.seq
        self._budget.used -= size + CHUNK_COST

    def has_after(self, cursor: int) -> bool:
        """True if any output after *cursor* is retained."""
        return bool(self._chunks) and self._chunks[-1].seq > cursor

    def after(self, cursor: int, *, max_bytes: int | None = None) -> Page:
        """Retained output after *cursor*: the first chunk, then as many as fit *max_bytes*."""
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
        """Retained chunks after *cursor*, searched from the newest: most readers follow closely."""
        tail: list[Chunk] = []
        for chunk in reversed(self._chunks):
            if chunk.seq <= cursor:
                break
            tail.append(chunk)
        tail.reverse()
        return tail

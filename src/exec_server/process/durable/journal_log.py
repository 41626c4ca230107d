"""The output of a durable process: numbered by its journal, and read from the disk in pages."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from exec_server.process.journal import Journal
from exec_server.process.journaling.journal_format import EndOfStream, Record
from exec_server.process.journaling.terminal_output import take_terminal
from exec_server.protocol.process import Stream
from exec_server.state.output_log import Chunk, Page
from exec_server.state.window import CHUNK_COST

__all__ = ["Bounds", "EndOfStream", "JournalLog", "Record"]

Note = Literal["exited", "closed", "lost"]

# What one answer holds at most if its reader asks for everything. Decoders accept 262,144 JSON
# values, and a chunk has four.
_PAGE_BYTES = 16 << 20
_PAGE_CHUNKS = 50_000
_STREAMS = frozenset(get_args(Stream))


class Bounds(NamedTuple):
    """How much a journal keeps."""

    max_bytes: int
    max_records: int


class JournalLog:
    """As `OutputLog`, but on the disk in *folder*.

    While the process runs, the journal is open. After `end` it is opened for each reader, so that
    ended processes hold no descriptors.
    """

    def __init__(self, folder: Path, bounds: Bounds, journal: Journal) -> None:
        self._folder = folder
        self._bounds = bounds
        self._journal: Journal | None = journal
        self.next_seq = journal.next_seq
        self.total_bytes = _size(journal)
        self._ended_bytes = 0
        self.window: int | None = None
        self.acknowledged = 0
        # The records after the acknowledged one with their cost; only with a window.
        self._unacknowledged: deque[tuple[int, int]] = deque()
        self._unacknowledged_cost = 0

    @classmethod
    def create(cls, folder: Path, streams: tuple[Stream, ...], bounds: Bounds) -> JournalLog:
        journal = Journal.create(folder, streams, **bounds._asdict())
        return cls(folder, bounds, journal)

    @classmethod
    def open(cls, folder: Path, streams: tuple[Stream, ...], bounds: Bounds) -> JournalLog:
        """What another process has left. Raises OSError."""
        return cls(folder, bounds, Journal.open(folder, streams=streams, **bounds._asdict()))

    @property
    def retained_cost(self) -> int:
        """The memory that the output takes: none."""
        return 0

    @property
    def retained_bytes(self) -> int:
        """The bytes on the disk."""
        return self._ended_bytes if self._journal is None else self._journal.retained_bytes

    @property
    def is_within_retention(self) -> bool:
        return True

    @property
    def is_full(self) -> bool:
        return self.window is not None and self._unacknowledged_cost >= self.window

    @property
    def is_settled(self) -> bool:
        return self.window is None or self.acknowledged == self.next_seq - 1

    @property
    def is_stalled(self) -> bool:
        """True if the disk is full: try again later."""
        return self._journal is not None and self._journal.is_stalled

    def has_backlog(self, stream: Stream) -> bool:
        """True if output waits for a number, although its pipe may be empty."""
        return self._journal is not None and self._journal.has_backlog(stream)

    @property
    def damage(self) -> list[str]:
        """What could not be read, in words."""
        with self._opened() as journal:
            return [f"{each.path} at {each.at}: {each.reason}" for each in journal.damage]

    @property
    def written_at(self) -> int:
        """When the last event was recorded; in milliseconds since 1970."""
        try:
            written = (self._folder / "index").stat().st_mtime_ns
        except OSError:
            # The folder was removed. If the journal is open, the event was recorded just now.
            written = time.time_ns()
        return written // 1_000_000

    @property
    def notes(self) -> dict[str, Record]:
        with self._opened() as journal:
            return dict(journal.notes)

    # Writing.

    def take(self, stream: Stream, fds: tuple[int, ...], max_bytes: int) -> Record | None:
        """As `Journal.take`; a terminal comes with both ends of the pipe behind it."""
        journal = self._journal
        assert journal is not None
        if stream == "pty":
            terminal, *pipe = fds
            record = take_terminal(journal, terminal, (pipe[0], pipe[1]), max_bytes)
        else:
            record = journal.take(stream, fds[0], max_bytes)
        if record is not None:
            self._count(journal, record)
        return record

    def append(self, stream: Stream, data: bytes) -> int:
        """Text of our own; its number, or 0 if the disk is full."""
        assert self._journal is not None
        record = self._journal.append(stream, data)
        if record is None:
            return 0
        self._count(self._journal, record)
        return record.seq

    def note(self, kind: Note, value: int = 0) -> int:
        """The number of an event that is not output, or 0 if the disk is full."""
        with self._opened() as journal:
            seq = journal.note(kind, value)
            self.next_seq = journal.next_seq
        return seq

    def take_seq(self) -> int:
        raise AssertionError("events of a durable process are noted")

    def read(self, record: Record) -> bytes:
        assert self._journal is not None
        return self._journal.read(record)

    def shrink(self, max_bytes: int) -> int:
        """Drop the oldest output beyond *max_bytes*, except what is unacknowledged."""
        with self._opened() as journal:
            dropped = journal.trim(max_bytes)
            self._ended_bytes = journal.retained_bytes
        return dropped

    def _count(self, journal: Journal, record: Record) -> None:
        self.next_seq = journal.next_seq
        self.total_bytes += record.length
        if self.window is not None:
            self._unacknowledged.append((record.seq, record.length + CHUNK_COST))
            self._unacknowledged_cost += record.length + CHUNK_COST

    # The window.

    def grant(self, window: int) -> None:
        """Keep what follows `acknowledged` until it is acknowledged, too."""
        self.window = window
        with self._opened() as journal:
            journal.keep_from = self.acknowledged + 1
            for record in journal.records(self.acknowledged):
                if record.kind in _STREAMS:
                    self._unacknowledged.append((record.seq, record.length + CHUNK_COST))
                    self._unacknowledged_cost += record.length + CHUNK_COST

    def acknowledge(self, seq: int) -> None:
        if self.window is None or not self.acknowledged < seq < self.next_seq:
            return
        self.acknowledged = seq
        if self._journal is not None:
            self._journal.keep_from = seq + 1
        waiting = self._unacknowledged
        while waiting and waiting[0][0] <= seq:
            self._unacknowledged_cost -= waiting.popleft()[1]

    def release(self) -> None:
        self.window = None
        self._unacknowledged.clear()
        self._unacknowledged_cost = 0
        if self._journal is not None:
            self._journal.keep_from = None

    def forget_acknowledged(self) -> None:
        """Does nothing: other readers may come, days later."""

    def begin(self) -> None:
        """Does nothing: the output takes no memory."""

    def end(self) -> None:
        """No output will follow."""
        self.clear()

    def clear(self) -> None:
        """Hold no descriptor any more."""
        if self._journal is not None:
            self._ended_bytes = self._journal.retained_bytes
            self._journal.close()
            self._journal = None

    # Reading.

    def has_after(self, cursor: int) -> bool:
        if cursor >= self.next_seq - 1:
            return False
        with self._opened() as journal:
            return any(record.kind in _STREAMS for record in journal.records(cursor))

    def after(self, cursor: int, *, max_bytes: int | None = None) -> Page:
        """As `OutputLog.after`; without *max_bytes*, as much as fits into one answer."""
        with self._opened() as journal:
            chunks, has_more = _select(journal, cursor, max_bytes)
            is_page = chunks and (max_bytes is not None or has_more)
            return Page(
                chunks,
                chunks[-1].seq + 1 if is_page else self.next_seq,
                journal.dropped_bytes if journal.dropped_seq > cursor else None,
                has_more and max_bytes is None,
            )

    def last(self, max_bytes: int) -> list[Chunk]:
        """The newest output, about *max_bytes* of it."""
        newest: deque[Record] = deque()
        size = 0
        with self._opened() as journal:
            for record in journal.records():
                if record.kind in _STREAMS:
                    newest.append(record)
                    size += record.length
                    while size - newest[0].length >= max_bytes:
                        size -= newest.popleft().length
            return [_chunk(journal, record) for record in newest]

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Journal]:
        if self._journal is not None:
            yield self._journal
            return
        journal = Journal.open(self._folder, **self._bounds._asdict())
        try:
            yield journal
        finally:
            journal.close()


def _select(journal: Journal, cursor: int, max_bytes: int | None) -> tuple[list[Chunk], bool]:
    """The first chunk after *cursor*, then as many as fit; and whether there are more."""
    selected: list[Chunk] = []
    total = 0
    bound = _PAGE_BYTES if max_bytes is None else max_bytes
    for record in journal.records(cursor):
        if record.kind not in _STREAMS:
            continue
        total += record.length
        is_full = len(selected) >= _PAGE_CHUNKS or total > bound
        if selected and (is_full or total - record.length >= bound):
            return selected, True
        selected.append(_chunk(journal, record))
    return selected, False


def _chunk(journal: Journal, record: Record) -> Chunk:
    stream: Stream = record.kind  # type: ignore[assignment]
    return Chunk(record.seq, stream, journal.read(record))


def _size(journal: Journal) -> int:
    return sum(journal.size(stream) for stream in _STREAMS)

"""The journal of a durable job: its output and its events on disk, each number given out once.

A folder holds one data file per stream and an index. A byte of output is moved from the job's pipe
into the data file by splice(2), so that at any instant it is in the pipe or in the file, whichever
process is killed. A record of the index is written after that. Bytes behind the last record were
not told to anyone; the process that opens the journal next gives them the next numbers.

The index is a header and slots of a fixed size, one for each number. A slot holds what a reader
needs to go on from there: the end of every stream after it. So a journal of any length is opened
by reading its last slots, and no index is kept in memory. The file ends with empty slots: the room
for the notes (exited, closed, lost) is taken in advance, so that a full disk cannot hide an exit.

The oldest records are dropped in two steps. The header says that they are gone, in place, which
takes no room on the disk; then their space is given back by punching holes. A file system without
holes gets a copy of what remains instead, once that is less than what was dropped.

Nothing here calls fsync(2): a killed process loses nothing, a machine without power may lose the
last seconds. Only one process at a time may use a journal.

The durable keeper uses this module, so it imports the standard library and its parts in journaling/
only, and no `typing`. It is long because recovery needs to know every detail of writing.
"""

from __future__ import annotations

import errno
import os

from exec_server.process.journaling import journal_files
from exec_server.process.journaling.journal_files import (
    is_incomplete,
    next_data,
    open_file,
)
from exec_server.process.journaling.journal_format import (
    CRC,
    EMPTY,
    HEADER,
    HEADER_BYTES,
    HEADERS,
    KINDS,
    MAGIC,
    NOTES,
    RESERVED,
    SLOT,
    SLOT_BYTES,
    STREAMS,
    EndOfStream,
    Record,
    data_name,
    is_sealed,
    sealed,
    shift_of,
    starts_of,
    unsealed,
)
from exec_server.process.journaling.journal_space import BLOCK, JournalSpace

# Bytes that were found behind the index are given numbers in pieces of this size.
PIECE = 1 << 18
# An eighth is dropped when a bound is reached, so that it is not done for each record.
SLACK = 8


class Journal(JournalSpace):
    """The output of one job in *folder*, at most *max_bytes* of it in *max_records*.

    Whole records are dropped from the oldest on. Records from the number `keep_from` on are never
    dropped; a job with a window waits instead.
    """

    __slots__ = ()

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        streams: tuple[str, ...],
        *,
        max_bytes: int,
        max_records: int,
    ) -> Journal:
        """Make a journal in *folder*, which is made if it does not exist."""
        try:
            os.mkdir(folder, 0o700)
            os.chmod(folder, 0o700)
        except FileExistsError:
            pass
        self = cls(os.fspath(folder), streams, max_bytes, max_records)
        place = journal_files.open_folder(folder)
        try:
            for stream in streams:
                self._data[STREAMS.index(stream)] = journal_files.create_file(stream, place)
            self._index = journal_files.create_file("index", place)
            self._begin_index()
        except BaseException:
            self.close()
            raise
        finally:
            os.close(place)
        return self

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        max_bytes: int,
        max_records: int,
        streams: tuple[str, ...] = (),
    ) -> Journal:
        """Open what another process has left, however it ended; see `damage` afterwards.

        With *streams*, a journal is completed whose creator was killed before it wrote anything.
        """
        self = cls(os.fspath(folder), streams, max_bytes, max_records)
        place = journal_files.open_folder(folder)
        try:
            self._open_files(place)
            self._recover()
        except BaseException:
            self.close()
            raise
        finally:
            os.close(place)
        return self

    def size(self, stream: str) -> int:
        """The number of bytes that the stream has ever had, dropped or not."""
        return self._ends[STREAMS.index(stream)]

    def has_backlog(self, stream: str) -> bool:
        """True if bytes were taken that have no number, because the disk was full.

        The pipe may be empty then: `take` returns them without a new byte in it.
        """
        which = STREAMS.index(stream)
        return self._behind[which] > 0 or which in self._held

    # Writing.

    def take(self, stream: str, fd: int, max_bytes: int) -> Record | None:
        """Move what a pipe holds now, at most *max_bytes*, and record it.

        None if there is nothing now, or if it could not be written (`is_stalled`): then it stays
        in the pipe. Raises EndOfStream at the end of file.
        """
        which = STREAMS.index(stream)
        if not self._behind[which] and which not in self._held:
            while True:
                try:
                    moved = self._move(which, fd, max_bytes)
                    break
                except BlockingIOError:
                    self.is_stalled = False
                    return None
                except OSError as exc:
                    if not self._can_go_on_after(exc):
                        return None
            if not moved:
                self.is_stalled = False
                raise EndOfStream
        return self._settle(which)

    def append(self, stream: str, data: bytes) -> Record | None:
        """Record text of our own; an empty one gets no number.

        None if it could not be written (`is_stalled`). It is remembered then; the next call for
        this stream writes and returns it.
        """
        which = STREAMS.index(stream)
        if not data and which not in self._held:
            return None
        self._held[which] = self._held.get(which, b"") + data
        return self._settle(which)

    def note(self, kind: str, value: int = 0) -> int:
        """Record an event that is not output, and return its number.

        0 if it could not be written (`is_stalled`): nothing was noted then.
        """
        slot = (self.next_seq, value, 0, *self._ends, KINDS.index(kind))
        seq = self._write_slot(slot, RESERVED - len(self.notes.keys() | {kind}))
        if seq:
            self.notes[kind] = Record(seq, kind, value, 0)
            try:
                self._write_header()
            except OSError:
                # The slot has it; the header is for the day when the slot is dropped.
                pass
        return seq

    def _move(self, which: int, fd: int, max_bytes: int) -> int:
        """Move bytes behind the index; 0 at the end of file."""
        at = self._ends[which] - self._shifts[which]
        try:
            moved = os.splice(
                fd, self._data[which], max_bytes, offset_dst=at, flags=os.SPLICE_F_NONBLOCK
            )
        except (AttributeError, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            # This file system or kernel cannot splice. A kill between the two calls loses bytes.
            data = os.read(fd, max_bytes)
            if data:
                self._held[which] = data
            return len(data)
        self._behind[which] = moved
        return moved

    def _settle(self, which: int) -> Record | None:
        """Write what is held of a stream, and record what has no record."""
        while which in self._held:
            data = self._held[which]
            at = self._ends[which] + self._behind[which] - self._shifts[which]
            try:
                written = os.pwrite(self._data[which], data, at)
            except OSError as exc:
                if not self._can_go_on_after(exc):
                    return None
                continue
            self._behind[which] += written
            self._held[which] = data[written:]
            if not self._held[which]:
                del self._held[which]
        return self._record_behind(which, self._behind[which])

    def _record_behind(self, which: int, length: int) -> Record | None:
        ends = self._ends.copy()
        offset = ends[which]
        ends[which] += length
        slot = (self.next_seq, offset, length, *ends, which + 1)
        seq = self._write_slot(slot, RESERVED - len(self.notes))
        if not seq:
            return None
        self._ends = ends
        self._behind[which] -= length
        record = Record(seq, STREAMS[which], offset, length)
        if self.retained_bytes > self._max_bytes or self.next_seq - self._first > self._max_records:
            self.trim(
                self._max_bytes - self._max_bytes // SLACK,
                self._max_records - self._max_records // SLACK,
            )
        return record

    def _write_slot(self, slot: tuple[int, ...], reserve: int) -> int:
        """Write the slot of the next number and *reserve* empty ones; 0 if it is impossible now."""
        data = sealed(SLOT.pack(*slot)) + EMPTY * reserve
        while True:
            at = self._place_of(self.next_seq)
            try:
                if os.pwrite(self._index, data, at) == len(data):
                    break
                # There is no room for the notes. The slot itself lies where there was some.
                os.pwrite(self._index, EMPTY, at)
                raise OSError(errno.ENOSPC, "")
            except OSError as exc:
                if not self._can_go_on_after(exc):
                    return 0
        self.is_stalled = False
        seq = self.next_seq
        self.next_seq = seq + 1
        return seq

    # Recovery.

    def _open_files(self, place: int) -> None:
        names = os.listdir(place)
        if self._streams and is_incomplete(names, place):
            # No one was told of it, so nothing is damaged.
            for name in {"index", *self._streams} - set(names):
                os.close(journal_files.create_file(name, place))
            names = os.listdir(place)
            self._index = open_file("index", place)
            self._begin_index()
        elif "index" in names:
            self._index = open_file("index", place)
        else:
            self._index = journal_files.create_file("index", place)
            self._report("index", 0, "the file is missing")
        self._read_header(names)
        for stream in self._streams:
            which = STREAMS.index(stream)
            found = sorted(shift_of(name) for name in names if name.partition("+")[0] == stream)
            # The newest copy is complete; an older file was about to be removed.
            for shift in found[:-1]:
                os.unlink(data_name(stream, shift), dir_fd=place)
            if found:
                self._shifts[which] = found[-1]
                self._data[which] = open_file(data_name(stream, found[-1]), place)
            else:
                self._data[which] = journal_files.create_file(stream, place)
                self._report(stream, 0, "the file is missing")
        if "new" in names:
            os.unlink("new", dir_fd=place)

    def _read_header(self, names: list[str]) -> None:
        copies = [os.pread(self._index, HEADER.size + CRC.size, at) for at in HEADERS]
        whole = [
            HEADER.unpack(raw[: HEADER.size])[1:]
            for raw in copies
            if is_sealed(raw, HEADER.size) and raw.startswith(MAGIC)
        ]
        self._is_suspect = len(whole) < sum(bool(raw.strip(b"\0")) for raw in copies)
        if whole:
            self._headers, bits, self._slots_from, self._first, self.dropped_bytes, *more = max(
                whole
            )
            self._streams = tuple(name for at, name in enumerate(STREAMS) if bits >> at & 1)
            self._starts = more[:3]
            for kind, seq, value in zip(NOTES, more[3::2], more[4::2], strict=True):
                if seq:
                    self.notes[kind] = Record(seq, kind, value, 0)
            return
        self._streams = tuple(
            stream for stream in STREAMS if any(name.partition("+")[0] == stream for name in names)
        )
        if not self.damage:
            self._report("index", 0, "the header cannot be read")
        self._find_first()

    def _find_first(self) -> None:
        """Take from the slots what the header should have said."""
        size = os.fstat(self._index).st_size
        if size < HEADER_BYTES + SLOT_BYTES:
            os.ftruncate(self._index, 0)
            self._begin_index()
            return
        at = HEADER_BYTES
        while at < size:
            fields = unsealed(os.pread(self._index, SLOT_BYTES, at))
            if fields is not None:
                self._slots_from = fields[0] - (at - HEADER_BYTES) // SLOT_BYTES
                self._first = fields[0]
                self._starts = starts_of(fields)
                return
            at += SLOT_BYTES
            if at % BLOCK == 0:
                at = next_data(self._index, at)

    def _recover(self) -> None:
        """Find the end of the index and of each stream, and record what lies behind the index."""
        size = os.fstat(self._index).st_size
        slots, rest = divmod(max(0, size - HEADER_BYTES), SLOT_BYTES)
        if rest:
            torn = os.pread(self._index, rest, size - rest)
            if torn.strip(b"\0"):
                self._report("index", size - rest, "half a record")
            os.ftruncate(self._index, size - rest)
        least = self._first - self._slots_from
        # The header knows the numbers of the notes, whatever happened to the rest of the file.
        noted = max((note.seq + 1 for note in self.notes.values()), default=0) - self._slots_from
        count = max(slots, least, noted)
        while count > max(least, noted, slots - RESERVED) and self._raw(count - 1) == EMPTY:
            count -= 1
        self.next_seq = self._slots_from + count
        self._ends = self._starts.copy()
        is_whole = not self.damage and not self._is_suspect
        if count > least:
            fields = self._fields(self.next_seq - 1)
            if fields is None:
                is_whole = False
            else:
                self._ends = list(fields[3:6])
                if KINDS[fields[6]] in NOTES:
                    self._remember(fields)
        sizes = self._sizes()
        if not is_whole or any(have < end for have, end in zip(sizes, self._ends, strict=True)):
            self._repair()
        if slots - count < RESERVED - len(self.notes):
            self._report("index", size - rest, "the file was cut off here")
        self._record_all_behind(sizes)

    def _record_all_behind(self, sizes: list[int]) -> None:
        for which, size in enumerate(sizes):
            self._behind[which] = max(0, size - self._ends[which])
        for which in range(len(STREAMS)):
            while self._behind[which]:
                if self._record_behind(which, min(PIECE, self._behind[which])) is None:
                    return

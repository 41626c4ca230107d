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

The module imports the standard library only, and no `typing`: a keeper loads it by its path. It is
long because it is loaded as one file and because recovery needs to know every detail of writing.
"""

from __future__ import annotations

import binascii
import errno
import os
import select
import stat
import struct
from collections import namedtuple

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NamedTuple

    class JournalDamaged(NamedTuple):
        path: str
        at: int
        reason: str

    class RecordFields(NamedTuple):
        seq: int
        kind: str
        offset: int
        length: int
else:
    # What could not be read: the file, the first byte, and in words what is wrong there.
    JournalDamaged = namedtuple("JournalDamaged", "path at reason")
    RecordFields = namedtuple("RecordFields", "seq kind offset length")

STREAMS = ("stdout", "stderr", "pty")
NOTES = ("exited", "closed", "lost")
# The kind in a slot is the place in this tuple. A void slot stands for a damaged one.
KINDS = ("void", *STREAMS, *NOTES)

MAGIC = b"exjrnl1\0"
# There are two headers, which are written in turns, so that one of them is always whole. A header
# is magic, how often one was written, the streams as bits, the number of the first slot, the first
# number that is not dropped, the dropped bytes; the first byte of each stream that is not dropped;
# the number and the value of each note.
HEADER = struct.Struct("<8sQQQQQ3Q" + "Qq" * len(NOTES))
# The number, the offset (or the value of a note), the length, the end of each stream, the kind.
SLOT = struct.Struct("<QqQ3QI8x")
CRC = struct.Struct("<I")
SLOT_BYTES = SLOT.size + CRC.size
HEADERS = (0, 2 * SLOT_BYTES)
HEADER_BYTES = 4 * SLOT_BYTES
RESERVED = len(NOTES)
EMPTY = bytes(SLOT_BYTES)

# Bytes that were found behind the index are given numbers in pieces of this size.
PIECE = 1 << 18
# An eighth is dropped when a bound is reached, so that it is not done for each record.
SLACK = 8
# File systems give space back in whole blocks of this size.
BLOCK = 4096
# So many slots are read at once.
BATCH = 512
FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2
FULL = {errno.ENOSPC, errno.EDQUOT}
FILE_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
# A terminal gives at most so much at once, and less only if it has no more. The kernel takes memory
# for what is asked for. It is asked so often in a row.
TERMINAL_BYTES = 4096
TERMINAL_READS = 8


class EndOfStream(Exception):
    """The last writer has closed the stream, and everything it wrote was taken."""


class Record(RecordFields):
    """One number: output at *offset* of its stream's file, or a note with a value."""

    __slots__ = ()

    @property
    def value(self) -> int:
        """What was noted with an exited, closed or lost."""
        return self.offset


class Journal:
    """The output of one job in *folder*, at most *max_bytes* of it in *max_records*.

    Whole records are dropped from the oldest on. Records from the number `keep_from` on are never
    dropped; a job with a window waits instead.
    """

    __slots__ = (
        "_behind",
        "_can_punch",
        "_data",
        "_ends",
        "_first",
        "_folder",
        "_headers",
        "_held",
        "_index",
        "_is_suspect",
        "_max_bytes",
        "_max_records",
        "_shifts",
        "_slots_from",
        "_starts",
        "_streams",
        "damage",
        "dropped_bytes",
        "is_stalled",
        "keep_from",
        "next_seq",
        "notes",
        "stall_reason",
    )

    def __init__(
        self, folder: str, streams: tuple[str, ...], max_bytes: int, max_records: int
    ) -> None:
        self._folder = folder
        self._streams = streams
        self._max_bytes = max_bytes
        self._max_records = max_records
        # Descriptors of the index and, by the place in STREAMS, of the data.
        self._index = -1
        self._data = [-1, -1, -1]
        # The file of a stream begins with this byte of the stream.
        self._shifts = [0, 0, 0]
        # The first retained byte of each stream, the end of its last record, and how many bytes
        # in the file have no record yet.
        self._starts = [0, 0, 0]
        self._ends = [0, 0, 0]
        self._behind = [0, 0, 0]
        # Bytes that could neither be spliced nor written, of streams that have some.
        self._held: dict[int, bytes] = {}
        # The number of the first slot in the file, and the first number that is not dropped.
        self._slots_from = 1
        self._first = 1
        # How many headers were written, and True if one of the two in the file is damaged.
        self._headers = 0
        self._is_suspect = False
        self._can_punch = True
        self.next_seq = 1
        self.dropped_bytes = 0
        self.notes: dict[str, Record] = {}
        self.damage: list[JournalDamaged] = []
        self.keep_from: int | None = None
        # True if the last call could not write, and for which reason: try again later.
        self.is_stalled = False
        self.stall_reason = ""

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
        place = open_folder(folder)
        try:
            for stream in streams:
                self._data[STREAMS.index(stream)] = create_file(stream, place)
            self._index = create_file("index", place)
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
        place = open_folder(folder)
        try:
            self._open_files(place)
            self._recover()
        except BaseException:
            self.close()
            raise
        finally:
            os.close(place)
        return self

    @property
    def dropped_seq(self) -> int:
        """The last number that was dropped; 0 if none was."""
        return self._first - 1

    @property
    def retained_bytes(self) -> int:
        return sum(self._ends) - self.dropped_bytes

    def size(self, stream: str) -> int:
        """The number of bytes that the stream has ever had, dropped or not."""
        return self._ends[STREAMS.index(stream)]

    def has_backlog(self, stream: str) -> bool:
        """True if bytes were taken that have no number, because the disk was full.

        The pipe may be empty then: `take` returns them without a new byte in it.
        """
        which = STREAMS.index(stream)
        return self._behind[which] > 0 or which in self._held

    def close(self) -> None:
        """Close all files; a second call does nothing."""
        fds = [fd for fd in (self._index, *self._data) if fd >= 0]
        self._index, self._data = -1, [-1, -1, -1]
        for fd in fds:
            os.close(fd)

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

    def _place_of(self, seq: int) -> int:
        return HEADER_BYTES + (seq - self._slots_from) * SLOT_BYTES

    def _begin_index(self) -> None:
        self._write_header()
        write_whole(self._index, EMPTY * RESERVED, HEADER_BYTES)

    def _write_header(self) -> None:
        bits = sum(1 << STREAMS.index(stream) for stream in self._streams)
        noted = [self.notes.get(kind) for kind in NOTES]
        notes = [
            number for note in noted for number in ((note.seq, note.value) if note else (0, 0))
        ]
        fields = (bits, self._slots_from, self._first, self.dropped_bytes, *self._starts, *notes)
        data = sealed(HEADER.pack(MAGIC, self._headers + 1, *fields))
        write_whole(self._index, data, HEADERS[self._headers % 2])
        self._headers += 1

    # A full disk, and bounds.

    def _can_go_on_after(self, exc: OSError) -> bool:
        """True if the oldest output was dropped, so that there is room again on a full disk."""
        if exc.errno == errno.EBADF:
            raise exc
        if exc.errno in FULL and self._make_room():
            return True
        self.is_stalled = True
        self.stall_reason = os.strerror(exc.errno or 0)
        return False

    def _make_room(self) -> bool:
        """Drop half of what is retained, or all; False if that frees no block of the disk."""
        limit = self.next_seq if self.keep_from is None else min(self.keep_from, self.next_seq)
        half = self._cut(self.retained_bytes // 2, self.next_seq, limit)
        for first in (half, limit) if self._can_punch else (limit,):
            if first > self._first and self._frees_blocks(first):
                return self._drop_before(first)
        return False

    def _frees_blocks(self, first: int) -> bool:
        starts = self._starts_at(first)
        return self._place_of(first) // BLOCK > self._place_of(self._first) // BLOCK or any(
            new // BLOCK > old // BLOCK for old, new in zip(self._starts, starts, strict=True)
        )

    def trim(self, keep_bytes: int, keep_records: int | None = None) -> int:
        """Drop the oldest records beyond these bounds, never the newest; returns the bytes."""
        before = self.dropped_bytes
        limit = self.next_seq - 1
        if self.keep_from is not None:
            limit = min(limit, self.keep_from)
        count = self.next_seq if keep_records is None else keep_records
        first = self._cut(keep_bytes, count, limit)
        if first > self._first:
            self._drop_before(first)
        return self.dropped_bytes - before

    def _cut(self, keep_bytes: int, keep_records: int, limit: int) -> int:
        """The number of the first record to keep, *limit* at most."""
        low = max(self._first, min(limit, self.next_seq - keep_records))
        high = max(low, limit)
        total = sum(self._ends)
        while low < high:
            middle = (low + high) // 2
            if total - sum(self._starts_at(middle)) <= keep_bytes:
                high = middle
            else:
                low = middle + 1
        return low

    def _starts_at(self, seq: int) -> list[int]:
        """The first byte of each stream that is retained if *seq* is the first number."""
        if seq >= self.next_seq:
            return self._ends.copy()
        fields = self._fields(seq)
        if fields is None:
            self._repair()
            fields = self._fields(seq)
            # A disk that cannot be repaired, either.
            if fields is None:
                return self._starts.copy()
        return starts_of(fields)

    def _fields(self, seq: int) -> tuple[int, ...] | None:
        return unsealed(os.pread(self._index, SLOT_BYTES, self._place_of(seq)), seq)

    def _drop_before(self, first: int) -> bool:
        """Forget the records before *first*; True if the header could be written."""
        starts = self._starts_at(first)
        old = self._first, self._starts, self.dropped_bytes
        self.dropped_bytes += self._bytes_before(first, starts)
        self._first, self._starts = first, starts
        try:
            self._write_header()
        except OSError as exc:
            self._first, self._starts, self.dropped_bytes = old
            self.stall_reason = os.strerror(exc.errno or 0)
            return False
        self._release()
        return True

    def _bytes_before(self, first: int, starts: list[int]) -> int:
        if self.dropped_bytes == sum(self._starts):
            return sum(starts) - sum(self._starts)
        # Some bytes between the records were lost to damage, and are counted already.
        return sum(fields[2] for seq in range(self._first, first) if (fields := self._fields(seq)))

    def _release(self) -> None:
        """Give the space of dropped records back to the disk."""
        for stream in self._streams:
            which = STREAMS.index(stream)
            dropped = self._starts[which] - self._shifts[which]
            if not self._punch(self._data[which], 0, dropped):
                kept = self._ends[which] + self._behind[which] - self._starts[which]
                if dropped > kept:
                    self._replace_data(which)
        if not self._punch(self._index, HEADER_BYTES, self._place_of(self._first)):
            if self._first - self._slots_from > self.next_seq - self._first:
                self._replace_index()

    def _punch(self, fd: int, begin: int, end: int) -> bool:
        """False if the file system has no holes."""
        if self._can_punch and end > begin:
            self._can_punch = punch_hole(fd, begin, end - begin)
        return self._can_punch

    def _replace_data(self, which: int) -> None:
        """Copy what is retained into a new file, whose name says with which byte it begins."""
        start, stream = self._starts[which], STREAMS[which]
        size = self._ends[which] + self._behind[which] - start
        new = self._replacement(
            f"{stream}+{start}", self._data[which], start - self._shifts[which], size
        )
        if new >= 0:
            old = data_name(stream, self._shifts[which])
            os.close(self._data[which])
            self._data[which], self._shifts[which] = new, start
            try:
                os.unlink(os.path.join(self._folder, old))
            except OSError:
                # The next process that opens the journal removes it.
                pass

    def _replace_index(self) -> None:
        before = self._slots_from
        begin = self._place_of(self._first)
        size = (self.next_seq - self._first + RESERVED) * SLOT_BYTES
        old, new = self._index, -1
        try:
            place = open_folder(self._folder)
        except OSError:
            # This process has too many descriptors, for example. The next bound tries it again.
            return
        self._slots_from = self._first
        try:
            new = create_file("new", place)
            copy(old, begin, new, HEADER_BYTES, size)
            self._index = new
            self._write_header()
            os.rename("new", "index", src_dir_fd=place, dst_dir_fd=place)
            os.close(old)
        except OSError:
            self._index, self._slots_from = old, before
            if new >= 0:
                os.close(new)
                os.unlink("new", dir_fd=place)
        finally:
            os.close(place)

    def _replacement(self, name: str, fd: int, begin: int, size: int) -> int:
        """A new file *name* with a part of *fd*; -1 if that is impossible now."""
        new = -1
        try:
            place = open_folder(self._folder)
        except OSError:
            return -1
        try:
            new = create_file("new", place)
            copy(fd, begin, new, 0, size)
            os.rename("new", name, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            if new >= 0:
                os.close(new)
                os.unlink("new", dir_fd=place)
            return -1
        finally:
            os.close(place)
        return new

    # Reading.

    def read(self, record: Record) -> bytes:
        """The output of a record; empty for a note, and if the record was dropped meanwhile."""
        if not record.length or record.seq < self._first:
            return b""
        which = STREAMS.index(record.kind)
        return os.pread(self._data[which], record.length, record.offset - self._shifts[which])

    def records(self, after: int = 0) -> Iterator[Record]:
        """What is retained after the number *after*, and notes even if their place was dropped."""
        for note in sorted(self.notes.values()):
            if after < note.seq < self._first:
                yield note
        seq = max(after + 1, self._first)
        is_repaired = False
        while seq < self.next_seq:
            count = min(BATCH, self.next_seq - seq)
            batch = os.pread(self._index, count * SLOT_BYTES, self._place_of(seq))
            for at in range(0, count * SLOT_BYTES, SLOT_BYTES):
                fields = unsealed(batch[at : at + SLOT_BYTES], seq)
                if fields is None and not is_repaired and seq >= self._first:
                    is_repaired = True
                    self._repair()
                    break
                if fields is not None and fields[6] and seq >= self._first:
                    yield Record(seq, KINDS[fields[6]], fields[1], fields[2])
                seq += 1

    # Recovery.

    def _open_files(self, place: int) -> None:
        names = os.listdir(place)
        if self._streams and is_incomplete(names, place):
            # No one was told of it, so nothing is damaged.
            for name in {"index", *self._streams} - set(names):
                os.close(create_file(name, place))
            names = os.listdir(place)
            self._index = open_file("index", place)
            self._begin_index()
        elif "index" in names:
            self._index = open_file("index", place)
        else:
            self._index = create_file("index", place)
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
                self._data[which] = create_file(stream, place)
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

    def _raw(self, slot: int) -> bytes:
        return os.pread(self._index, SLOT_BYTES, HEADER_BYTES + slot * SLOT_BYTES)

    def _remember(self, fields: tuple[int, ...]) -> None:
        kind = KINDS[fields[6]]
        self.notes.setdefault(kind, Record(fields[0], kind, fields[1], 0))

    def _sizes(self) -> list[int]:
        """The end of each stream as its file has it."""
        return [
            os.fstat(fd).st_size + shift if fd >= 0 else 0
            for fd, shift in zip(self._data, self._shifts, strict=True)
        ]

    def _record_all_behind(self, sizes: list[int]) -> None:
        for which, size in enumerate(sizes):
            self._behind[which] = max(0, size - self._ends[which])
        for which in range(len(STREAMS)):
            while self._behind[which]:
                if self._record_behind(which, min(PIECE, self._behind[which])) is None:
                    return

    def _repair(self) -> None:
        """Make every slot readable: what is damaged becomes void, and what is missing shorter.

        It is done in place, because the disk may be full. Numbers stay where they are.
        """
        sizes = self._sizes()
        ends = self._starts.copy()
        kept = 0
        bad: list[int] = []
        better: list[tuple[int, ...]] = []
        for seq in range(self._first, self.next_seq):
            fields = self._fields(seq)
            if fields is None:
                bad.append(seq)
                better.append((seq, 0, 0, *ends, 0))
                continue
            ends = list(fields[3:6])
            _, offset, length, *_, kind = fields
            if KINDS[kind] in NOTES:
                self._remember(fields)
            elif length and offset + length > sizes[kind - 1]:
                length = max(0, sizes[kind - 1] - offset)
                better.append((seq, offset, length, *ends, kind if length else 0))
            kept += length
        self._ends = ends
        self.dropped_bytes = sum(ends) - kept
        for first, last in runs(bad):
            text = f"the records {first} to {last} cannot be read"
            self._report("index", self._place_of(first), text)
        self._write_repaired(better, sizes)

    def _write_repaired(self, slots: list[tuple[int, ...]], sizes: list[int]) -> None:
        try:
            for slot in slots:
                os.pwrite(self._index, sealed(SLOT.pack(*slot)), self._place_of(slot[0]))
            self._extend_data(sizes)
            self._write_header()
        except OSError as exc:
            self.is_stalled = True
            self.stall_reason = os.strerror(exc.errno or 0)

    def _extend_data(self, sizes: list[int]) -> None:
        """Let what comes next begin where the index says; the gap is never read."""
        for which, size in enumerate(sizes):
            missing = self._ends[which] - size
            if missing > 0:
                self._report(STREAMS[which], size, f"{missing} bytes are missing")
                os.ftruncate(self._data[which], self._ends[which] - self._shifts[which])

    def _report(self, name: str, at: int, reason: str) -> None:
        self.damage.append(JournalDamaged(os.path.join(self._folder, name), at, reason))


def take_terminal(
    journal: Journal, master: int, pipe: tuple[int, int], max_bytes: int
) -> Record | None:
    """Move what a terminal has written through *pipe*, whose ends are both ours, and record it.

    Like `Journal.take`. What another process left in the pipe comes first. All three descriptors
    are non-blocking.
    """
    reader, writer = pipe
    is_ended = False
    try:
        for _ in range(TERMINAL_READS):
            if fill_from_terminal(master, writer) < TERMINAL_BYTES // 2:
                break
    except EndOfStream:
        is_ended = True
    record = journal.take("pty", reader, max_bytes)
    if record is None and is_ended and not journal.is_stalled:
        raise EndOfStream
    return record


def fill_from_terminal(master: int, writer: int) -> int:
    """Move bytes from a terminal into a pipe; 0 if there are none now, or no room."""
    try:
        moved = os.splice(master, writer, TERMINAL_BYTES, flags=os.SPLICE_F_NONBLOCK)
    except BlockingIOError:
        return 0
    except OSError as exc:
        # Linux reports EIO once the last holder of a terminal has closed it.
        if exc.errno == errno.EIO:
            raise EndOfStream from exc
        if exc.errno != errno.EINVAL:
            raise
        return copy_from_terminal(master, writer)
    if not moved:
        raise EndOfStream
    return moved


def copy_from_terminal(master: int, writer: int) -> int:
    """The same for a kernel that cannot splice terminals; a kill between the two calls loses bytes.

    A pipe that is writable has room for PIPE_BUF bytes.
    """
    poll = select.poll()
    poll.register(writer, select.POLLOUT)
    if not poll.poll(0):
        return 0
    try:
        data = os.read(master, select.PIPE_BUF)
    except BlockingIOError:
        return 0
    except OSError as exc:
        if exc.errno == errno.EIO:
            raise EndOfStream from exc
        raise
    if not data:
        raise EndOfStream
    return os.write(writer, data)


def sealed(data: bytes) -> bytes:
    return data + CRC.pack(binascii.crc32(data))


def is_sealed(raw: bytes, size: int) -> bool:
    return len(raw) == size + CRC.size and raw[size:] == CRC.pack(binascii.crc32(raw[:size]))


def unsealed(raw: bytes, seq: int | None = None) -> tuple[int, ...] | None:
    """The fields of a slot; None if it is damaged or belongs to another number than *seq*."""
    if not is_sealed(raw, SLOT.size):
        return None
    fields = SLOT.unpack(raw[: SLOT.size])
    return fields if fields[6] < len(KINDS) and seq in (None, fields[0]) else None


def starts_of(fields: tuple[int, ...]) -> list[int]:
    """The first byte of each stream that is retained if this slot is the first one."""
    starts = list(fields[3:6])
    if KINDS[fields[6]] in STREAMS:
        starts[fields[6] - 1] = fields[1]
    return starts


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def is_incomplete(names: list[str], place: int) -> bool:
    """True if what is there was not written completely, and no output has come."""
    sizes = {name: os.stat(name, dir_fd=place, follow_symlinks=False).st_size for name in names}
    if any(sizes[name] for name in names if name.partition("+")[0] in STREAMS):
        return False
    # The first header is all that is written before the reserve.
    return sizes.get("index", 0) in (0, HEADER.size + CRC.size)


def data_name(stream: str, shift: int) -> str:
    return f"{stream}+{shift}" if shift else stream


def shift_of(name: str) -> int:
    digits = name.partition("+")[2]
    return int(digits) if digits.isdigit() else 0


def next_data(fd: int, at: int) -> int:
    """The first byte from *at* on that is in no hole."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as exc:
        return os.fstat(fd).st_size if exc.errno == errno.ENXIO else at


def copy(source: int, begin: int, target: int, at: int, size: int) -> None:
    while size > 0:
        data = os.pread(source, min(size, PIECE), begin)
        if not data:
            break
        while data:
            written = os.pwrite(target, data, at)
            begin, at, size = begin + written, at + written, size - written
            data = data[written:]


def write_whole(fd: int, data: bytes, at: int) -> None:
    if os.pwrite(fd, data, at) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def open_folder(folder: str | os.PathLike[str]) -> int:
    """A descriptor of a folder that is only ours; refuses all others, and symbolic links."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return checked(place, folder, stat.S_ISDIR)


def create_file(name: str, place: int) -> int:
    fd = os.open(name, FILE_FLAGS | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=place)
    # A strange umask must not lock us out.
    os.fchmod(fd, 0o600)
    return fd


def open_file(name: str, place: int) -> int:
    return checked(os.open(name, FILE_FLAGS, dir_fd=place), name, stat.S_ISREG)


def checked(fd: int, path: str | os.PathLike[str], is_kind: Callable[[int], bool]) -> int:
    """The same descriptor, if what it is belongs to us and no one else may open it."""
    found = os.fstat(fd)
    if is_kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
        return fd
    os.close(fd)
    raise PermissionError(errno.EPERM, "is not a private file of this user", os.fspath(path))


_fallocate: Any = None


def punch_hole(fd: int, begin: int, size: int) -> bool:
    """Free a part of a file, which keeps its size; False if the system cannot do that."""
    global _fallocate
    import ctypes

    if _fallocate is None:
        try:
            library = ctypes.CDLL(None, use_errno=True)
            _fallocate = getattr(library, "fallocate64", None) or library.fallocate
        except (AttributeError, OSError):
            return False
        _fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if _fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, size) == 0:
        return True
    return ctypes.get_errno() not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

"""What is known of a journal: its files, its header, its slots; and the repair of damaged ones."""

from __future__ import annotations

import os

from exec_server.process.journaling.journal_files import write_whole
from exec_server.process.journaling.journal_format import (
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
    JournalDamaged,
    Record,
    sealed,
    unsealed,
)

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# So many slots are read at once.
BATCH = 512


class JournalIndex:
    """The index of a journal in *folder*, with everything that is known of its streams."""

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

    @property
    def dropped_seq(self) -> int:
        """The last number that was dropped; 0 if none was."""
        return self._first - 1

    @property
    def retained_bytes(self) -> int:
        return sum(self._ends) - self.dropped_bytes

    def close(self) -> None:
        """Close all files; a second call does nothing."""
        fds = [fd for fd in (self._index, *self._data) if fd >= 0]
        self._index, self._data = -1, [-1, -1, -1]
        for fd in fds:
            os.close(fd)

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

    def _fields(self, seq: int) -> tuple[int, ...] | None:
        return unsealed(os.pread(self._index, SLOT_BYTES, self._place_of(seq)), seq)

    def _raw(self, slot: int) -> bytes:
        return os.pread(self._index, SLOT_BYTES, HEADER_BYTES + slot * SLOT_BYTES)

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

    # Repair.

    def _sizes(self) -> list[int]:
        """The end of each stream as its file has it."""
        return [
            os.fstat(fd).st_size + shift if fd >= 0 else 0
            for fd, shift in zip(self._data, self._shifts, strict=True)
        ]

    def _remember(self, fields: tuple[int, ...]) -> None:
        kind = KINDS[fields[6]]
        self.notes.setdefault(kind, Record(fields[0], kind, fields[1], 0))

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
        for first, last in _runs(bad):
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


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found

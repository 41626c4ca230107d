"""The bytes of a journal's index: headers, slots and kinds of records."""

from __future__ import annotations

import binascii
import struct
from collections import namedtuple

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

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


class EndOfStream(Exception):
    """The last writer has closed the stream, and everything it wrote was taken."""


class Record(RecordFields):
    """One number: output at *offset* of its stream's file, or a note with a value."""

    __slots__ = ()

    @property
    def value(self) -> int:
        """What was noted with an exited, closed or lost."""
        return self.offset


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


def data_name(stream: str, shift: int) -> str:
    return f"{stream}+{shift}" if shift else stream


def shift_of(name: str) -> int:
    digits = name.partition("+")[2]
    return int(digits) if digits.isdigit() else 0

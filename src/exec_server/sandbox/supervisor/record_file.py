"""The records of a durable command in a file, which its supervisor writes and any server reads.

The keeper loads this file by its path, so it imports the standard library only.

A file begins with numbers of eight bytes: how many refusals belong to no record, how many calls
could not be read, and how often each record was tried. So a count is one write of its own, and true
at every moment. The records follow; one that its writer could not finish is left out.
"""

from __future__ import annotations

import os
import struct

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Fields = tuple[str, str, bytes, str, str, bool, int, int, bytes]

_NUMBER = struct.Struct("=Q")
_LENGTH = struct.Struct("=I")
_TOTALS = 2
# judge.py has the same.
_MOST_RECORDS = 256
_MOST_TRIES = 1 << 48
_RECORDS_AT = 4096
# A record has two paths at most, and some words.
_MOST_BYTES = 16 * 1024


class RecordFile:
    """The writer's end of the open file *fd*. A full disk loses records, and nothing else."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = _RECORDS_AT
        self._write(b"\0" * _RECORDS_AT, 0)

    def add(self, number: int, fields: Fields) -> None:
        """Write record *number*, from 1 on, which has the count 1."""
        data = b"".join(_LENGTH.pack(len(each)) + each for each in map(_bytes, fields))
        # The count first: a reader that finds the record finds it, too.
        self.count(number, 1)
        if self._write(_LENGTH.pack(len(data)) + data, self._end):
            self._end += _LENGTH.size + len(data)

    def count(self, number: int, count: int) -> None:
        if number <= _MOST_RECORDS:
            self._write(_NUMBER.pack(count), (_TOTALS + number - 1) * _NUMBER.size)

    def totals(self, unlisted: int, unseen: int) -> None:
        self._write(_NUMBER.pack(unlisted) + _NUMBER.pack(unseen), 0)

    def _write(self, data: bytes, at: int) -> bool:
        try:
            return os.pwrite(self._fd, data, at) == len(data)
        except OSError:
            return False


def _bytes(field: object) -> bytes:
    if isinstance(field, bytes):
        return field
    return str(int(field) if isinstance(field, bool) else field).encode()


def read_records(path: str | os.PathLike[str]) -> tuple[list[Fields], int, int]:
    """All records with their counts, the unlisted refusals and the unseen calls. Raises OSError."""
    with open(path, "rb") as file:
        data = file.read(_RECORDS_AT + _MOST_RECORDS * _MOST_BYTES)
    if len(data) < _RECORDS_AT:
        return [], 0, 0
    records = []
    for number, parts in enumerate(_records(data)):
        try:
            records.append(_fields(parts, _number(data, _TOTALS + number)))
        except ValueError:
            break
    return records, _number(data, 0), _number(data, 1)


def read_total(path: str | os.PathLike[str]) -> int:
    """How often something was refused. Unlike the records, this is read at once. Raises OSError."""
    with open(path, "rb") as file:
        data = file.read(_RECORDS_AT)
    if len(data) < _RECORDS_AT:
        return 0
    # The number of unseen calls counts no refusals.
    counts = (_number(data, _TOTALS + index) for index in range(_MOST_RECORDS))
    return _number(data, 0) + sum(counts)


def _number(data: bytes, index: int) -> int:
    value: int = _NUMBER.unpack_from(data, index * _NUMBER.size)[0]
    # Whatever a damaged file says, the sum of all is a number of 64 bits.
    return min(value, _MOST_TRIES)


def _records(data: bytes) -> Iterator[list[bytes]]:
    at = _RECORDS_AT
    for _ in range(_MOST_RECORDS):
        record, at = _part(data, at)
        if not record:
            return
        parts, inner = [], 0
        while inner < len(record):
            part, inner = _part(record, inner)
            if part is None:
                return
            parts.append(part)
        yield parts


def _part(data: bytes, at: int) -> tuple[bytes | None, int]:
    """What follows its own length at *at*, and the place behind it; None if it is not complete."""
    if at + _LENGTH.size > len(data):
        return None, at
    (length,) = _LENGTH.unpack_from(data, at)
    end = at + _LENGTH.size + length
    return (None, at) if end > len(data) else (data[at + _LENGTH.size : end], end)


def _fields(parts: list[bytes], count: int) -> Fields:
    denial_id, kind, target, operation, rule, is_grantable, _, pid, exe = parts
    words = [each.decode("ascii") for each in (denial_id, kind, operation, rule)]
    return (
        words[0],
        words[1],
        target,
        words[2],
        words[3],
        is_grantable == b"1",
        count,
        int(pid),
        exe,
    )

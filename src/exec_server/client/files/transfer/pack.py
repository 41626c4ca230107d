"""Write and read tar archives of small files.

tarfile is more than ten times slower; `python bench/pack.py` measures both.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from exec_server.client.files.transfer.tree import TreeEntry
from exec_server.errors import ProtocolError

_BLOCK = 512
END = bytes(2 * _BLOCK)

_FILE, _LINK, _DIRECTORY = b"0", b"2", b"5"
_LONG_NAME, _LONG_TARGET, _EXTENDED = b"L", b"K", b"x"
_TYPES = {"file": _FILE, "symlink": _LINK, "directory": _DIRECTORY}
_NAME_BYTES = 100
# The largest number that fits into an octal field: 33 bits.
_MAX_NUMBER = 0o77777777777


def member(entry: TreeEntry, *, mode: int) -> bytes:
    """The headers of *entry*; its content follows, and then `padding`."""
    name = b"./" + entry.path
    kind = _TYPES[entry.kind]
    size = entry.size if kind == _FILE else 0
    seconds, nanoseconds = divmod(entry.mtime_ns, 1_000_000_000)
    parts = []
    if nanoseconds or not 0 <= seconds <= _MAX_NUMBER:
        parts.append(_exact_time(seconds, nanoseconds))
    if len(name) > _NAME_BYTES:
        parts.append(_long(_LONG_NAME, name))
    if len(entry.target) > _NAME_BYTES:
        parts.append(_long(_LONG_TARGET, entry.target))
    seconds = min(max(seconds, 0), _MAX_NUMBER)
    parts.append(_header(name, kind, mode, size, seconds, entry.target))
    return b"".join(parts)


def padding(size: int) -> bytes:
    """The bytes that fill the last block of a content."""
    return bytes(-size % _BLOCK)


def _header(
    name: bytes, kind: bytes, mode: int, size: int, seconds: int, target: bytes = b""
) -> bytes:
    name, target = name[:_NAME_BYTES], target[:_NAME_BYTES]
    # The fields are mode, owner, group, size and time. The user that unpacks becomes the owner.
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, seconds)
    # The checksum is the sum of all bytes, with its own field counted as eight blanks.
    total = sum(name) + sum(numbers) + 8 * 32 + kind[0] + sum(target) + sum(b"ustar00")
    return b"%b%b%06o\0 %b%bustar\x0000%b" % (
        name.ljust(_NAME_BYTES, b"\0"),
        numbers,
        total,
        kind,
        target.ljust(_NAME_BYTES, b"\0"),
        _REST,
    )


_REST = bytes(_BLOCK - 265)


def _exact_time(seconds: int, nanoseconds: int) -> bytes:
    """An extended header for a time with a fraction, or one that does not fit into octal."""
    if seconds < 0 and nanoseconds:
        seconds, nanoseconds = seconds + 1, 1_000_000_000 - nanoseconds
        value = b"-%d.%09d" % (-seconds, nanoseconds)
    else:
        value = b"%d.%09d" % (seconds, nanoseconds)
    record = b" mtime=%b\n" % value
    size = len(record) + 2
    return _extended_header(size) + (b"%d%b" % (size, record)).ljust(_BLOCK, b"\0")


@lru_cache(maxsize=8)
def _extended_header(size: int) -> bytes:
    return _header(b"time", _EXTENDED, 0o644, size, 0)


def _long(kind: bytes, text: bytes) -> bytes:
    """A name or target that does not fit into a header, as GNU tar writes it."""
    data = text + b"\0"
    return _header(b"././@LongLink", kind, 0o644, len(data), 0) + data + padding(len(data))


class Unpacker:
    """Takes the bytes of an archive of regular files, in any pieces, and yields those files.

    Raises ProtocolError for anything else, and for files larger than *limit*.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._long_name: bytes | None = None
        self._is_ended = False

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The paths and contents of the files that *data* completes."""
        self._buffer += data
        position = 0
        while not self._is_ended and len(self._buffer) - position >= _BLOCK:
            head = bytes(self._buffer[position : position + _BLOCK])
            if head == END[:_BLOCK]:
                self._is_ended = True
                break
            size = self._size(head)
            start = position + _BLOCK
            end = start + size + -size % _BLOCK
            if len(self._buffer) < end:
                break
            position = end
            found = self._take(head, start, size)
            if found is not None:
                yield found
        del self._buffer[: len(self._buffer) if self._is_ended else position]

    def _size(self, head: bytes) -> int:
        try:
            size = int(head[124:136].rstrip(b"\0 ") or b"0", 8)
        except ValueError:
            size = -1
        if not 0 <= size <= self._limit or head[257:262] != b"ustar":
            raise ProtocolError("not an archive of small files")
        return size

    def _take(self, head: bytes, start: int, size: int) -> tuple[bytes, bytes] | None:
        kind = head[156:157]
        data = bytes(self._buffer[start : start + size])
        if kind == _LONG_NAME:
            self._long_name = data.rstrip(b"\0")
            return None
        name, self._long_name = self._long_name or head[:100].rstrip(b"\0"), None
        if kind not in (_FILE, b"\0"):
            return None
        return name.removeprefix(b"./"), data

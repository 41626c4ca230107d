"""fs/readDirectory, and the encoding of long lists as JSON."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

from exec_server.errors import InternalError
from exec_server.files.operations.content import IsCancelled
from exec_server.files.operations.oserrors import lossy
from exec_server.protocol.method import Encoded

# Encoding keeps the interpreter's lock. This number of entries takes 0.1 ms.
_BATCH = 1000

_encode = msgspec.json.Encoder().encode
# Characters that a JSON string cannot contain as they are: those that need a backslash, and the
# surrogates in place of bytes that are not UTF-8.
_UNFIT = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')


class GrowingJsonList:
    """A JSON array that is encoded in batches while it grows."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._batch: list[Any] = []
        self.append: Callable[[Any], None] = self._batch.append

    def rest(self) -> None:
        """Encode the new items if there are many. The owner calls this now and then."""
        if len(self._batch) >= _BATCH:
            self._flush()

    def parts(self) -> list[bytes]:
        """The whole array, in pieces."""
        self._flush()
        return [b"[", *self._parts, b"]"]

    def _flush(self) -> None:
        for start in range(0, len(self._batch), _BATCH):
            inner = _encode(self._batch[start : start + _BATCH])[1:-1]
            self._parts.append(b"," + inner if self._parts else inner)
        self._batch.clear()


# The text after a name in the answer, by the kind of the entry.
_FILE = b'","isDirectory":false,"isFile":true}'
_DIRECTORY = b'","isDirectory":true,"isFile":false}'
_OTHER = b'","isDirectory":false,"isFile":false}'


def read_directory(path: bytes, limit: int, is_cancelled: IsCancelled) -> Encoded:
    """The names in a directory. A link has the kind of its target; dangling links are left out.

    Neighbours mostly have the same kind and are written together, which takes half of the time of
    one object for each.
    """
    parts: list[bytes] = []
    count = 0
    with os.scandir(os.fsdecode(path)) as found:
        while (batch := list(islice(found, _BATCH))) and not is_cancelled():
            for kind, names in _runs(batch):
                count += len(names)
                if count <= limit:
                    parts += (b"," if parts else b"", _described(names, kind))
    if count > limit:
        raise InternalError(f"fs/readDirectory returned {count} entries; limit is {limit}")
    return Encoded((b'{"entries":[', b"".join(parts), b"]}"))


def _runs(entries: list[os.DirEntry[str]]) -> Iterator[tuple[bytes, list[str]]]:
    """Groups of neighbours with the same kind, without dangling links."""
    current: bytes | None = None
    names: list[str] = []
    for entry in entries:
        kind = _FILE if entry.is_file(follow_symlinks=False) else _kind(entry)
        if kind is not current:
            if current is not None and names:
                yield current, names
            current, names = kind, []
        names.append(entry.name)
    if current is not None and names:
        yield current, names


def _described(names: list[str], kind: bytes) -> bytes:
    """The JSON of the entries of *names*, made by one replacement of the separator."""
    joined = "/".join(names)
    if _UNFIT.search(joined):
        joined = "/".join(_encode(lossy(os.fsencode(name)))[1:-1].decode() for name in names)
    return b'{"fileName":"' + joined.encode().replace(b"/", kind + b',{"fileName":"') + kind


def _kind(entry: os.DirEntry[str]) -> bytes | None:
    """The kind of an entry that is no regular file; None for a dangling link."""
    if not entry.is_symlink():
        return _DIRECTORY if entry.is_dir(follow_symlinks=False) else _OTHER
    try:
        mode = entry.stat().st_mode
    except OSError:
        return None
    return _DIRECTORY if stat.S_ISDIR(mode) else _FILE if stat.S_ISREG(mode) else _OTHER

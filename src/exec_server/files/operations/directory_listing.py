"""fs/readDirectory, and the way in which long lists become JSON."""

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

# Encoding keeps the interpreter's lock; so many take a tenth of a millisecond.
_BATCH = 1000

_encode = msgspec.json.Encoder().encode
# What cannot stand in a JSON string: what needs a backslash, and the surrogates that stand for
# bytes which are not UTF-8.
_UNFIT = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')


class GrowingJsonList:
    """A JSON array that is encoded while it grows, so that no step of it takes long."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._batch: list[Any] = []
        self.append: Callable[[Any], None] = self._batch.append

    def rest(self) -> None:
        """Encode what has come since the last time, if it is much. To be called now and then."""
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


# What follows a name in the answer, by what it is the name of.
_FILE = b'","isDirectory":false,"isFile":true}'
_DIRECTORY = b'","isDirectory":true,"isFile":false}'
_OTHER = b'","isDirectory":false,"isFile":false}'


def read_directory(path: bytes, limit: int, is_cancelled: IsCancelled) -> Encoded:
    """The names in a directory; links count as what they lead to, or not at all.

    Neighbours are most often of one kind, and written in one go: that takes half of the time
    that an object for each would.
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
    """Names of one kind that follow one another; those of links to nowhere are left out."""
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
    """The entries of *names*, which are joined by what is in none of them."""
    joined = "/".join(names)
    if _UNFIT.search(joined):
        joined = "/".join(_encode(lossy(os.fsencode(name)))[1:-1].decode() for name in names)
    return b'{"fileName":"' + joined.encode().replace(b"/", kind + b',{"fileName":"') + kind


def _kind(entry: os.DirEntry[str]) -> bytes | None:
    """What an entry that is no file is; None for a link to nowhere."""
    if not entry.is_symlink():
        return _DIRECTORY if entry.is_dir(follow_symlinks=False) else _OTHER
    try:
        mode = entry.stat().st_mode
    except OSError:
        return None
    return _DIRECTORY if stat.S_ISDIR(mode) else _FILE if stat.S_ISREG(mode) else _OTHER

"""Other paths of a file, where the host has mounted a part of a file system more than once.

A rule is about a path. If the directory is bound to a second path, a command could reach the file
there, so the plan follows each restriction to all paths of its file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from exec_server.sandbox.guard import lines_of, unescaped
from exec_server.sandbox.policy import is_within

_TABLE = "/proc/self/mountinfo"
_READ_BYTES = 1 << 16

# The number of a device, the directory of its file system that is mounted, and where it is mounted.
Entry = tuple[bytes, bytes, bytes]


class HostMounts:
    """The mounts of this process at one moment; only devices that are mounted twice matter."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        counted = Counter(device for device, *_ in self._entries)
        self._several = frozenset(device for device, count in counted.items() if count > 1)

    def pairs(self, path: bytes) -> list[tuple[bytes, bytes]]:
        """Pairs of a path at or below *path*, and another path that leads to the same file.

        *path* is absolute and free of links. There is a pair for *path* itself for each other
        mount that contains it, and one for each mount of a directory below it.
        """
        if not self._several:
            return []
        # The last one of several mounts at the same place covers the others.
        holding = max(
            (entry for entry in reversed(self._entries) if is_within(path, entry[2])),
            key=lambda entry: len(entry[2]),
            default=None,
        )
        if holding is None or holding[0] not in self._several:
            return []
        return list(_pairs(path, holding, self._entries))


def read() -> HostMounts:
    """The mounts as they are now; none on a system that does not list them."""
    try:
        fd = os.open(_TABLE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return HostMounts(())
    text = b""
    try:
        while piece := os.read(fd, _READ_BYTES):
            text += piece
    finally:
        os.close(fd)
    lines = [line.split(b" ", 5) for line in lines_of(text)]
    return HostMounts((words[2], unescaped(words[3]), unescaped(words[4])) for words in lines)


def _pairs(path: bytes, holding: Entry, entries: list[Entry]) -> Iterator[tuple[bytes, bytes]]:
    device, root, point = holding
    inner = _moved(path, point, root)
    for other in entries:
        if other is holding or other[0] != device:
            continue
        _, other_root, other_point = other
        if is_within(inner, other_root):
            yield path, _moved(inner, other_root, other_point)
        elif is_within(other_root, inner):
            yield _moved(other_root, root, point), other_point


def _moved(path: bytes, old: bytes, new: bytes) -> bytes:
    """*path*, which is at or below *old*, as it is called at or below *new*."""
    rest = path[len(old.rstrip(b"/")) :]
    return (new.rstrip(b"/") + rest) or b"/"

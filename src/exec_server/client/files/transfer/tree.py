"""A tree of files as a transfer sees it, on either side."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from exec_server.errors import ProtocolError

Kind = Literal["file", "directory", "symlink", "other"]

# Set-id and sticky bits are not carried: a file from elsewhere should not become a way to root.
PERMISSIONS = 0o777
# Of one name, on every common file system.
_NAME_BYTES = 255


class TreeEntry(msgspec.Struct, frozen=True, gc=False):
    """One name in a tree, and what it is."""

    # From the root, which is b"" itself.
    path: bytes
    kind: Kind
    size: int = 0
    mtime_ns: int = 0
    # Permission bits; None where nobody can tell.
    mode: int | None = None
    # What a symbolic link says.
    target: bytes = b""

    @property
    def mtime_ms(self) -> int:
        """What every side can tell and keep of a time."""
        return self.mtime_ns // 1_000_000


def parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def below(directory: bytes, path: bytes) -> bytes:
    """*path* as it is seen from where *directory* is; either may be empty."""
    return directory + b"/" + path if directory and path else directory or path


def check_path(path: bytes) -> bytes:
    """*path*, which somebody else made up. Raises ProtocolError unless it stays in its tree."""
    for name in path.split(b"/") if path else ():
        check_name(name)
    return path


def check_name(name: bytes) -> bytes:
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
        raise ProtocolError(f"the server names a file {name!r}")
    return name


def is_same(one: TreeEntry, other: TreeEntry) -> bool:
    """Whether two files can be taken for equal without looking into them."""
    return (
        one.kind == other.kind == "file"
        and one.size == other.size
        and one.mtime_ms == other.mtime_ms
    )


def part_name(entry: TreeEntry, name: bytes) -> bytes:
    """Where a copy of *entry* grows until it is complete and gets its *name*.

    It tells which content it is a part of: one of another version is never continued.
    """
    version = b"%d %d" % (entry.size, entry.mtime_ms)
    part = b"%b.%b.part" % (name, _digest(version, 4))
    if len(part) <= _NAME_BYTES:
        return part
    return b".%b.part" % _digest(name + b"\0" + version, 16)


def _digest(data: bytes, size: int) -> bytes:
    return hashlib.blake2b(data, digest_size=size).hexdigest().encode()

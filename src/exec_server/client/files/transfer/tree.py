"""A tree of files as a transfer sees it, on either side."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from exec_server.errors import ProtocolError

Kind = Literal["file", "directory", "symlink", "other"]

# Set-id and sticky bits are not carried: a file from elsewhere should not become a way to root.
PERMISSIONS = 0o777
# The longest name that every common file system allows.
_NAME_BYTES = 255


class TreeEntry(msgspec.Struct, frozen=True, gc=False):
    """One name in a tree, and what it is."""

    # Relative to the root; the root itself is b"".
    path: bytes
    kind: Kind
    size: int = 0
    mtime_ns: int = 0
    # Permission bits; None if they are unknown.
    mode: int | None = None
    # The target of a symbolic link.
    target: bytes = b""

    @property
    def mtime_ms(self) -> int:
        """The time in milliseconds, which every server can report and keep."""
        return self.mtime_ns // 1_000_000


def parent(path: bytes) -> bytes:
    """The path without its last part."""
    return path.rpartition(b"/")[0]


def below(directory: bytes, path: bytes) -> bytes:
    """*path* inside of *directory*; either may be empty."""
    if not (directory and path):
        return directory or path
    return directory.removesuffix(b"/") + b"/" + path


def check_path(path: bytes) -> bytes:
    """*path*, which a server has sent. Raises ProtocolError unless it stays in its tree."""
    for name in path.split(b"/") if path else ():
        check_name(name)
    return path


def check_name(name: bytes) -> bytes:
    """*name*, if it can be one name in a directory. Raises ProtocolError."""
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
        raise ProtocolError(f"the server names a file {name!r}")
    return name


def is_same(one: TreeEntry, other: TreeEntry) -> bool:
    """True if two files can be taken for equal without comparing their content."""
    return (
        one.kind == other.kind == "file"
        and one.size == other.size
        and one.mtime_ms == other.mtime_ms
    )


def part_name(entry: TreeEntry, name: bytes) -> bytes:
    """The name of an incomplete copy of *entry*, which is called *name* when it is complete.

    It depends on size and time, so that a part of another version is never continued.
    """
    version = b"%d %d" % (entry.size, entry.mtime_ms)
    part = b"%b.%b.part" % (name, _digest(version, 4))
    if len(part) <= _NAME_BYTES:
        return part
    return b".%b.part" % _digest(name + b"\0" + version, 16)


def delta_part_name(entry: TreeEntry, name: bytes) -> bytes:
    """The name of a copy that is made from an old version; it is never continued later."""
    # The name of the part of another version.
    other = TreeEntry(b"", "file", entry.size, entry.mtime_ns + 1_000_000)
    return part_name(other, name)


def _digest(data: bytes, size: int) -> bytes:
    return hashlib.blake2b(data, digest_size=size).hexdigest().encode()

"""Decisions of an upload that need no I/O: what to pack, what has arrived, in which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from exec_server.client.files.transfer.transfer_plan import Copy
from exec_server.client.files.transfer.tree import TreeEntry, parent

# Some file systems keep times only to 2 seconds. The size shows whether a file was unpacked to its
# end.
_COARSEST_TIME = 2_000_000_000


def is_made(copy: Copy) -> bool:
    """True for a directory that exists already, and for the root, which is made first."""
    is_directory = copy.entry.kind == "directory"
    return is_directory and (copy.replaces is not None or not copy.entry.path)


def is_packable(copy: Copy) -> bool:
    """True if it may go into an archive.

    Only new files may: unpacking would remove the old file before the new one is complete.
    """
    is_small = copy.entry.kind != "file" or copy.is_small
    return bool(copy.entry.path) and copy.replaces is None and is_small


def has_arrived(copy: Copy, there: Mapping[bytes, TreeEntry]) -> bool:
    """True if a packed file was unpacked; a file that replaces another one was not packed."""
    entry, found = copy.entry, there.get(copy.entry.path)
    if found is None or found.kind != entry.kind or not is_packable(copy):
        return False
    if entry.kind == "file":
        is_near = abs(entry.mtime_ns - found.mtime_ns) < _COARSEST_TIME
        return entry.size == found.size and is_near
    return entry.kind == "directory" or entry.target == found.target


def difference(copy: Copy, there: Mapping[bytes, TreeEntry]) -> str | None:
    """What is wrong with the copy in the end; None if it is right."""
    entry, found = copy.entry, there.get(copy.entry.path)
    if found is None or found.kind != entry.kind:
        return "is not on the server"
    if entry.kind == "file" and found.size != entry.size:
        return f"has {found.size} bytes on the server instead of {entry.size}"
    # A server that does not report modes does not report the targets of links either.
    if entry.kind == "symlink" and found.mode is not None and found.target != entry.target:
        return "leads elsewhere on the server"
    return None


def leaves(directories: Iterable[Copy]) -> list[TreeEntry]:
    """The directories that contain no other one: making them makes the others."""
    entries = [copy.entry for copy in directories]
    parents = {parent(entry.path) for entry in entries if entry.path}
    return [entry for entry in entries if entry.path not in parents]


def levels(directories: list[TreeEntry]) -> list[list[TreeEntry]]:
    """The directories by depth, the deepest first.

    After a mode without search permission is set, nothing below that directory can be reached.
    """
    found: dict[int, list[TreeEntry]] = {}
    for entry in directories:
        found.setdefault(entry.path.count(b"/") + bool(entry.path), []).append(entry)
    return [found[depth] for depth in sorted(found, reverse=True)]

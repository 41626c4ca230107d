"""What a caller wants of a transfer."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import msgspec

from exec_server.client.files.transfer.tree import TreeEntry
from exec_server.state.ignore_rules import IgnoreRules


class TransferOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are those of `upload` and `download`."""

    # Names that are neither copied nor removed, as in .gitignore.
    exclude: tuple[str, ...] = ()
    # Send large files whole, and not only what has changed in them.
    whole_files: bool = False
    # Remove what is at the destination and not in the source.
    delete: bool = False
    # Compare the contents of files whose size and time are the same.
    checksum: bool = False


DEFAULT_OPTIONS = TransferOptions()


def check_delete(root: bytes, options: TransferOptions) -> None:
    """Raise PermissionError if a machine would be emptied; *root* is the resolved destination."""
    if options.delete and not root.strip(b"/"):
        text = "it is the root of the machine, where nothing is deleted; choose a directory below"
        raise PermissionError(errno.EPERM, text, "/")


def without_excluded(entries: Iterable[TreeEntry], patterns: Iterable[str]) -> list[TreeEntry]:
    """The entries that no pattern excludes; in *entries* parents come first."""
    rules = IgnoreRules(patterns)
    if not rules:
        return list(entries)
    left: list[TreeEntry] = []
    closed: set[bytes] = set()
    for entry in entries:
        is_directory = entry.kind == "directory"
        path = entry.path.decode("utf-8", "surrogateescape")
        above = entry.path.rpartition(b"/")[0]
        is_out = above in closed or (bool(path) and rules.excludes(path, is_directory=is_directory))
        if not is_out:
            left.append(entry)
        elif is_directory:
            closed.add(entry.path)
    return left

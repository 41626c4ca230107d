"""fs/walk: list a tree breadth first, with limits on directories, entries, depth and size."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from exec_server.errors import InvalidRequest
from exec_server.files.operations.content import IsCancelled
from exec_server.files.operations.directory_listing import GrowingJsonList
from exec_server.files.operations.oserrors import lossy, text_of
from exec_server.limits import Limits
from exec_server.protocol.fs import WalkEntry, WalkError, WalkOptions
from exec_server.protocol.method import Encoded
from exec_server.protocol.paths import encoded, to_uri

# The cost of an entry in the answer's budget, without its texts.
_ENTRY_COST = 64


class _BudgetSpent(Exception):
    """A budget is used up."""


class _Directory(NamedTuple):
    path: bytes
    uri: str
    depth: int


def check_limits(options: WalkOptions, limits: Limits) -> None:
    """Refuse limits of zero and limits above the server's. Raises InvalidRequest."""
    if not options.max_directories or not options.max_entries:
        raise InvalidRequest("filesystem walk limits must be greater than zero")
    depth, directories, entries = limits.walk_depth, limits.walk_directories, limits.walk_entries
    if (
        options.max_depth > depth
        or options.max_directories > directories
        or options.max_entries > entries
    ):
        raise InvalidRequest(
            "filesystem walk limits exceed maximums: "
            f"depth={depth}, directories={directories}, entries={entries}"
        )


def walk(
    root: bytes, options: WalkOptions, answer_bytes: int, is_cancelled: IsCancelled
) -> Encoded:
    """The answer of fs/walk. Raises OSError if *root* does not exist."""
    walker = _Walker(options, answer_bytes, is_cancelled)
    found = os.stat(root)
    is_skipped = not options.follow_directory_symlinks and os.path.islink(root)
    if stat.S_ISDIR(found.st_mode) and not is_skipped:
        walker.run(root)
    return walker.outcome()


class _Walker:
    def __init__(self, options: WalkOptions, answer_bytes: int, is_cancelled: IsCancelled) -> None:
        self._options = options
        self._is_cancelled = is_cancelled
        self._budget = answer_bytes
        self._entries, self._errors = GrowingJsonList(), GrowingJsonList()
        self._truncated = False
        self._examined = 0
        self._entered = 0
        # Identities of directories: if links are followed, each directory is entered once.
        self._seen: set[tuple[int, int]] = set()
        self._queue: deque[_Directory] = deque()

    def run(self, root: bytes) -> None:
        self._enqueue(_Directory(root, to_uri(root), 0))
        try:
            while self._queue and not self._is_cancelled():
                self._visit(self._queue.popleft())
        except _BudgetSpent:
            self._truncated = True

    def outcome(self) -> Encoded:
        truncated = b"true" if self._truncated else b"false"
        return Encoded(
            (
                b'{"entries":',
                *self._entries.parts(),
                b',"errors":',
                *self._errors.parts(),
                b',"truncated":%b}' % truncated,
            )
        )

    def _visit(self, directory: _Directory) -> None:
        try:
            entries = _listed(directory.path, self._options)
        except OSError as exc:
            self._add_error(directory.uri, exc)
            return
        can_search = _is_searchable(directory.path)
        for path, uri, entry in self._children(directory, entries):
            try:
                if not can_search or isinstance(entry, _LossyEntry):
                    os.lstat(path)
                self._examine(path, uri, entry, directory.depth)
            except OSError as exc:
                self._add_error(uri, exc)
        self._entries.rest()

    def _children(
        self, directory: _Directory, entries: list[_Entry]
    ) -> Iterator[tuple[bytes, str, _Entry]]:
        above, prefix = directory.path.rstrip(b"/"), directory.uri.rstrip("/") + "/"
        for entry in entries:
            if self._examined == self._options.max_entries:
                raise _BudgetSpent
            self._examined += 1
            # A name in the root directory may look like a drive, which needs a special URI.
            uri = prefix + encoded(entry.name) if above else to_uri(b"/" + entry.name)
            yield above + b"/" + entry.name, uri, entry

    def _examine(self, path: bytes, uri: str, entry: _Entry, depth: int) -> None:
        if entry.is_file(follow_symlinks=False):
            self._add_entry(WalkEntry(uri, "file"))
        elif self._leads_to_directory(entry):
            self._add_entry(WalkEntry(uri, "directory"))
            is_pruned = self._options.prune_hidden_directories and entry.name.startswith(b".")
            if depth < self._options.max_depth and not is_pruned:
                self._enqueue(_Directory(path, uri, depth + 1))
        elif self._options.links and entry.is_symlink():
            self._add_entry(WalkEntry(uri, "symlink"))

    def _leads_to_directory(self, entry: _Entry) -> bool:
        if entry.is_symlink():
            if not self._options.follow_directory_symlinks:
                return False
            return _leads_somewhere(entry) and entry.is_dir()
        return entry.is_dir(follow_symlinks=False)

    def _enqueue(self, directory: _Directory) -> None:
        """Enter *directory* later, unless it was entered before or there were too many."""
        if self._options.follow_directory_symlinks:
            found = os.stat(directory.path)
            identity = found.st_dev, found.st_ino
            if identity in self._seen:
                return
            self._seen.add(identity)
        if self._entered == self._options.max_directories:
            self._truncated = True
            return
        self._entered += 1
        self._queue.append(directory)

    def _add_entry(self, entry: WalkEntry) -> None:
        self._spend(len(entry.path))
        self._entries.append(entry)

    def _add_error(self, uri: str, exc: OSError) -> None:
        message = text_of(exc)
        self._spend(len(uri) + len(message.encode()))
        self._errors.append(WalkError(uri, message))

    def _spend(self, size: int) -> None:
        self._budget -= size + _ENTRY_COST
        if self._budget < 0:
            raise _BudgetSpent


class _LossyEntry:
    """An entry whose name is not UTF-8, under the name that the reference looks for.

    There U+FFFD stands for the other bytes. Mostly there is no such file, which is then an error of
    the walk.
    """

    def __init__(self, directory: bytes, name: bytes) -> None:
        self.name = lossy(name).encode()
        self._path = os.path.join(directory, self.name)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self.stat(follow_symlinks=follow_symlinks).st_mode)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self.stat(follow_symlinks=follow_symlinks).st_mode)

    def is_symlink(self) -> bool:
        return os.path.islink(self._path)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self._path, follow_symlinks=follow_symlinks)


_Entry = os.DirEntry[bytes] | _LossyEntry


def _listed(path: bytes, options: WalkOptions) -> list[_Entry]:
    """The entries of a directory, sorted by name; without dangling links unless they are wanted."""
    with os.scandir(path) as found:
        entries: list[_Entry] = [
            entry if options.exact_names or _is_utf8(entry.name) else _LossyEntry(path, entry.name)
            for entry in found
        ]
    entries.sort(key=lambda entry: entry.name)
    if options.links:
        return entries
    return [entry for entry in entries if not entry.is_symlink() or _leads_somewhere(entry)]


def _is_utf8(name: bytes) -> bool:
    if name.isascii():
        return True
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _leads_somewhere(link: _Entry) -> bool:
    try:
        link.stat()
    except OSError:
        return False
    return True


def _is_searchable(path: bytes) -> bool:
    """True if the entries of the directory can be opened, and not only listed."""
    try:
        os.stat(path + b"/.")
    except OSError:
        return False
    return True

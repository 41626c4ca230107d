"""The directories that an agent watches, and what it makes of the kernel's notices.

A notice only says that a name is no longer as it was. How it is now is looked at when it is
reported, so a report is true whatever has happened in between, and the last report of a name is
always about its last state.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from exec_server.files.agents.change_batch import ChangeBatch
from exec_server.files.watch import inotify
from exec_server.state.ignore_rules import IgnoreRules

_CHANGES = (
    inotify.IN_CREATE
    | inotify.IN_DELETE
    | inotify.IN_MOVED_FROM
    | inotify.IN_MOVED_TO
    | inotify.IN_MODIFY
    | inotify.IN_ATTRIB
)
_APPEARED = inotify.IN_CREATE | inotify.IN_MOVED_TO
_LEFT = inotify.IN_DELETE | inotify.IN_MOVED_FROM
_IS_DIRECTORY = 0x4000_0000
_IGNORED = 0x8000
_SELF_GONE = 0x400 | 0x800


class TooManyDirectories(Exception):
    """The system, or the server's limit, does not allow more watches."""


class _WatchedDirectory:
    """A watched directory; its path is made from the names above it, which may change."""

    __slots__ = ("children", "name", "parent", "watch")

    def __init__(self, name: bytes, parent: _WatchedDirectory | None, watch: int) -> None:
        self.name = name
        self.parent = parent
        self.watch = watch
        self.children: dict[bytes, _WatchedDirectory] = {}

    @property
    def path(self) -> bytes:
        """The path below the root; empty for the root."""
        names: list[bytes] = []
        here = self
        while here.parent is not None:
            names.append(here.name)
            here = here.parent
        return b"/".join(reversed(names))

    def everything(self) -> Iterator[_WatchedDirectory]:
        """This directory and all below it."""
        waiting = [self]
        while waiting:
            here = waiting.pop()
            yield here
            waiting += here.children.values()


class WatchedTree:
    """Watches *root*, and with *recursive* everything below it, on a queue of its own."""

    def __init__(
        self, root: bytes, *, recursive: bool, ignore: IgnoreRules, most: int, batch: ChangeBatch
    ) -> None:
        self._root = root
        self._recursive = recursive
        self._ignore = ignore
        self._most = most
        self._batch = batch
        self.queue = inotify.open_queue()
        self._by_watch: dict[int, _WatchedDirectory] = {}
        self._top: _WatchedDirectory | None = None
        self.is_gone = False

    def begin(self) -> None:
        """Watch everything. Raises OSError for the root alone, and TooManyDirectories."""
        with os.scandir(self._root):
            # What cannot be listed is not watched either.
            pass
        self._top = self._watch(b"", None, extra=_SELF_GONE)
        self._enter(self._top, is_new=False)

    def read(self) -> None:
        """Take the notices that have come. Raises TooManyDirectories."""
        for notice in inotify.read_notices(self.queue):
            if notice.mask & inotify.IN_Q_OVERFLOW:
                self._start_over()
                return
            here = self._by_watch.get(notice.watch)
            if here is None:
                continue
            if notice.mask & _IGNORED:
                self._forget(here)
            elif not notice.name:
                self.is_gone = self.is_gone or (
                    here is self._top and bool(notice.mask & _SELF_GONE)
                )
            else:
                self._take(here, notice)

    def _take(self, here: _WatchedDirectory, notice: inotify.Notice) -> None:
        above = here.path
        path = above + b"/" + notice.name if above else notice.name
        is_directory = bool(notice.mask & _IS_DIRECTORY)
        if self._is_ignored(path, is_directory=is_directory):
            return
        self._batch.add(path, is_new=bool(notice.mask & _APPEARED))
        if not is_directory or not self._recursive:
            return
        if notice.mask & _LEFT and (child := here.children.get(notice.name)) is not None:
            self._forget(child)
        if notice.mask & _APPEARED:
            self._appear(here, notice.name, path)

    def _appear(self, parent: _WatchedDirectory, name: bytes, path: bytes) -> None:
        if name in parent.children:
            self._forget(parent.children[name])
        try:
            child = self._watch(name, parent)
        except OSError:
            # It has gone already, or it may not be read; a later notice tells.
            return
        self._enter(child, is_new=True)

    def _watch(
        self, name: bytes, parent: _WatchedDirectory | None, *, extra: int = 0
    ) -> _WatchedDirectory:
        here = _WatchedDirectory(name, parent, -1)
        path = os.path.join(self._root, here.path) if parent is not None else self._root
        if len(self._by_watch) >= self._most:
            raise TooManyDirectories(f"more than {self._most} directories cannot be watched")
        try:
            here.watch = inotify.add_watch(self.queue, path, _CHANGES | extra)
        except OSError as exc:
            if exc.errno == errno.ENOSPC:
                raise TooManyDirectories(
                    "the system allows no more watches (fs.inotify.max_user_watches)"
                ) from exc
            raise
        before = self._by_watch.get(here.watch)
        if before is not None:
            # The same directory was known under another name.
            self._forget(before, keeps_watch=True)
        self._by_watch[here.watch] = here
        if parent is not None:
            parent.children[name] = here
        return here

    def _enter(self, top: _WatchedDirectory, *, is_new: bool) -> None:
        """Watch what is below *top*, and report it if it *is_new*."""
        waiting = [top]
        while waiting:
            here = waiting.pop()
            above = here.path
            for name, is_directory in self._listed(here, above):
                path = above + b"/" + name if above else name
                if self._is_ignored(path, is_directory=is_directory):
                    continue
                if is_new:
                    self._batch.add(path, is_new=True)
                if is_directory and self._recursive and name not in here.children:
                    try:
                        waiting.append(self._watch(name, here))
                    except OSError:
                        continue

    def _listed(self, here: _WatchedDirectory, path: bytes) -> list[tuple[bytes, bool]]:
        """The names in a directory. It was watched before this, so that no name is missed."""
        try:
            with os.scandir(os.path.join(self._root, path)) as names:
                return [(each.name, each.is_dir(follow_symlinks=False)) for each in names]
        except OSError:
            if here.parent is not None:
                # What cannot be listed is not watched either.
                self._forget(here)
            return []

    def _forget(self, top: _WatchedDirectory, *, keeps_watch: bool = False) -> None:
        """Stop watching a directory and everything below it."""
        if top.parent is not None and top.parent.children.get(top.name) is top:
            del top.parent.children[top.name]
        for here in top.everything():
            if self._by_watch.get(here.watch) is here:
                del self._by_watch[here.watch]
                if not (keeps_watch and here is top):
                    inotify.remove_watch(self.queue, here.watch)

    def _start_over(self) -> None:
        """Notices are lost: watch everything anew, and have all of it looked at again."""
        os.close(self.queue)
        self.queue = inotify.open_queue()
        self._by_watch.clear()
        self._top = None
        try:
            self.begin()
        except OSError:
            self.is_gone = True
        self._batch.rescan()

    def _is_ignored(self, path: bytes, *, is_directory: bool) -> bool:
        return bool(self._ignore) and self._ignore.excludes(
            os.fsdecode(path), is_directory=is_directory
        )

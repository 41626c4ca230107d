"""Calls that certainly meet no refusal, found with as few looks at the file system as possible.

A compiler makes hundreds of calls that a supervisor hears of, and nearly all of them are allowed.
A shortcut gives the answer that attempts.py and judge.py together would give, but sooner. The call
goes on to the kernel then, whose walls decide, as for every other call.

What is remembered is about directories whose paths no part of the command can change. The last part
of a path is looked at each time, if the command could have made a link of it. The keeper loads this
file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import os
import stat

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A command that uses very many paths fills no memory.
_MAX_TEXTS, _MAX_FOLDERS = 1 << 15, 1 << 13
_MAY_WRITE = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC
_MADE_NEW, _NO_FOLLOW = os.O_CREAT | os.O_EXCL, os.O_NOFOLLOW
_NO_NAMES = frozenset((b"", b".", b".."))
_NULL = b"/dev/null"
_INT = 0xFFFFFFFF
_HERE = -100 & _INT
# The fields of a call, see notifications.py.
_PID, _NUMBER, _ARCHITECTURE = 1, 3, 4
# Stands for a directory whose path the command can change.
_CHANGEABLE = b""
# The access to a place, see judge.py.
_WRITE, _READ = "write", "read"


class Shortcuts:
    """The shortcuts for one command. *attempts* is the module, *places* are the judge's."""

    def __init__(self, orders: dict[str, Any], places: Any, attempts: Any) -> None:
        self._places = places
        self._attempts = attempts
        self._text_at = attempts.text_at
        self._architecture: int = orders["architecture"]
        # Texts that every process of the command may open to read.
        self._readable: set[bytes] = set()
        # The directories to which texts lead, and what may be done in directories.
        self._folders: dict[bytes, bytes] = {}
        # The beginnings of paths that lead nowhere, and never will.
        self._missing: set[bytes] = set()
        self._access: dict[bytes, str | None] = {}
        is_null_open = places.refusal(_NULL, writes=True) is None
        self._always = frozenset([_NULL] if is_null_open else [])
        refused = frozenset(orders["refused"])
        calls = {n: name for n, name in orders["calls"].items() if name not in refused}
        # A command that nothing confines can change every directory.
        self._outlines = {} if orders["learns"] else attempts.call_outlines(calls)

    def end(self) -> None:
        """Take no shortcut from now on."""
        self._outlines = {}

    def forget(self) -> None:
        """A name has changed where the command itself cannot change any."""
        self._readable.clear()
        self._folders.clear()
        self._missing.clear()

    def has(self, call: Any) -> bool:
        """True if *call* is certainly not refused; False says nothing."""
        outline = self._outlines.get(call[_NUMBER])
        if outline is None or call[_ARCHITECTURE] != self._architecture:
            return False
        paths, flags_at, follows = outline
        writes = True
        if flags_at is not None:
            flags = call[flags_at]
            writes = bool(flags & _MAY_WRITE)
            follows = not flags & _NO_FOLLOW and flags & _MADE_NEW != _MADE_NEW
        pid = call[_PID]
        try:
            for directory, path in paths:
                text = self._text_at(pid, call[path]) if call[path] else b""
                if writes or text not in self._readable:
                    fd = _HERE if directory is None else call[directory] & _INT
                    if not self._is_free(pid, fd, text, writes=writes, follows=follows):
                        return False
        except (OSError, self._attempts.Unseen):
            return False
        return True

    def _is_free(self, pid: int, fd: int, text: bytes, *, writes: bool, follows: bool) -> bool:
        head, _, name = text.rpartition(b"/")
        if name in _NO_NAMES:
            return False
        if text.startswith(b"/"):
            if text in self._always:
                return True
            return self._is_free_at(head or b"/", name, text, writes=writes, follows=follows)
        place = b"cwd" if fd == _HERE else b"fd/%d" % fd
        above = self._attempts.link_at(b"/proc/%d/%b" % (pid, place))
        folder = self._folder(b"%b/%b" % (above, head)) if head else above
        return self._access_to(folder, name, writes=writes) is not None and not (
            follows and _is_link(_joined(folder, name))
        )

    def _is_free_at(
        self, head: bytes, name: bytes, text: bytes, *, writes: bool, follows: bool
    ) -> bool:
        """The same for an absolute path, *text*, which is *name* in *head*."""
        try:
            folder = self._folder(head)
        except FileNotFoundError:
            if writes or not self._is_missing_for_good(head):
                return False
            self._remember(text)
            return True
        access = self._access_to(folder, name, writes=writes)
        if access is None:
            return False
        # Everything that may be written may change.
        is_lasting = access == _READ and self._folders.get(head) == folder
        if not follows:
            return True
        if _is_link(_joined(folder, name)):
            return is_lasting and self._is_lasting_link(text)
        if is_lasting:
            self._remember(text)
        return True

    def _folder(self, head: bytes) -> bytes:
        """The directory to which *head* leads; empty if that depends on the process."""
        folder = self._folders.get(head)
        if folder:
            return folder
        if head in self._missing:
            # A compiler looks for each of its headers below many of these.
            raise FileNotFoundError
        if self._attempts.is_own_descriptor(head + b"/"):
            return b""
        found: bytes = self._attempts.opened_path(head, os.O_DIRECTORY)
        if folder is None and len(self._folders) < _MAX_FOLDERS:
            is_fixed = self._is_fixed(head) and self._is_fixed(found)
            self._folders[head] = found if is_fixed else _CHANGEABLE
        return found

    def _is_missing_for_good(self, missing: bytes) -> bool:
        """True if *missing* leads nowhere, and the command cannot make it lead anywhere."""
        if missing in self._missing:
            return True
        head = missing
        while True:
            head, _, name = head.rpartition(b"/")
            try:
                found = self._attempts.opened_path(head or b"/", os.O_DIRECTORY)
            except FileNotFoundError:
                continue
            if not (self._is_fixed(head) and self._is_fixed(found)):
                return False
            if self._access_in(found) != _READ or _is_link(_joined(found, name)):
                return False
            if len(self._missing) < _MAX_FOLDERS:
                self._missing.add(missing)
            return True

    def _is_fixed(self, path: bytes) -> bool:
        """True if the command cannot change where *path* leads: it cannot write above its parts.

        Paths of compilers have `..` in them.
        """
        above: list[bytes] = []
        for name in path.split(b"/"):
            if name == b"..":
                del above[-1:]
            elif name not in _NO_NAMES:
                if self._access_in(b"/" + b"/".join(above)) in (_WRITE, None):
                    return False
                above.append(name)
        return True

    def _access_to(self, folder: bytes, name: bytes, *, writes: bool) -> str | None:
        """What may be done with *name* in *folder*; None if it takes a closer look."""
        if not folder.startswith(b"/") or self._places.is_named(_joined(folder, name)):
            return None
        access = self._access_in(folder)
        return access if access == _WRITE or (access == _READ and not writes) else None

    def _access_in(self, folder: bytes) -> str | None:
        try:
            return self._access[folder]
        except KeyError:
            pass
        access: str | None = self._places.access_in(folder)
        if len(self._access) < _MAX_FOLDERS:
            self._access[folder] = access
        return access

    def _is_lasting_link(self, text: bytes) -> bool:
        """True if *text*, a link that the command cannot change, leads to what it may only read."""
        found = self._attempts.opened_path(text, 0)
        refusal = self._places.refusal
        is_readable = refusal(found, writes=False) is None and self._is_fixed(found)
        if not is_readable or refusal(found, writes=True) is None:
            return False
        self._remember(text)
        return True

    def _remember(self, text: bytes) -> None:
        """*text* may be read, and the command cannot change where it leads."""
        if len(self._readable) < _MAX_TEXTS:
            self._readable.add(text)


def _joined(folder: bytes, name: bytes) -> bytes:
    return b"/" + name if folder == b"/" else b"%b/%b" % (folder, name)


def _is_link(path: bytes) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False

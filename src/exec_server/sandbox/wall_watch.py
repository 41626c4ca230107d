"""Watches the walls of sandboxes while their commands run, and tells which of them lost one.

A wall is a mount over a path that the command must not read or change. The kernel takes the mount
away, in every namespace, when a program outside removes or replaces the file or directory under it;
and when it is renamed, or a directory above it, the mount goes along. Then the command reaches
whatever has the name now. The list of mounts of the sandbox tells both: a wall that was taken away
is missing, and one that moved has another path. The kernel reports the first (`poll` on the list),
and inotify the second (IN_MOVE_SELF, which no other activity in a directory causes). Walls that
inotify cannot watch are compared every second.

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import select
import struct
import time

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_IN_MOVE_SELF, _IN_DONT_FOLLOW = 0x0800, 0x02000000
_IN_IGNORED, _IN_Q_OVERFLOW = 0x8000, 0x4000
_EVENT = struct.Struct("iIII")
_WRITABLE, _TMPFS = "writable", b"tmpfs"
# A user may have 8192 watches on a small machine, for all programs. A policy with more walls than
# this is compared every second instead.
_MAX_WATCHES = 256
_SECONDS = 1.0
_READ_BYTES = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


class _Walled:
    """The walls of one sandbox, and the open list of its mounts."""

    def __init__(self, mounts: int, expected: Iterable[Any]) -> None:
        self.mounts = mounts
        # The walls, and whether each is an empty directory that was made for the sandbox.
        self._walls = {path: not inode for path, kind, _, inode in expected if kind != _WRITABLE}
        # The mount at each wall, once it was seen.
        self._seen: dict[bytes, bytes] = {}
        self.watches: set[int] = set()

    def places(self) -> list[bytes]:
        """The walls and the directories above them, which must not be renamed."""
        found: dict[bytes, None] = {}
        for path in self._walls:
            while path not in found and path != b"/":
                found[path] = None
                path = path.rpartition(b"/")[0] or b"/"
        return list(found)

    def lost(self) -> bytes | None:
        """The path of a wall that is not where it was, if there is one."""
        table = _MountTable(self.mounts)
        return next((path for path in self._walls if not self._stands(path, table)), None)

    def _stands(self, path: bytes, table: _MountTable) -> bool:
        mount = table.at(path)
        if mount is None or mount.path != path or mount.is_writable:
            return False
        if self._walls[path] and mount.type != _TMPFS:
            return False
        # The host may have a mount at the same path, which is below the wall.
        return self._seen.setdefault(path, mount.number) == mount.number


class WallWatch:
    """The sandboxes that run, by the pid of bubblewrap; *poll* is what the caller waits with."""

    def __init__(self, poll: select.poll | select.epoll) -> None:
        self._poll = poll
        self._sandboxes: dict[int, _Walled] = {}
        self._by_mounts: dict[int, int] = {}
        # The sandboxes that need each watch.
        self._needed: dict[int, set[int]] = {}
        self._compared: set[int] = set()
        self._next_comparison = 0.0
        # It fails if the user has too many of them; then all walls are compared.
        self._inotify = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._inotify >= 0:
            poll.register(self._inotify, select.POLLIN)

    @property
    def wait_milliseconds(self) -> float | None:
        """How long to wait at most before `lost` is called again."""
        if not self._compared:
            return None
        return max(0.0, self._next_comparison - time.monotonic()) * 1000

    def add(self, pid: int, first: int, expected: Iterable[Any]) -> str | None:
        """Watch the sandbox of *pid*, whose first process is *first*; OSError if that fails.

        Returns what `lost` does if a wall is gone already.
        """
        mounts = os.open(b"/proc/%d/mountinfo" % first, os.O_RDONLY | os.O_CLOEXEC)
        sandbox = self._sandboxes[pid] = _Walled(mounts, expected)
        self._by_mounts[mounts] = pid
        self._poll.register(mounts, select.POLLPRI)
        return self._look(pid, sandbox)

    @staticmethod
    def unwatched(exc: OSError) -> str:
        """The reason to end a sandbox that cannot be watched."""
        return f"exec-server: the sandbox could not be watched: {exc.strerror}"

    def remove(self, pid: int) -> None:
        """The sandbox of *pid* has ended, or was never watched."""
        sandbox = self._sandboxes.pop(pid, None)
        if sandbox is None:
            return
        self._compared.discard(pid)
        for watch in sandbox.watches:
            self._needed[watch].discard(pid)
            if not self._needed[watch]:
                del self._needed[watch]
                _libc.inotify_rm_watch(self._inotify, watch)
        self._poll.unregister(sandbox.mounts)
        del self._by_mounts[sandbox.mounts]
        # The last one that closes it takes all mounts of the namespace apart, which takes a while.
        try:
            _thread.start_new_thread(os.close, (sandbox.mounts,))
        except RuntimeError:
            # The user has as many processes as allowed.
            os.close(sandbox.mounts)

    def lost(self, ready: set[int]) -> list[tuple[int, str]]:
        """The sandboxes without a wall that they had, and the reason to end each.

        *ready* are the descriptors about which the kernel has something to tell.
        """
        suspects = {self._by_mounts[fd] for fd in ready if fd in self._by_mounts}
        if self._inotify in ready:
            suspects |= self._moved()
        if self._compared and time.monotonic() >= self._next_comparison:
            suspects |= self._compared
            self._next_comparison = time.monotonic() + _SECONDS
        found = [(pid, self._look_safely(pid)) for pid in suspects]
        return [(pid, reason) for pid, reason in found if reason is not None]

    def _look_safely(self, pid: int) -> str | None:
        """As `_look`. A sandbox that cannot be watched ends alone, not with all programs."""
        try:
            return self._look(pid, self._sandboxes[pid])
        except OSError as exc:
            return self.unwatched(exc)

    def _look(self, pid: int, sandbox: _Walled) -> str | None:
        # The watches come first: what is renamed in between is seen in the list of mounts. They
        # are renewed each time, because another file may have had the name when they were made.
        if pid not in self._compared and not self._watch(pid, sandbox):
            self._compared.add(pid)
        path = sandbox.lost()
        return None if path is None else reason(path)

    def _watch(self, pid: int, sandbox: _Walled) -> bool:
        """Watch all places of *sandbox*; False if that is not possible."""
        places = sandbox.places()
        if len(places) > _MAX_WATCHES or self._inotify < 0:
            return False
        is_watched = True
        for place in places:
            watch = _libc.inotify_add_watch(self._inotify, place, _IN_MOVE_SELF | _IN_DONT_FOLLOW)
            if watch < 0:
                is_watched = False
                continue
            self._needed.setdefault(watch, set()).add(pid)
            sandbox.watches.add(watch)
        return is_watched

    def _moved(self) -> set[int]:
        """The sandboxes that need a file or directory which was renamed."""
        suspects: set[int] = set()
        try:
            events = os.read(self._inotify, _READ_BYTES)
        except BlockingIOError:
            return suspects
        offset = 0
        while offset < len(events):
            watch, mask, _, size = _EVENT.unpack_from(events, offset)
            offset += _EVENT.size + size
            if mask & _IN_Q_OVERFLOW:
                return set(self._sandboxes)
            suspects |= self._needed.get(watch, set())
            if mask & _IN_IGNORED:
                # The kernel has removed it together with the file.
                for pid in self._needed.pop(watch, ()):
                    self._sandboxes[pid].watches.discard(watch)
        return suspects


def reason(path: bytes) -> str:
    shown = path.decode("utf-8", "replace")
    return (
        f"exec-server: a program outside of the sandbox replaced, moved or removed {shown}; "
        "the sandbox could not protect it any longer, so the command was ended"
    )


class _MountLine:
    """One line of a list of mounts."""

    def __init__(self, line: bytes) -> None:
        fields, _, rest = line.partition(b" - ")
        self.number, self.parent, _, _, path, options = fields.split(b" ", 6)[:6]
        self.path = _unescaped(path)
        self.is_writable = options.startswith(b"rw")
        self.type = rest.partition(b" ")[0]


class _MountTable:
    """The mounts that an open /proc/PID/mountinfo lists now."""

    def __init__(self, fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        text = b""
        while piece := os.read(fd, _READ_BYTES):
            text += piece
        # A path may contain a carriage return, which also ends a line for `splitlines`.
        mounts = [_MountLine(line) for line in text.split(b"\n") if line]
        numbers = {mount.number for mount in mounts}
        self._on = {(mount.parent, mount.path): mount for mount in mounts}
        self._root = next((mount for mount in mounts if mount.parent not in numbers), None)

    def at(self, path: bytes) -> _MountLine | None:
        """The mount that a process which opens *path* comes to."""
        found = self._root
        above = b""
        for name in path.split(b"/"):
            # The first name is empty: the path begins at the root.
            above = above.rstrip(b"/") + b"/" + name
            while found is not None and (found.number, above) in self._on:
                found = self._on[found.number, above]
        return found


def _unescaped(word: bytes) -> bytes:
    if b"\\" not in word:
        return word
    first, *others = word.split(b"\\")
    return first + b"".join(bytes((int(part[:3], 8),)) + part[3:] for part in others)

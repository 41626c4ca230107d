"""Knows from the kernel's list of mounts which file systems can make a call wait.

A network file system or one in another process may take for ever. One on a disk can be told to
fail instead of waiting. One in memory never waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
from enum import IntEnum

from exec_server.files.nowait import linux_calls

_TABLE = "/proc/self/mountinfo"
_ESCAPE = re.compile(rb"\\([0-7]{3})")

_IN_MEMORY = frozenset({b"tmpfs", b"ramfs"})
_ON_DISK = frozenset(
    b"ext2 ext3 ext4 xfs btrfs f2fs zfs bcachefs overlay squashfs erofs "
    b"jfs reiserfs nilfs2 vfat exfat ntfs3 iso9660 udf".split()
)
# Files on these file systems may have device numbers that no mount has.
_MANY_NUMBERED = frozenset({b"btrfs", b"bcachefs", b"overlay"})


class Pace(IntEnum):
    """How long calls to a file system may take."""

    # Calls may wait for another machine or process, or the file system is a special one.
    SLOW = 0
    # Calls may wait for a device, and reads can be told to fail instead.
    DISK = 1
    # Calls never wait; the flag to fail instead of waiting is not supported.
    MEMORY = 2


class Mounts:
    """The paces of all mounts. Everything is slow on systems without a list of mounts."""

    def __init__(self) -> None:
        self._paces: dict[int, Pace] = {}
        self._unlisted = Pace.SLOW
        # Mount points of slow file systems, and of others below them.
        self._slow: tuple[bytes, ...] = (b"/",)
        self._others: tuple[bytes, ...] = ()
        self._fd = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        if linux_calls.IS_LINUX:
            with contextlib.suppress(OSError):
                self._fd = os.open(_TABLE, os.O_RDONLY | os.O_CLOEXEC)
                self._read()

    def pace_of(self, device: int) -> Pace:
        """The pace of the file system with this device number."""
        return self._paces.get(device, self._unlisted)

    def is_plain(self, path: bytes) -> bool:
        """True if *path* is on no slow mount, if it is normalised and has no links."""
        return not path.startswith(self._slow) or path.startswith(self._others)

    def follow_changes(self) -> None:
        """Read the list again after every mount and unmount, until `close`."""
        if self._fd < 0:
            return
        # The list is always readable, and a change is urgent data, for which event loops cannot
        # wait. An epoll of our own can, and becomes readable itself.
        self._poll = select.epoll()
        self._poll.register(self._fd, select.EPOLLPRI)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._poll.fileno(), self._changed)
        # The loop may begin to watch only when it waits for the next time, and then misses
        # earlier changes.
        self._loop.call_soon(self._loop.call_soon, self._changed)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._poll.fileno())
            self._poll.close()
            self._loop = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _changed(self) -> None:
        if self._loop is not None:
            self._poll.poll(0)
            self._read()

    def _read(self) -> None:
        # This is one read, because the list may change between two.
        os.lseek(self._fd, 0, os.SEEK_SET)
        with open(self._fd, "rb", closefd=False) as table:
            self._take(table.read())

    def _take(self, table: bytes) -> None:
        """Take the mounts in order: a later mount hides an earlier one at the same place."""
        points: dict[bytes, Pace] = {}
        paces: dict[int, Pace] = {}
        kinds: set[bytes] = set()
        # A path may contain a carriage return, which also ends a line for `splitlines`.
        for line in filter(None, table.split(b"\n")):
            _, _, device, _, point, *rest = line.split(b" ")
            kind = rest[rest.index(b"-") + 1]
            kinds.add(kind)
            pace = _pace(kind)
            major, _, minor = device.partition(b":")
            number = os.makedev(int(major), int(minor))
            paces[number] = min(pace, paces.get(number, pace))
            points[_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), point)] = pace
        self._paces = paces
        self._unlisted = Pace.DISK if kinds & _MANY_NUMBERED else Pace.SLOW
        self._slow = tuple(point for point, pace in points.items() if pace is Pace.SLOW)
        self._others = tuple(
            point
            for point, pace in points.items()
            if pace and not any(slow.startswith(point) for slow in self._slow)
        )


def _pace(kind: bytes) -> Pace:
    return Pace.MEMORY if kind in _IN_MEMORY else Pace.DISK if kind in _ON_DISK else Pace.SLOW

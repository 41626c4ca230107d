"""The kernel's notices of changes in directories (inotify); Linux only."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from exec_server.files.nowait import linux_calls

IN_MODIFY = 0x002
IN_ATTRIB = 0x004
IN_MOVED_FROM = 0x040
IN_MOVED_TO = 0x080
IN_CREATE = 0x100
IN_DELETE = 0x200
# The queue was full, and notices are lost.
IN_Q_OVERFLOW = 0x4000
IN_ONLYDIR = 0x0100_0000
IN_DONT_FOLLOW = 0x0200_0000

_EVENT = struct.Struct("iIII")

if linux_calls.IS_LINUX:
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]


class Notice(NamedTuple):
    # The number of the watch; -1 if the queue has overflowed.
    watch: int
    mask: int
    # A name in the watched directory; empty for the directory itself.
    name: bytes


def open_queue() -> int:
    """A descriptor that is readable when there is a notice. Raises OSError."""
    fd: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    return _checked(fd)


def add_watch(queue: int, directory: bytes, mask: int) -> int:
    """Watch *directory* and return the number of the watch. Raises OSError, also for a link."""
    watch: int = _libc.inotify_add_watch(queue, directory, mask | IN_ONLYDIR | IN_DONT_FOLLOW)
    return _checked(watch)


def remove_watch(queue: int, watch: int) -> None:
    """Stop a watch; the kernel may have ended it already."""
    _libc.inotify_rm_watch(queue, watch)


def read_notices(queue: int) -> Iterator[Notice]:
    """All notices in the queue."""
    try:
        data = os.read(queue, 64 * 1024)
    except BlockingIOError:
        return
    start = 0
    while start < len(data):
        watch, mask, _, size = _EVENT.unpack_from(data, start)
        start += _EVENT.size
        yield Notice(watch, mask, data[start : start + size].rstrip(b"\0"))
        start += size


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result

"""Open, outside of the sandbox, a file that a client has granted.

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat

# The system call has this number on every architecture.
_OPENAT2 = 437
_NO_MAGIC_LINKS_NO_LINKS = 0x02 | 0x04
# The flags of the caller that count here.
_TAKEN = (
    os.O_ACCMODE
    | os.O_CREAT
    | os.O_EXCL
    | os.O_TRUNC
    | os.O_APPEND
    | os.O_DIRECTORY
    | os.O_SYNC
    | os.O_NONBLOCK
)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _HowToOpen(ctypes.Structure):
    """`struct open_how`."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def opened(path: bytes, flags: int, mode: int, *, umask: int) -> int:
    """Open *path*, a file or directory; OSError if it is something else, or crosses a link.

    *path* was read from a program that may have replaced a part of it by a link meanwhile.
    """
    above, _, name = path.rpartition(b"/")
    folder = _directory(above or b"/")
    try:
        wanted = flags & _TAKEN
        # A FIFO in its place must not make this process wait.
        safe = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        before = os.umask(umask)
        try:
            fd = os.open(name or b".", wanted | safe, mode & 0o7777, dir_fd=folder)
        finally:
            os.umask(before)
    finally:
        os.close(folder)
    kind = os.fstat(fd).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        os.close(fd)
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    if not wanted & os.O_NONBLOCK:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return fd


def _directory(path: bytes) -> int:
    how = _HowToOpen(os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, _NO_MAGIC_LINKS_NO_LINKS)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    fd: int = _libc.syscall(_OPENAT2, ctypes.c_int(-100), path, ctypes.byref(how), size)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd

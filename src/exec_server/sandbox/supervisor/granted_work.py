"""Do, outside of the sandbox, what a client has granted: open, make, remove or rename a file.

The paths were read from a program that may have replaced a part of them by a link meanwhile. So no
link is followed.

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
    """Open *path*, a file or directory; OSError if it is something else, or crosses a link."""
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


def changed(operation: str, paths: list[bytes], extra: int, *, umask: int) -> None:
    """Make, remove or rename; OSError as the system says.

    *extra* is the mode of a new directory.
    """
    folders: list[int] = []
    try:
        folders.extend(_directory(path.rpartition(b"/")[0] or b"/") for path in paths)
        names = [path.rpartition(b"/")[2] for path in paths]
        if operation == "mkdir":
            before = os.umask(umask)
            try:
                os.mkdir(names[0], extra & 0o7777, dir_fd=folders[0])
            finally:
                os.umask(before)
        elif operation == "unlink":
            os.unlink(names[0], dir_fd=folders[0])
        elif operation == "rmdir":
            os.rmdir(names[0], dir_fd=folders[0])
        else:
            os.rename(*names, src_dir_fd=folders[0], dst_dir_fd=folders[1])
    finally:
        for folder in folders:
            os.close(folder)


def _directory(path: bytes) -> int:
    how = _HowToOpen(os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, _NO_MAGIC_LINKS_NO_LINKS)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    fd: int = _libc.syscall(_OPENAT2, ctypes.c_int(-100), path, ctypes.byref(how), size)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd

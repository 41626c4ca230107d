"""Linux system calls for which Python has no function; on other systems `IS_LINUX` is false.

The *quick* functions keep the interpreter's lock, because they never wait. Releasing the lock can
cost milliseconds when another thread computes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from functools import cache
from typing import Any, NamedTuple

# The address of a `struct open_how`, which tells the kernel how to open a file.
How = ctypes.c_void_p

IS_LINUX = sys.platform == "linux"

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
# Use the attributes in the kernel's cache, and ask no server or disk.
AT_STATX_DONT_SYNC = 0x4000

# Fail with EAGAIN if a name is not in the kernel's cache (since Linux 5.12).
RESOLVE_CACHED = 0x20
RESOLVE_NO_SYMLINKS = 0x04

RENAME_NOREPLACE = 1

_SYS_OPENAT2 = 437
STATX_BTIME = 0x800
_STATX = struct.Struct("=I24xH2xQQ32xqI4x16xqI4x8xII112x")


class Statx(NamedTuple):
    """The members of `struct statx` that are used here."""

    mask: int
    mode: int
    inode: int
    size: int
    birth_seconds: int
    birth_nanoseconds: int
    modified_seconds: int
    modified_nanoseconds: int
    device_major: int
    device_minor: int


_close = os.close
# This is `Statx._make` without its check of the length.
_new_statx: Any = tuple.__new__


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


@cache
def _kept_how(flags: int, mode: int, resolve: int) -> _OpenHow:
    # The kernel only reads it, so that all threads can share it.
    return _OpenHow(flags | os.O_CLOEXEC, mode, resolve)


def _how(flags: int, mode: int, resolve: int) -> How:
    return How(ctypes.addressof(_kept_how(flags, mode, resolve)))


# Arguments that are made once take half of the time of those that ctypes converts in each call by
# a function's argtypes, so the functions have no argtypes.
_OPENAT2 = ctypes.c_long(_SYS_OPENAT2)
_OPEN_HOW_BYTES = ctypes.c_long(ctypes.sizeof(_OpenHow))
_CURRENT = ctypes.c_long(AT_FDCWD)
_ITSELF = ctypes.c_char_p(b"")
_QUICK_FLAGS = ctypes.c_int(AT_EMPTY_PATH | AT_STATX_DONT_SYNC)
# The basic attributes and the time of birth.
_STATX_MASK = ctypes.c_uint(0xFFF)

if IS_LINUX:
    _libc = ctypes.CDLL(None, use_errno=True)
    _quick_libc = ctypes.PyDLL(None, use_errno=True)
    _syscall, _quick_syscall = _libc.syscall, _quick_libc.syscall
    _statx: Any = getattr(_libc, "statx", None)
    _quick_statx: Any = getattr(_quick_libc, "statx", None)


def has_statx() -> bool:
    return IS_LINUX and _statx is not None


def has_openat2(resolve: int) -> bool:
    """True if openat2 works with these flags; a container's filter may refuse it."""
    if not IS_LINUX:
        return False
    try:
        os.close(openat2(b"/", os.O_PATH, resolve=resolve))
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def openat2(path: bytes, flags: int, *, resolve: int = 0) -> int:
    """Open *path* and return a descriptor that children do not inherit. Raises OSError."""
    how = _how(flags, 0, resolve)
    fd: int = _syscall(_OPENAT2, _CURRENT, path, how, _OPEN_HOW_BYTES)
    if fd < 0:
        raise _error()
    return fd


def openat2_quick(path: bytes, how: How) -> int:
    """Open *path* with a *how* of `cached_how`. Raises BlockingIOError if that would wait."""
    fd: int = _quick_syscall(_OPENAT2, _CURRENT, path, how, _OPEN_HOW_BYTES)
    if fd < 0:
        raise _error()
    return fd


def cached_how(flags: int, resolve: int = 0) -> How:
    """The *how* for `openat2_quick`: open only files that the kernel finds in its cache."""
    return _how(flags, 0, resolve | RESOLVE_CACHED)


def statx(path: bytes, *, dir_fd: int = AT_FDCWD, flags: int = 0) -> Statx:
    """The attributes of *path*; with AT_EMPTY_PATH of *dir_fd* itself. Raises OSError."""
    buffer = ctypes.create_string_buffer(_STATX.size)
    if _statx(dir_fd, path, flags, _STATX_MASK, buffer) < 0:
        raise _error()
    return Statx._make(_STATX.unpack(buffer))


class QuickStatx:
    """statx without waiting. It has one buffer, so only one thread may use it."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(_STATX.size)
        self._address = ctypes.c_void_p(ctypes.addressof(self._buffer))

    def of(self, fd: int) -> Statx:
        """The attributes of the open file *fd*."""
        if _quick_statx(fd, _ITSELF, _QUICK_FLAGS, _STATX_MASK, self._address) < 0:
            raise _error()
        found: Statx = _new_statx(Statx, _STATX.unpack(self._buffer))
        return found

    def at(self, path: bytes, how: How) -> Statx:
        """The attributes of the file that `openat2_quick` would open, with few system calls."""
        fd = _quick_syscall(_OPENAT2, _CURRENT, path, how, _OPEN_HOW_BYTES)
        if fd < 0:
            raise _error()
        failed = _quick_statx(fd, _ITSELF, _QUICK_FLAGS, _STATX_MASK, self._address)
        _close(fd)
        if failed:
            raise _error()
        found: Statx = _new_statx(Statx, _STATX.unpack(self._buffer))
        return found


def rename_new(source: bytes, destination: bytes, *, source_fd: int, destination_fd: int) -> None:
    """Rename to a free name. Raises OSError; EINVAL or ENOSYS if the system cannot do it."""
    renameat2 = getattr(_libc, "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = ctypes.c_uint(RENAME_NOREPLACE)
    if renameat2(source_fd, source, destination_fd, destination, flags) < 0:
        raise _error()


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))

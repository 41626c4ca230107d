"""Room on the disk that is set aside for the next lines of a file, beyond its end.

With it, a server that must not work without its audit log can still write about the work that was
under way when the disk became full.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache

_RESERVE_BYTES = 256 * 1024
# If less than this is left, more is set aside.
_LOW_BYTES = 128 * 1024
_KEEP_SIZE = 1
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTSUP)


class LineReserve:
    """The reserve of one open file. Where none can be set aside, free room has to be enough."""

    def __init__(self) -> None:
        self._until = 0

    def is_enough(self, descriptor: int, size: int) -> bool:
        """True if there is room for the next lines of a file of *size* bytes."""
        if size + _LOW_BYTES <= self._until:
            return True
        try:
            _allocate(descriptor, size, _RESERVE_BYTES)
        except OSError as exc:
            if exc.errno in _UNSUPPORTED:
                return _has_free(descriptor)
            return False
        self._until = size + _RESERVE_BYTES
        return True


def _has_free(descriptor: int) -> bool:
    found = os.fstatvfs(descriptor)
    return found.f_bavail * found.f_frsize >= _RESERVE_BYTES


def _allocate(descriptor: int, offset: int, size: int) -> None:
    """Set blocks aside without a change of the file's size, which `os.posix_fallocate` changes."""
    function = _fallocate()
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if function(descriptor, _KEEP_SIZE, offset, size) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _fallocate() -> ctypes._NamedFuncPointer | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate64
    except AttributeError:
        try:
            function = ctypes.CDLL(None, use_errno=True).fallocate
        except AttributeError:
            return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function

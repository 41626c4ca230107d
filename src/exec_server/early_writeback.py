"""Let the kernel begin to write content to the disk, without waiting until it is there.

ext4 begins when a file is renamed over another one, and the rename takes as long as handing all of
the content to the disk: a quarter of a second for 1 GiB, or more. Content that is on its way
already costs the rename nothing, and what a crash leaves behind is the same.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

_SYNC_FILE_RANGE_WRITE = 2


def begin_writing(fd: int, offset: int, size: int) -> None:
    """Begin to write a part of a file. Does nothing where the kernel has no such call."""
    call = _sync_file_range()
    if call is not None:
        # An error is no loss: the content is written later then.
        call(fd, offset, size, _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Any:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call

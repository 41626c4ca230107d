"""The attributes of files: kind, size and times."""

from __future__ import annotations

import os
from typing import Any

from exec_server.files.nowait import linux_calls
from exec_server.files.nowait.linux_calls import Statx
from exec_server.protocol.fs import Metadata


def metadata_of(status: Statx, *, is_symlink: bool = False) -> Metadata:
    """*status* as the result of fs/getMetadata."""
    mask, mode, _, size, birth, birth_ns, modified, modified_ns, _, _ = status
    kind = mode & 0o170000
    return Metadata(
        kind == 0o040000,
        kind == 0o100000,
        is_symlink,
        size,
        birth * 1000 + birth_ns // 1_000_000 if mask & linux_calls.STATX_BTIME else 0,
        modified * 1000 + modified_ns // 1_000_000,
    )


def status(path: bytes, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Statx:
    """The attributes of *path*, below the directory *dir_fd* if it is given. Raises OSError."""
    if linux_calls.has_statx():
        flags = 0 if follow_symlinks else linux_calls.AT_SYMLINK_NOFOLLOW
        return linux_calls.statx(
            path, dir_fd=linux_calls.AT_FDCWD if dir_fd is None else dir_fd, flags=flags
        )
    found: Any = os.stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    return _as_statx(found)


def status_of_descriptor(fd: int) -> Statx:
    if linux_calls.has_statx():
        return linux_calls.statx(b"", dir_fd=fd, flags=linux_calls.AT_EMPTY_PATH)
    return _as_statx(os.fstat(fd))


def _as_statx(found: Any) -> Statx:
    birth = getattr(found, "st_birthtime", None)
    created = int((birth or 0.0) * 1000)
    modified, nanoseconds = divmod(found.st_mtime_ns, 1_000_000_000)
    return Statx(
        mask=0 if birth is None else linux_calls.STATX_BTIME,
        mode=found.st_mode,
        inode=found.st_ino,
        size=found.st_size,
        birth_seconds=created // 1000,
        birth_nanoseconds=created % 1000 * 1_000_000,
        modified_seconds=modified,
        modified_nanoseconds=nanoseconds,
        device_major=os.major(found.st_dev),
        device_minor=os.minor(found.st_dev),
    )

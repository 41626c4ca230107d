"""Removing a directory with everything in it, without following links and at any depth."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from exec_server.files.operations.oserrors import os_error

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class _Level(NamedTuple):
    """A directory above the current one."""

    device: int
    inode: int
    # Of the directory that was entered from here.
    name: bytes
    # What is still to be entered.
    directories: list[bytes]


def remove_tree(path: bytes) -> None:
    """Remove the directory *path*. What cannot be removed raises OSError; the rest stays removed.

    One descriptor is enough for any depth: the way back up goes by "..", and must lead to where
    the way down came from. Otherwise somebody has moved the directory, and we stop.
    """
    current = os.open(path, _OPEN)
    try:
        levels: list[_Level] = []
        directories = _empty(current)
        while True:
            if directories:
                name = directories.pop()
                below = _enter(current, name)
                if below is not None:
                    levels.append(_Level(*_identity(current), name, directories))
                    os.close(current)
                    current = below
                    directories = _empty(current)
            elif levels:
                level = levels.pop()
                current = _ascend(current, level)
                directories = level.directories
                _remove_directory(current, level.name)
            else:
                break
    finally:
        os.close(current)
    os.rmdir(path)


def _empty(directory: int) -> list[bytes]:
    """Unlink everything in *directory* but directories, whose names are returned."""
    directories = []
    with os.scandir(directory) as entries:
        # Listed before anything is unlinked, which some file systems need.
        names = [(os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries]
    for name, is_directory in names:
        if is_directory or not _unlinked(directory, name):
            directories.append(name)
    return directories


def _unlinked(directory: int, name: bytes) -> bool:
    """Unlink a file, which may be gone already; False when it is a directory by now."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except OSError as exc:
        if exc.errno not in (errno.EISDIR, errno.EPERM):
            raise
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            raise
        return False
    return True


def _enter(directory: int, name: bytes) -> int | None:
    """Open a directory below; None when it is gone or is none any more, and dealt with."""
    try:
        return os.open(name, _OPEN, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
    # Replaced meanwhile, perhaps by a link: that is unlinked, not entered.
    _unlinked(directory, name)
    return None


def _ascend(current: int, level: _Level) -> int:
    above = os.open(b"..", _OPEN, dir_fd=current)
    if _identity(above) != (level.device, level.inode):
        os.close(above)
        raise os_error(errno.EBUSY)
    os.close(current)
    return above


def _remove_directory(directory: int, name: bytes) -> None:
    try:
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        pass


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino

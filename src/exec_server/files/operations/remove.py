"""Remove a directory with everything in it, at any depth and without following links."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from exec_server.files.operations import changes
from exec_server.files.operations.oserrors import os_error

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class _Level(NamedTuple):
    """A directory above the current one."""

    device: int
    inode: int
    # The name of the directory that was entered from here.
    name: bytes
    # The names of directories that are still to be entered.
    directories: list[bytes]


def remove_tree(path: bytes) -> None:
    """Remove the directory *path*. Raises OSError at the first entry that cannot be removed.

    One descriptor is enough for any depth. The way back up uses "..", which must be the directory
    that we came from. If it is not, the directory was moved meanwhile, and removing stops.
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
    changes.remove_directory(path)


def _empty(directory: int) -> list[bytes]:
    """Unlink everything in *directory* except directories, and return their names."""
    directories = []
    with os.scandir(directory) as entries:
        # Some file systems need the whole list before the first entry is unlinked.
        names = [(os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries]
    for name, is_directory in names:
        if is_directory or not _unlinked(directory, name):
            directories.append(name)
    return directories


def _unlinked(directory: int, name: bytes) -> bool:
    """Unlink a file, which may be gone already. Returns False if it is a directory now."""
    try:
        changes.unlink(name, dir_fd=directory)
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
    """Open a directory below. Returns None if it is gone, or was replaced and is unlinked."""
    try:
        return os.open(name, _OPEN, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
    # It was replaced, perhaps by a link. A link is unlinked and not entered.
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
        changes.remove_directory(name, dir_fd=directory)
    except FileNotFoundError:
        pass


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino

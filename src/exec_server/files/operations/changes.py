"""System calls that make, change or remove a name, except for names that are kept closed.

Some names must not be made in a sandbox, for example `.git` in a workspace that has none. A command
finds something empty mounted there, which takes an empty directory on the host. A confined helper
runs our own code, and so it keeps these names closed itself (`keep_closed`), and nothing is made.
Each call is then done in a directory that was judged: the parent is opened, its path is compared,
and the last name is used below its descriptor without following a link. A link that is swapped
meanwhile leads nowhere else. Without closed names these functions are those of `os`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from exec_server.files.operations.oserrors import os_error
from exec_server.protocol.permissions import PROTECTED_NAMES

# The kernel follows this many symbolic links in one path.
_MOST_LINKS = 40
_PARENT = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_NO_NAMES = (b"", b".", b"..")
_PROTECTED = frozenset(name.encode() for name in PROTECTED_NAMES)


class _ClosedName(NamedTuple):
    # The path of its directory, with a slash at the end.
    above: bytes
    name: bytes
    # The device and the inode of the directory, which may have more than one path.
    identity: tuple[int, int] | None

    def is_named(self, name: bytes) -> bool:
        # Some file systems do not distinguish upper and lower case.
        return name == self.name or (self.name in _PROTECTED and name.lower() == self.name)


_closed: tuple[_ClosedName, ...] = ()


def keep_closed(paths: Iterable[bytes]) -> None:
    """From now on nothing at or below *paths*, which are free of links, is made or changed."""
    global _closed
    split = [os.path.split(path) for path in paths]
    _closed = tuple(
        _ClosedName(above.rstrip(b"/") + b"/", name, _identity(above)) for above, name in split
    )


def _identity(path: bytes) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check(directory: int, name: bytes) -> None:
    """Raise OSError if *name* in *directory* is closed."""
    if not _closed:
        return
    found = os.fstat(directory)
    identity = found.st_dev, found.st_ino
    if any(closed.identity == identity and closed.is_named(name) for closed in _closed):
        raise os_error(errno.EROFS)
    if _is_closed(os.path.join(_path_of(directory), name)):
        raise os_error(errno.EROFS)


def open_file(path: bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """Like `os.open`."""
    if not _closed or not flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
        return os.open(path, flags, mode, dir_fd=dir_fd)
    with contextlib.ExitStack() as opened:
        for _ in range(_MOST_LINKS):
            name, dir_fd = opened.enter_context(_judged(path, dir_fd))
            if os.path.basename(name) in _NO_NAMES:
                # It is a directory, which cannot be written; the kernel says so.
                return os.open(name, flags & ~(os.O_CREAT | os.O_TRUNC), dir_fd=dir_fd)
            try:
                return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=dir_fd)
            except OSError as exc:
                if exc.errno != errno.ELOOP or flags & os.O_NOFOLLOW:
                    raise
            path = os.readlink(name, dir_fd=dir_fd)
    raise os_error(errno.ELOOP)


def make_directory(path: bytes, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    """Like `os.mkdir`."""
    with _judged(path, dir_fd) as (name, directory):
        os.mkdir(name, mode, dir_fd=directory)


def make_symlink(target: bytes, path: bytes, *, dir_fd: int | None = None) -> None:
    """Like `os.symlink`."""
    with _judged(path, dir_fd) as (name, directory):
        os.symlink(target, name, dir_fd=directory)


def unlink(path: bytes, *, dir_fd: int | None = None) -> None:
    """Like `os.unlink`."""
    with _judged(path, dir_fd) as (name, directory):
        os.unlink(name, dir_fd=directory)


def remove_directory(path: bytes, *, dir_fd: int | None = None) -> None:
    """Like `os.rmdir`."""
    with _judged(path, dir_fd) as (name, directory):
        os.rmdir(name, dir_fd=directory)


def rename(old: bytes, new: bytes, *, src_dir_fd: int, dst_dir_fd: int) -> None:
    """Like `os.rename`, for names without a slash."""
    check(src_dir_fd, old)
    check(dst_dir_fd, new)
    os.rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


@contextlib.contextmanager
def attributes_of(path: bytes) -> Iterator[bytes]:
    """A path for `os.chmod` and `os.utime` that leads to the file at *path*, links followed."""
    if not _closed:
        yield path
        return
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if _is_closed(_path_of(fd)):
            raise os_error(errno.EROFS)
        yield b"/proc/self/fd/%d" % fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _judged(path: bytes, dir_fd: int | None) -> Iterator[tuple[bytes, int | None]]:
    """The last name of *path* and the open directory in which it is not closed."""
    if not _closed:
        yield path, dir_fd
        return
    above, name = os.path.split(path.rstrip(b"/"))
    if name in _NO_NAMES:
        yield path, dir_fd
        return
    directory = os.open(above or b".", _PARENT, dir_fd=dir_fd)
    try:
        check(directory, name)
        yield name, directory
    finally:
        os.close(directory)


def _path_of(fd: int) -> bytes:
    return os.readlink(b"/proc/self/fd/%d" % fd)


def _is_closed(path: bytes) -> bool:
    return any(
        closed.is_named(path[len(closed.above) :].partition(b"/")[0])
        for closed in _closed
        if path.startswith(closed.above)
    )

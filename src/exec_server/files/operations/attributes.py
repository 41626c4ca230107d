"""Methods of ours that change what is already there: rename, mode and times."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from exec_server.errors import InvalidRequest
from exec_server.files.nowait import linux_calls
from exec_server.files.operations import nofollow
from exec_server.files.operations.oserrors import os_error

_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def rename(source: bytes, destination: bytes, overwrite: bool, follow_symlinks: bool) -> None:
    """Rename within a file system; without *overwrite* only to where nothing is."""
    with (
        _parent(source, follow_symlinks) as (source_fd, old),
        _parent(destination, follow_symlinks) as (destination_fd, new),
    ):
        if overwrite:
            os.rename(old, new, src_dir_fd=source_fd, dst_dir_fd=destination_fd)
        else:
            _rename_new(old, new, source_fd, destination_fd)


def _rename_new(old: bytes, new: bytes, source_fd: int, destination_fd: int) -> None:
    if linux_calls.IS_LINUX:
        try:
            linux_calls.rename_new(old, new, source_fd=source_fd, destination_fd=destination_fd)
            return
        except OSError as exc:
            # Not every file system can; a directory below itself is EINVAL on all of them.
            if exc.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
    try:
        os.stat(new, dir_fd=destination_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(old, new, src_dir_fd=source_fd, dst_dir_fd=destination_fd)
    else:
        raise os_error(errno.EEXIST)


@contextlib.contextmanager
def _parent(path: bytes, follow_symlinks: bool) -> Iterator[tuple[int, bytes]]:
    if not follow_symlinks:
        with nofollow.parent_of(path) as found:
            yield found
        return
    parent, name = os.path.split(path)
    if not name:
        raise InvalidRequest("path must name an entry")
    directory = os.open(parent, nofollow.SEARCH & ~os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield directory, name
    finally:
        os.close(directory)


def set_permissions(
    path: bytes,
    mode: int | None,
    modified_ms: int | None,
    accessed_ms: int | None,
    follow_symlinks: bool,
) -> None:
    """Set what is not None. Nothing is opened for reading, so no right to read is needed."""
    with _named(path, follow_symlinks) as name:
        if mode is not None:
            os.chmod(name, mode)
        if modified_ms is not None or accessed_ms is not None:
            found = os.stat(name)
            accessed = found.st_atime_ns if accessed_ms is None else accessed_ms * 1_000_000
            modified = found.st_mtime_ns if modified_ms is None else modified_ms * 1_000_000
            os.utime(name, ns=(accessed, modified))


@contextlib.contextmanager
def _named(path: bytes, follow_symlinks: bool) -> Iterator[bytes | int]:
    """What chmod and utime take for *path*: itself, or a name of a descriptor of it."""
    if follow_symlinks or path == b"/":
        yield path
        return
    flags = (os.O_PATH if linux_calls.IS_LINUX else os.O_RDONLY) | os.O_NOFOLLOW | _FLAGS
    with nofollow.parent_of(path) as (directory, name):
        fd = os.open(name, flags, dir_fd=directory)
    try:
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            raise InvalidRequest(nofollow.CONTAINS_LINK)
        # The only way to a descriptor that is good for nothing but its name.
        yield b"/proc/self/fd/%d" % fd if linux_calls.IS_LINUX else fd
    finally:
        os.close(fd)

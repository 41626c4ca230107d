"""fs/rename and fs/setPermissions: methods of our own that change a name, a mode or times."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

from exec_server.errors import InvalidRequest
from exec_server.files.nowait import linux_calls
from exec_server.files.operations import changes, nofollow
from exec_server.files.operations.oserrors import os_error

_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# Opens the parent directory of a path for one block, and gives the last name with it.
_FindParent = Callable[[bytes], contextlib.AbstractContextManager[tuple[int, bytes]]]


def rename(source: bytes, destination: bytes, overwrite: bool) -> None:
    """Rename within a file system; without *overwrite* only to a name that is free."""
    _rename(_parent, source, destination, overwrite)


def rename_nofollow(source: bytes, destination: bytes, overwrite: bool) -> None:
    _rename(nofollow.parent_of, source, destination, overwrite)


def _rename(parent: _FindParent, source: bytes, destination: bytes, overwrite: bool) -> None:
    with parent(source) as (source_fd, old), parent(destination) as (destination_fd, new):
        if overwrite:
            changes.rename(old, new, src_dir_fd=source_fd, dst_dir_fd=destination_fd)
        else:
            _rename_new(old, new, source_fd, destination_fd)


def _rename_new(old: bytes, new: bytes, source_fd: int, destination_fd: int) -> None:
    changes.check(source_fd, old)
    changes.check(destination_fd, new)
    if linux_calls.IS_LINUX:
        try:
            linux_calls.rename_new(old, new, source_fd=source_fd, destination_fd=destination_fd)
            return
        except OSError as exc:
            # Not every file system can do it. EINVAL is also a directory below itself.
            if exc.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
    try:
        os.stat(new, dir_fd=destination_fd, follow_symlinks=False)
    except FileNotFoundError:
        changes.rename(old, new, src_dir_fd=source_fd, dst_dir_fd=destination_fd)
    else:
        raise os_error(errno.EEXIST)


@contextlib.contextmanager
def _parent(path: bytes) -> Iterator[tuple[int, bytes]]:
    parent, name = os.path.split(path)
    if not name:
        raise InvalidRequest("path must name an entry")
    directory = os.open(parent, nofollow.SEARCH & ~os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield directory, name
    finally:
        os.close(directory)


def set_permissions(
    path: bytes, mode: int | None, modified_ms: int | None, accessed_ms: int | None
) -> None:
    """Set the values that are not None. No permission to read the file is needed."""
    with changes.attributes_of(path) as name:
        _set(name, mode, modified_ms, accessed_ms)


def set_permissions_nofollow(
    path: bytes, mode: int | None, modified_ms: int | None, accessed_ms: int | None
) -> None:
    with _named(path) as name:
        _set(name, mode, modified_ms, accessed_ms)


def _set(
    name: bytes | int, mode: int | None, modified_ms: int | None, accessed_ms: int | None
) -> None:
    if mode is not None:
        os.chmod(name, mode)
    if modified_ms is not None or accessed_ms is not None:
        found = os.stat(name)
        accessed = found.st_atime_ns if accessed_ms is None else accessed_ms * 1_000_000
        modified = found.st_mtime_ns if modified_ms is None else modified_ms * 1_000_000
        os.utime(name, ns=(accessed, modified))


@contextlib.contextmanager
def _named(path: bytes) -> Iterator[bytes | int]:
    """A name for chmod and utime that leads to *path* itself and to no symbolic link."""
    if path == b"/":
        yield path
        return
    flags = (os.O_PATH if linux_calls.IS_LINUX else os.O_RDONLY) | os.O_NOFOLLOW | _FLAGS
    with nofollow.parent_of(path) as (directory, name):
        changes.check(directory, name)
        fd = os.open(name, flags, dir_fd=directory)
    try:
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            raise InvalidRequest(nofollow.CONTAINS_LINK)
        # A descriptor opened with O_PATH can only be used through this name.
        yield b"/proc/self/fd/%d" % fd if linux_calls.IS_LINUX else fd
    finally:
        os.close(fd)

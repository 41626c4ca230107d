"""The file methods for `followSymlinks: false`: no component of the path may be a symbolic link.

The parent is opened once without following links, and the last name is looked up below its
descriptor. Renames in the meantime cannot lead to a file outside of that directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from exec_server.errors import InternalError, InvalidRequest
from exec_server.files.nowait import linux_calls
from exec_server.files.operations import changes
from exec_server.files.operations.content import (
    Content,
    IsCancelled,
    read_all,
    whole,
    write_all,
    write_content,
)
from exec_server.files.operations.oserrors import os_error
from exec_server.files.operations.status import metadata_of, status, status_of_descriptor
from exec_server.protocol.fs import AppendResult, Metadata
from exec_server.protocol.method import Encoded

# Opens a directory to look names up in it, which needs only the permission to search it.
SEARCH = (os.O_PATH if linux_calls.IS_LINUX else os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_NOFOLLOW = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_HAS_OPENAT2 = linux_calls.has_openat2(linux_calls.RESOLVE_NO_SYMLINKS)

CONTAINS_LINK = "path contains a symbolic link"
NOT_REGULAR = "path is not a regular file"


def read_file(path: bytes, limit: int, is_cancelled: IsCancelled) -> Encoded:
    with parent_of(path) as (directory, name):
        fd = os.open(name, os.O_RDONLY | _NOFOLLOW, dir_fd=directory)
    try:
        size = _regular_size(fd)
        return read_all(fd, size=size, limit=limit, is_cancelled=is_cancelled)
    finally:
        os.close(fd)


def write_file(path: bytes, content: Content) -> None:
    with parent_of(path) as (directory, name):
        flags = os.O_WRONLY | os.O_CREAT | _NOFOLLOW
        fd = changes.open_file(name, flags, 0o666, dir_fd=directory)
    try:
        _regular_size(fd)
        os.ftruncate(fd, 0)
        write_content(fd, content)
    finally:
        os.close(fd)


def append(path: bytes, create: bool, content: Content) -> AppendResult:
    flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT if create else 0) | _NOFOLLOW
    with parent_of(path) as (directory, name):
        fd = changes.open_file(name, flags, 0o666, dir_fd=directory)
    try:
        _regular_size(fd)
        write_all(fd, whole(content))
        return AppendResult(os.fstat(fd).st_size)
    finally:
        os.close(fd)


def create_directory(path: bytes, recursive: bool) -> None:
    names = _names(path)
    if not names and not recursive:
        raise InternalError("directory already exists")
    directory = os.open(b"/", SEARCH | os.O_CLOEXEC)
    try:
        for index, name in enumerate(names):
            is_last = index == len(names) - 1
            if is_last or recursive:
                _make(directory, name, must_be_new=is_last and not recursive)
            directory = _step(directory, name)
    finally:
        os.close(directory)


def _make(directory: int, name: bytes, *, must_be_new: bool) -> None:
    """Make a directory. One that exists is an error only if *must_be_new*."""
    try:
        changes.make_directory(name, 0o777, dir_fd=directory)
    except FileExistsError:
        if must_be_new:
            raise


def get_metadata(path: bytes) -> Metadata:
    if path == b"/":
        return metadata_of(status(path))
    with parent_of(path) as (directory, name):
        found = status(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(found.mode):
        raise InvalidRequest(CONTAINS_LINK)
    return metadata_of(found)


def remove(path: bytes, recursive: bool, force: bool) -> None:
    if recursive:
        raise InternalError("recursive no-follow removal is unsupported")
    try:
        with parent_of(path) as (directory, name):
            mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                raise InvalidRequest(CONTAINS_LINK)
            remove_entry = changes.remove_directory if stat.S_ISDIR(mode) else changes.unlink
            remove_entry(name, dir_fd=directory)
    except FileNotFoundError:
        if not force:
            raise


def _regular_size(fd: int) -> int:
    found = status_of_descriptor(fd)
    if not stat.S_ISREG(found.mode):
        error = InvalidRequest(NOT_REGULAR)
        if stat.S_ISDIR(found.mode):
            error.errno = errno.EISDIR
        raise error
    return found.size


# The parent directory.


@contextlib.contextmanager
def parent_of(path: bytes) -> Iterator[tuple[int, bytes]]:
    """The open parent directory of *path* and its last name, for one block.

    A symbolic link in the path raises ENOTDIR, because it is not a directory.
    """
    names = _names(path)
    if not names:
        raise InvalidRequest("path must name an entry")
    directory = open_directory(path[: -len(names[-1])])
    try:
        yield directory, names[-1]
    finally:
        os.close(directory)


def open_directory(path: bytes) -> int:
    """A descriptor of the directory *path*, to look names up in it."""
    if _HAS_OPENAT2:
        try:
            return linux_calls.openat2(path, SEARCH, resolve=linux_calls.RESOLVE_NO_SYMLINKS)
        except OSError as exc:
            if exc.errno == errno.ELOOP:
                raise os_error(errno.ENOTDIR) from exc
            # Directory by directory, also a path that is too long for one call can be opened.
            if exc.errno != errno.ENAMETOOLONG:
                raise
    return _open_stepwise(path)


def _open_stepwise(path: bytes) -> int:
    directory = os.open(b"/", SEARCH | os.O_CLOEXEC)
    try:
        for name in _names(path):
            directory = _step(directory, name)
    except BaseException:
        os.close(directory)
        raise
    return directory


def _step(directory: int, name: bytes) -> int:
    """Open the directory *name* in *directory*, which is closed on success."""
    try:
        below = os.open(name, SEARCH | os.O_CLOEXEC, dir_fd=directory)
    except OSError as exc:
        # On systems without O_PATH the error for a symbolic link is ELOOP.
        raise os_error(errno.ENOTDIR) if exc.errno == errno.ELOOP else exc from None
    os.close(directory)
    return below


def _names(path: bytes) -> list[bytes]:
    return [name for name in path.split(b"/") if name]

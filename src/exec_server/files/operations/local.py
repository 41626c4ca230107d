"""The file methods by default: they follow symbolic links. All functions may block."""

from __future__ import annotations

import ctypes
import errno
import os
import stat

from exec_server.errors import InvalidRequest
from exec_server.files.operations import changes
from exec_server.files.operations.content import (
    Content,
    IsCancelled,
    read_all,
    whole,
    write_all,
    write_content,
)
from exec_server.files.operations.oserrors import lossy, os_error
from exec_server.files.operations.remove import remove_tree
from exec_server.files.operations.status import metadata_of, status
from exec_server.protocol.fs import AppendResult, Metadata
from exec_server.protocol.method import Encoded

# Opening must not wait for the other end of a FIFO, nor make a terminal our controlling one.
QUIET = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Flags of open(2).
READ = os.O_RDONLY
REPLACE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
# By the mode of `fs/open`.
OPEN_FLAGS = {"read": READ, "replace": REPLACE, "update": os.O_RDWR | os.O_CREAT}

_realpath = ctypes.CDLL(None, use_errno=True).realpath
_realpath.restype = ctypes.c_void_p
_PATH_MAX = 4096


class SpecialFile(Exception):
    """The file to write is a FIFO or a device, where writing may wait for ever.

    If it was opened before this was known, `fd` is its descriptor, which the catcher closes.
    """

    def __init__(self, fd: int | None = None) -> None:
        super().__init__("a FIFO or a device")
        self.fd = fd


def not_a_file(path: bytes, mode: int) -> InvalidRequest:
    error = InvalidRequest(f"path `{lossy(path)}` is not a file")
    if stat.S_ISDIR(mode):
        error.errno = errno.EISDIR
    return error


def open_regular(path: bytes, flags: int) -> tuple[int, int]:
    """The descriptor and size of a regular file. Raises InvalidRequest for anything else."""
    fd = changes.open_file(path, flags | QUIET, 0o666)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode):
        return fd, found.st_size
    os.close(fd)
    raise not_a_file(path, found.st_mode)


def read_file(path: bytes, limit: int, is_cancelled: IsCancelled) -> Encoded:
    fd, size = open_regular(path, READ)
    try:
        return read_all(fd, size=size, limit=limit, is_cancelled=is_cancelled)
    finally:
        os.close(fd)


def write_file(path: bytes, content: Content) -> None:
    """Replace the content of a file in place. Raises SpecialFile for a FIFO or a device."""
    if is_special(path):
        raise SpecialFile
    fd = changes.open_file(path, REPLACE | QUIET, 0o666)
    try:
        write_content(fd, content)
    finally:
        os.close(fd)


def is_special(path: bytes) -> bool:
    """True if *path* leads to a FIFO or a device."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        # Opening the file will raise the same error.
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def append(path: bytes, create: bool, content: Content) -> AppendResult:
    flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT if create else 0)
    fd, _ = open_regular(path, flags)
    try:
        write_all(fd, whole(content))
        return AppendResult(os.fstat(fd).st_size)
    finally:
        os.close(fd)


def create_directory(path: bytes, recursive: bool) -> None:
    if recursive:
        make_directories(path)
    else:
        changes.make_directory(path)


def make_directories(path: bytes) -> None:
    """Make *path* and its parents, unless they exist."""
    missing: list[bytes] = []
    while not _made(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        if not _made(path):
            raise os_error(errno.ENOENT)


def _made(path: bytes) -> bool:
    """Make the directory *path* unless it exists; False if its parent does not."""
    try:
        changes.make_directory(path)
    except FileNotFoundError:
        return False
    except OSError:
        if not os.path.isdir(path):
            raise
    return True


def get_metadata(path: bytes) -> Metadata:
    found = status(path, follow_symlinks=False)
    if not stat.S_ISLNK(found.mode):
        return metadata_of(found)
    return metadata_of(status(path), is_symlink=True)


def canonicalize(path: bytes) -> bytes:
    """*path* with all symbolic links resolved. Raises OSError if it does not exist."""
    buffer = ctypes.create_string_buffer(_PATH_MAX)
    if _realpath(path, buffer) is None:
        raise os_error(ctypes.get_errno())
    return buffer.value


def remove(path: bytes, recursive: bool, force: bool) -> None:
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            changes.unlink(path)
        elif recursive:
            remove_tree(path)
        else:
            changes.remove_directory(path)
    except FileNotFoundError:
        if not force:
            raise

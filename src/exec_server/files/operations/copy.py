"""fs/copy: copies files, links and directories with all that is in them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from exec_server.errors import InvalidRequest
from exec_server.files.operations import changes
from exec_server.files.operations.content import fill, write_all
from exec_server.files.operations.local import QUIET, canonicalize, make_directories

# The size of one system call, which cannot be interrupted. No lock is held meanwhile.
_STEP_BYTES = 64 * 1024 * 1024
_BUFFER_BYTES = 256 * 1024
# The errors for two files between which the kernel cannot copy by itself.
_CANNOT_HERE = {
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EOVERFLOW,
}


def copy(source: bytes, destination: bytes, recursive: bool) -> None:
    """Copy *source*; if it is a link, the link itself is copied."""
    mode = os.lstat(source).st_mode
    if stat.S_ISDIR(mode):
        if not recursive:
            raise InvalidRequest("fs/copy requires recursive: true when sourcePath is a directory")
        _refuse_inside(source, destination)
        _copy_tree(source, destination)
    elif stat.S_ISLNK(mode):
        changes.make_symlink(os.readlink(source), destination)
    elif stat.S_ISREG(mode):
        _copy_file(source, destination)
    else:
        raise InvalidRequest("fs/copy only supports regular files, directories, and symlinks")


def _copy_tree(source: bytes, destination: bytes) -> None:
    pending = [(source, destination)]
    while pending:
        above, target = pending.pop()
        make_directories(target)
        with os.scandir(above) as found:
            entries = list(found)
        for entry in entries:
            path = os.path.join(target, entry.name)
            if entry.is_symlink():
                changes.make_symlink(os.readlink(entry.path), path)
            elif entry.is_dir(follow_symlinks=False):
                pending.append((entry.path, path))
            elif entry.is_file(follow_symlinks=False):
                _copy_file(entry.path, path)


def _refuse_inside(source: bytes, destination: bytes) -> None:
    """Refuse to copy a directory into itself; links are resolved before the paths are compared."""
    origin = canonicalize(source)
    target = _canonical_or_missing(destination)
    if target == origin or target.startswith(origin.rstrip(b"/") + b"/"):
        raise InvalidRequest("fs/copy cannot copy a directory to itself or one of its descendants")


def _canonical_or_missing(path: bytes) -> bytes:
    """*path* with the part that exists in canonical form, and the rest as it is."""
    missing = b""
    while True:
        try:
            return os.path.join(canonicalize(path), missing) if missing else canonicalize(path)
        except FileNotFoundError:
            path, name = os.path.split(path)
            missing = os.path.join(name, missing) if missing else name


def _copy_file(source: bytes, destination: bytes) -> None:
    """Copy content and permissions in place; nothing happens if both are the same file."""
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | QUIET)
    try:
        found = os.fstat(reader)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidRequest("fs/copy only supports regular files, directories, and symlinks")
        # Opening must not truncate the file, which may be the source itself.
        flags = os.O_WRONLY | os.O_CREAT | QUIET
        writer = changes.open_file(destination, flags, found.st_mode & 0o777)
        try:
            _fill_from(reader, writer, found)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _fill_from(reader: int, writer: int, source: os.stat_result) -> None:
    target = os.fstat(writer)
    if (target.st_dev, target.st_ino) == (source.st_dev, source.st_ino):
        return
    if not stat.S_ISREG(target.st_mode):
        if stat.S_ISFIFO(target.st_mode):
            raise InvalidRequest("fs/copy cannot write to a FIFO")
        os.set_blocking(writer, True)
        _copy_by_hand(reader, writer)
        return
    os.ftruncate(writer, 0)
    # The mode comes before the content: if it may not be set, the content must not change either.
    # Writing removes set-id bits, except for root.
    os.fchmod(writer, stat.S_IMODE(source.st_mode))
    copy_content(reader, writer)


def copy_content(reader: int, writer: int) -> None:
    """Copy from the position of *reader* to its end."""
    copied = 0
    if hasattr(os, "copy_file_range"):
        copied = _copy_by_kernel(lambda: os.copy_file_range(reader, writer, _STEP_BYTES))
    # The kernel copies nothing of files in /proc, whose content is made while it is read.
    if not copied or os.fstat(reader).st_size != copied:
        _copy_by_hand(reader, writer)


def _copy_by_kernel(step: Callable[[], int]) -> int:
    """Repeat *step* until it returns 0. Returns how many bytes were copied."""
    copied = 0
    try:
        while size := step():
            copied += size
    except OSError as exc:
        if exc.errno not in _CANNOT_HERE:
            raise
    return copied


def _copy_by_hand(reader: int, writer: int) -> None:
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    while size := fill(reader, buffer):
        write_all(writer, buffer[:size])

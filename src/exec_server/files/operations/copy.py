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


def copy(source: bytes, destination: bytes, recursive: bool, archive: bool) -> None:
    """Copy *source*; if it is a link, the link itself is copied.

    With *archive*, the times and the modes of directories are kept, what is there with the same
    size and time stays as it is, and links below *destination* are replaced and not followed.
    """
    mode = os.lstat(source).st_mode
    if stat.S_ISDIR(mode):
        if not recursive:
            raise InvalidRequest("fs/copy requires recursive: true when sourcePath is a directory")
        _refuse_inside(source, destination)
        _copy_tree(source, destination, archive)
    elif stat.S_ISLNK(mode):
        _copy_link(source, destination, archive)
    elif stat.S_ISREG(mode):
        _copy_file(source, destination, archive)
    else:
        raise InvalidRequest("fs/copy only supports regular files, directories, and symlinks")


def _copy_tree(source: bytes, destination: bytes, archive: bool) -> None:
    pending = [(source, destination)]
    made: list[tuple[bytes, os.stat_result]] = []
    while pending:
        above, target = pending.pop()
        make_directories(target)
        if archive:
            made.append((target, os.stat(above)))
            # It is private from now on if it has to be, and can be written.
            _set_attributes(*made[-1], more=stat.S_IRWXU)
        with os.scandir(above) as found:
            entries = list(found)
        for entry in entries:
            path = os.path.join(target, entry.name)
            if entry.is_symlink():
                _copy_link(entry.path, path, archive)
                continue
            if archive and os.path.islink(path):
                changes.unlink(path)
            if entry.is_dir(follow_symlinks=False):
                pending.append((entry.path, path))
            elif entry.is_file(follow_symlinks=False):
                _copy_file(entry.path, path, archive)
    # What is made in a directory changes its time.
    for target, wanted in reversed(made):
        _set_attributes(target, wanted)


def _set_attributes(directory: bytes, wanted: os.stat_result, *, more: int = 0) -> None:
    with changes.attributes_of(directory) as name:
        os.chmod(name, stat.S_IMODE(wanted.st_mode) | more)
        os.utime(name, ns=(wanted.st_atime_ns, wanted.st_mtime_ns))


def _copy_link(source: bytes, destination: bytes, archive: bool) -> None:
    target = os.readlink(source)
    if archive and os.path.islink(destination):
        if os.readlink(destination) == target:
            return
        changes.unlink(destination)
    changes.make_symlink(target, destination)


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


def _copy_file(source: bytes, destination: bytes, archive: bool) -> None:
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
            _fill_from(reader, writer, found, archive)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _fill_from(reader: int, writer: int, source: os.stat_result, archive: bool) -> None:
    target = os.fstat(writer)
    if (target.st_dev, target.st_ino) == (source.st_dev, source.st_ino):
        return
    if not stat.S_ISREG(target.st_mode):
        if stat.S_ISFIFO(target.st_mode):
            raise InvalidRequest("fs/copy cannot write to a FIFO")
        os.set_blocking(writer, True)
        _copy_by_hand(reader, writer)
        return
    is_there = archive and _version(target) == _version(source)
    if not is_there:
        os.ftruncate(writer, 0)
    # The mode comes before the content: if it may not be set, the content must not change either.
    # Writing removes set-id bits, except for root.
    os.fchmod(writer, stat.S_IMODE(source.st_mode))
    if not is_there:
        copy_content(reader, writer)
    if archive:
        os.utime(writer, ns=(source.st_atime_ns, source.st_mtime_ns))


def _version(file: os.stat_result) -> tuple[int, int]:
    """Its size, and its time to the millisecond, as clients compare files."""
    return file.st_size, file.st_mtime_ns // 1_000_000


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

"""The files of a journal: private ones, holes in them, and copies where there are no holes."""

from __future__ import annotations

import errno
import os
import stat

from exec_server.process.journaling.journal_format import CRC, HEADER, STREAMS

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# So much is copied at once.
COPY_BYTES = 1 << 18
FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2
FILE_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


def open_folder(folder: str | os.PathLike[str]) -> int:
    """A descriptor of a folder that is only ours; refuses all others, and symbolic links."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return checked(place, folder, stat.S_ISDIR)


def create_file(name: str, place: int) -> int:
    fd = os.open(name, FILE_FLAGS | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=place)
    # A strange umask must not lock us out.
    os.fchmod(fd, 0o600)
    return fd


def open_file(name: str, place: int) -> int:
    return checked(os.open(name, FILE_FLAGS, dir_fd=place), name, stat.S_ISREG)


def checked(fd: int, path: str | os.PathLike[str], is_kind: Callable[[int], bool]) -> int:
    """The same descriptor, if what it is belongs to us and no one else may open it."""
    found = os.fstat(fd)
    if is_kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
        return fd
    os.close(fd)
    raise PermissionError(errno.EPERM, "is not a private file of this user", os.fspath(path))


def is_incomplete(names: list[str], place: int) -> bool:
    """True if what is there was not written completely, and no output has come."""
    sizes = {name: os.stat(name, dir_fd=place, follow_symlinks=False).st_size for name in names}
    if any(sizes[name] for name in names if name.partition("+")[0] in STREAMS):
        return False
    # The first header is all that is written before the reserve.
    return sizes.get("index", 0) in (0, HEADER.size + CRC.size)


def write_whole(fd: int, data: bytes, at: int) -> None:
    if os.pwrite(fd, data, at) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def next_data(fd: int, at: int) -> int:
    """The first byte from *at* on that is in no hole."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as exc:
        return os.fstat(fd).st_size if exc.errno == errno.ENXIO else at


def copy(source: int, begin: int, target: int, at: int, size: int) -> None:
    while size > 0:
        data = os.pread(source, min(size, COPY_BYTES), begin)
        if not data:
            break
        while data:
            written = os.pwrite(target, data, at)
            begin, at, size = begin + written, at + written, size - written
            data = data[written:]


_fallocate: Any = None


def punch_hole(fd: int, begin: int, size: int) -> bool:
    """Free a part of a file, which keeps its size; False if the system cannot do that."""
    global _fallocate
    import ctypes

    if _fallocate is None:
        try:
            library = ctypes.CDLL(None, use_errno=True)
            _fallocate = getattr(library, "fallocate64", None) or library.fallocate
        except (AttributeError, OSError):
            return False
        _fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if _fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, size) == 0:
        return True
    return ctypes.get_errno() not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

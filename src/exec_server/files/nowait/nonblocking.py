"""File calls that never wait, so that they need no thread.

Names are looked up only in the kernel's cache of names, and only on file systems that do not wait
for other machines. Content is read only from the page cache. If that is not enough, a call returns
None, and a thread does it with the functions of `operations`. Errors are the same in both ways.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from exec_server.errors import InvalidRequest
from exec_server.files.nowait import linux_calls
from exec_server.files.nowait.linux_calls import How, QuickStatx, Statx, cached_how, openat2_quick
from exec_server.files.nowait.mounts import Mounts, Pace
from exec_server.files.operations import content, nofollow
from exec_server.files.operations.local import SpecialFile
from exec_server.files.operations.oserrors import os_error
from exec_server.files.operations.status import metadata_of
from exec_server.protocol.base64 import encode_base64
from exec_server.protocol.fs import Metadata
from exec_server.protocol.method import NOTHING, Encoded, Nothing

_O_PATH = getattr(os, "O_PATH", 0)
_QUIET = os.O_NONBLOCK | os.O_NOCTTY

# To read attributes: of the target of a path, or of its last component itself.
_TARGET = cached_how(_O_PATH)
_ITSELF = cached_how(_O_PATH | os.O_NOFOLLOW)
_ITSELF_PLAIN = cached_how(_O_PATH | os.O_NOFOLLOW, linux_calls.RESOLVE_NO_SYMLINKS)
_PARENT = cached_how(_O_PATH | os.O_DIRECTORY)
# To open a file; the plain ones fail if there is a link in the path.
_READ = cached_how(os.O_RDONLY | _QUIET)
_READ_PLAIN = cached_how(os.O_RDONLY | _QUIET, linux_calls.RESOLVE_NO_SYMLINKS)
_WRITE = cached_how(os.O_WRONLY | _QUIET)
_WRITE_PLAIN = cached_how(os.O_WRONLY | _QUIET, linux_calls.RESOLVE_NO_SYMLINKS)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | _QUIET

# For larger reads the cost of a thread does not matter.
_READ_BYTES = 1024 * 1024
# A write takes locks of the file system also when it does not wait.
_WRITE_BYTES = 64 * 1024


class QuickFile(NamedTuple):
    fd: int
    mode: int
    size: int
    pace: Pace


class Quick:
    """The calls, for the thread of the event loop only: they share their buffers."""

    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts
        self._is_possible = linux_calls.has_statx() and linux_calls.has_openat2(
            linux_calls.RESOLVE_CACHED
        )
        self._statx = QuickStatx()
        self._buffer = memoryview(bytearray(_READ_BYTES))

    def get_metadata(self, path: bytes) -> Metadata | None:
        found = self._look(path, _ITSELF)
        if found is None or not stat.S_ISLNK(found.mode):
            return found and metadata_of(found)
        found = self._look(path, _TARGET)
        return found and metadata_of(found, is_symlink=True)

    def get_metadata_nofollow(self, path: bytes) -> Metadata | None:
        try:
            found = self._look(path, _ITSELF_PLAIN)
        except OSError as exc:
            if exc.errno == errno.ELOOP:
                raise os_error(errno.ENOTDIR) from exc
            if exc.errno == errno.ENAMETOOLONG:
                return None
            raise
        if found is not None and stat.S_ISLNK(found.mode):
            raise InvalidRequest(nofollow.CONTAINS_LINK)
        return found and metadata_of(found)

    def read_file(self, path: bytes) -> Encoded | None:
        opened = self.open(path)
        if opened is None:
            return None
        try:
            if opened.size > _READ_BYTES:
                return None
            data = self._read(opened.fd, 0, opened.size, opened.pace)
        finally:
            os.close(opened.fd)
        if data is None:
            return None
        return Encoded((content.HEAD, encode_base64(data), content.TAIL))

    def read_block(self, fd: int, offset: int, size: int, pace: Pace) -> memoryview | None:
        """Up to *size* bytes at *offset*, which are valid until the next call of any method."""
        if pace is Pace.SLOW or size > _READ_BYTES:
            return None
        return self._read(fd, offset, size, pace, until_end=True)

    def open(self, path: bytes) -> QuickFile | None:
        """Open a regular file for reading."""
        opened = self._open(path, _READ_PLAIN, _READ)
        if opened is None or stat.S_ISREG(opened.mode):
            return opened
        os.close(opened.fd)
        return None

    def pace(self, fd: int) -> Pace:
        """The pace of a file that a thread has opened."""
        return self._pace(self._statx.of(fd)) if self._is_possible else Pace.SLOW

    def write_file(self, path: bytes, data: content.Content) -> Nothing | None:
        """Replace the content. Raises SpecialFile with a descriptor for a FIFO or a device."""
        if not isinstance(data, bytes) or len(data) > _WRITE_BYTES:
            return None
        opened = self._open_to_write(path)
        if opened is None:
            return None
        if not stat.S_ISREG(opened.mode):
            # The descriptor stays open, because closing it would be the end of file for a reader.
            raise SpecialFile(opened.fd)
        try:
            written = os.write(opened.fd, data)
            if written < len(data):
                content.write_all(opened.fd, memoryview(data)[written:])
            # The file is truncated after the write, not before. Freeing blocks and taking them
            # again costs more than the write, and a failed write leaves the file as it was.
            if opened.size > len(data):
                os.ftruncate(opened.fd, len(data))
        finally:
            os.close(opened.fd)
        return NOTHING

    def _open_to_write(self, path: bytes) -> QuickFile | None:
        try:
            return self._open(path, _WRITE_PLAIN, _WRITE)
        except FileNotFoundError:
            return self._create(path)
        except OSError as exc:
            if exc.errno != errno.ENXIO:
                raise
            # A FIFO without a reader: a thread waits for one.
            return None

    def may_write(self, size: int, pace: Pace) -> bool:
        """True if *size* bytes can be written to an open file without a thread."""
        return pace is not Pace.SLOW and size <= _WRITE_BYTES

    def _look(self, path: bytes, how: How) -> Statx | None:
        """The attributes of *path*; None if it is on a slow file system or not cached."""
        if not self._is_possible:
            return None
        try:
            found = self._statx.at(path, how)
        except BlockingIOError:
            return None
        return found if self._pace(found) else None

    def _pace(self, found: Statx) -> Pace:
        return self._mounts.pace_of(os.makedev(found.device_major, found.device_minor))

    def _open(self, path: bytes, plain: How, how: How) -> QuickFile | None:
        """Open *path*. Opening may wait, so the file system is checked first."""
        try:
            if self._is_possible and self._mounts.is_plain(path):
                try:
                    return self._opened(openat2_quick(path, plain))
                except OSError as exc:
                    if exc.errno != errno.ELOOP:
                        raise
            found = self._look(path, _TARGET)
            if found is None or not stat.S_ISREG(found.mode):
                return None
            return self._opened(openat2_quick(path, how), found.inode)
        except BlockingIOError:
            return None

    def _opened(self, fd: int, inode: int | None = None) -> QuickFile | None:
        """*fd* with its facts, if it has the number *inode*; None accepts any file."""
        now = os.fstat(fd)
        pace = self._mounts.pace_of(now.st_dev)
        if pace and (inode is None or inode == now.st_ino):
            return QuickFile(fd, now.st_mode, now.st_size, pace)
        os.close(fd)
        return None

    def _create(self, path: bytes) -> QuickFile | None:
        """Make a new file; None if the name exists, if only as a dangling link."""
        parent, _, name = path.rpartition(b"/")
        try:
            directory = openat2_quick(parent or b"/", _PARENT)
        except BlockingIOError:
            return None
        try:
            pace = self._pace(self._statx.of(directory))
            if pace is Pace.SLOW:
                return None
            fd = os.open(name, _CREATE, 0o666, dir_fd=directory)
            return QuickFile(fd, stat.S_IFREG, 0, pace)
        except FileExistsError:
            return None
        finally:
            os.close(directory)

    def _read(
        self, fd: int, offset: int, size: int, pace: Pace, *, until_end: bool = False
    ) -> memoryview | None:
        """*size* bytes, or fewer at the end of the file if *until_end*; None if it would wait."""
        flags = 0 if pace is Pace.MEMORY else os.RWF_NOWAIT
        filled = 0
        while filled < size:
            try:
                got = os.preadv(fd, [self._buffer[filled:size]], offset + filled, flags)
            except OSError as exc:
                if exc.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                    return None
                raise
            if got == 0:
                if until_end:
                    break
                return None
            filled += got
        return self._buffer[:filled]

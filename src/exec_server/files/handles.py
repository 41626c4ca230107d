"""The files that a connection keeps open, under the names that its client chose."""

from __future__ import annotations

import os
from collections.abc import Callable

from exec_server.errors import InvalidRequest, NotFound
from exec_server.files.nowait.mounts import Pace
from exec_server.limits import Limits


class Handle:
    """One file that is open or about to be opened.

    It is closed after its last user is done. Otherwise its descriptor could become another file
    while it is in use.
    """

    __slots__ = ("_close", "_is_closed", "_users", "fd", "pace")

    def __init__(self, close: Callable[[Handle], None]) -> None:
        self.fd = -1
        self.pace = Pace.SLOW
        self._close = close
        self._users = 0
        self._is_closed = False

    def opened(self, fd: int, pace: Pace) -> None:
        self.fd, self.pace = fd, pace
        self._close_if_unused()

    def acquire(self) -> None:
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        self._close_if_unused()

    def close(self) -> None:
        """Close the file after its last user. Called once; `acquire` must not follow."""
        self._is_closed = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._is_closed and not self._users and self.fd >= 0:
            self._close(self)


class Handles:
    """The files of one connection."""

    def __init__(self, limits: Limits, close: Callable[[Handle], None]) -> None:
        self._limits = limits
        self._close = close
        self._handles: dict[str, Handle] = {}

    def check_id(self, handle_id: str) -> None:
        limit = self._limits.handle_id_bytes
        if len(handle_id) > limit or len(handle_id.encode()) > limit:
            raise InvalidRequest(f"file handle ID must not exceed {limit} bytes")

    def reserve(self, handle_id: str) -> Handle:
        """Take the name before the file is opened."""
        if handle_id in self._handles:
            raise InvalidRequest(f"file handle `{handle_id}` already exists")
        if len(self._handles) >= self._limits.file_handles:
            raise InvalidRequest(
                f"at most {self._limits.file_handles} file handles may be open per connection"
            )
        handle = self._handles[handle_id] = Handle(self._close)
        return handle

    def get(self, handle_id: str) -> Handle:
        handle = self._handles.get(handle_id)
        if handle is None or handle.fd < 0:
            raise NotFound(f"unknown file handle `{handle_id}`")
        return handle

    def drop(self, handle_id: str, handle: Handle) -> None:
        """Forget *handle*, unless its name is used by another file now."""
        if self._handles.get(handle_id) is handle:
            self.close(handle_id)

    def close(self, handle_id: str) -> None:
        """Close the file with this name, if there is one."""
        handle = self._handles.pop(handle_id, None)
        if handle is not None:
            handle.close()

    def close_all(self) -> None:
        for handle_id in tuple(self._handles):
            self.close(handle_id)


def read_block(fd: int, offset: int, size: int) -> bytes:
    """Read *size* bytes at *offset*, or fewer at the end of the file. Raises OSError."""
    block = os.pread(fd, size, offset)
    while len(block) < size:
        more = os.pread(fd, size - len(block), offset + len(block))
        if not more:
            break
        block += more
    return block


def write_block(fd: int, offset: int, data: bytes) -> None:
    """Write all of *data* at *offset*. Raises OSError."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written

"""Writes to FIFOs and devices: they may wait for ever, so each has its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import stat
import threading

from exec_server.errors import InternalError, InvalidRequest
from exec_server.files.operations.content import Content, whole, write_content
from exec_server.files.operations.local import QUIET
from exec_server.files.operations.oserrors import os_error, rpc_error
from exec_server.protocol.method import NOTHING, Nothing


class SpecialWrites:
    """The threads that write to FIFOs and devices; at most *limit* at a time."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._running = 0

    def start(
        self, path: bytes, content: Content, fd: int | None = None
    ) -> asyncio.Future[Nothing]:
        """Write *content* to *path*; a FIFO may first have to get a reader.

        *fd* is its descriptor if it is open already, and is closed here. Cancelling the future
        ends the thread, unless it waits in the driver of a device.
        """
        if self._running >= self._limit:
            if fd is not None:
                os.close(fd)
            raise InternalError(f"more than {self._limit} writes to FIFOs and devices are waiting")
        writing = _Write(path, content, fd, asyncio.get_running_loop())
        self._running += 1
        writing.done.add_done_callback(self._leave)
        threading.Thread(target=writing.run, name="exec-server fifo", daemon=True).start()
        return writing.wait()

    def _leave(self, done: asyncio.Future[Nothing]) -> None:
        self._running -= 1
        # asyncio warns of an exception that was never retrieved.
        done.exception()


class _Write:
    def __init__(
        self, path: bytes, content: Content, fd: int | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._path = path
        self._content = content
        self._fd = fd
        self._loop = loop
        self._is_cancelled = False
        self._has_ended = threading.Event()
        # Closing one end wakes the thread that polls the other.
        self._woken, self._waker = os.pipe()
        self.done: asyncio.Future[Nothing] = loop.create_future()

    def wait(self) -> asyncio.Future[Nothing]:
        """A future that is done when the thread has ended; cancelling it ends the thread."""
        # The inner future is shielded, because only the end of the thread settles it.
        waiting = asyncio.shield(self.done)
        waiting.add_done_callback(lambda waiting: self.cancel() if waiting.cancelled() else None)
        return waiting

    def run(self) -> None:
        error: BaseException | None = None
        try:
            self._write()
        except BaseException as exc:
            error = exc
        self._has_ended.set()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish, error)

    def _finish(self, error: BaseException | None) -> None:
        os.close(self._woken)
        if not self._is_cancelled:
            os.close(self._waker)
        if error is None:
            self.done.set_result(NOTHING)
        else:
            self.done.set_exception(rpc_error(error) if isinstance(error, OSError) else error)

    def cancel(self) -> None:
        """Wake the thread, which waits in poll() or in open()."""
        if self._is_cancelled or self.done.done():
            return
        self._is_cancelled = True
        os.close(self._waker)
        threading.Thread(target=self._release, name="exec-server fifo", daemon=True).start()

    def _release(self) -> None:
        """Be a reader of the FIFO until the thread has ended, because open() waits for one."""
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.stat(self._path).st_mode):
                fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._has_ended.wait()
                os.close(fd)

    def _write(self) -> None:
        fd = self._fd
        if fd is None:
            fd = os.open(self._path, os.O_WRONLY | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            is_fifo = stat.S_ISFIFO(os.fstat(fd).st_mode)
            os.set_blocking(fd, not is_fifo)
            if is_fifo:
                self._write_fifo(fd)
            else:
                write_content(fd, self._content)
        finally:
            os.close(fd)

    def _write_fifo(self, fd: int) -> None:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        poll.register(self._woken, select.POLLIN)
        view = memoryview(whole(self._content))
        while view and not self._is_cancelled:
            poll.poll()
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(fd, view) :]


def write_without_waiting(path: bytes, content: Content) -> None:
    """Write to a FIFO or a device if it takes all of *content* at once, or else fail."""
    fd = os.open(path, os.O_WRONLY | QUIET)
    try:
        # The kernel allows writing to a FIFO on a read-only mount.
        if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            raise os_error(errno.EROFS)
        data = whole(content)
        if os.write(fd, data) < len(data):
            raise InvalidRequest("the FIFO or device takes no more without waiting")
    finally:
        os.close(fd)

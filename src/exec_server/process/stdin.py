"""The input of a child: writes are accepted in order, bounded, and never block the server."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections import deque
from itertools import islice

# The number of buffers of one vectored write; systems allow 1024.
_VECTOR = 256
_LARGE_WRITE = 32 * 1024
_LARGE_PIPE = 1 << 20


class Stdin:
    """A bounded queue in front of *fd*, a child's stdin or terminal, which it owns.

    It holds *max_writes* writes besides the one under way, and accepts no more while they have more
    than *max_bytes*. When the child has closed its end, writes are accepted and discarded.
    """

    def __init__(
        self,
        fd: int,
        *,
        loop: asyncio.AbstractEventLoop,
        max_writes: int,
        max_bytes: int,
        is_terminal: bool,
    ) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = loop
        self._max_writes = max_writes
        self._max_bytes = max_bytes
        self._is_terminal = is_terminal
        self._queue: deque[memoryview | bytes] = deque()
        self._queued_bytes = 0
        # The writes that wait for room, in the order of arrival. A write whose client has lost its
        # connection is taken out again.
        self._waiting: dict[asyncio.Future[None], bytes] = {}
        self._has_large_pipe = is_terminal
        # True if the child's stdin is closed after the queued bytes.
        self.is_closing = False
        self._is_watching = False
        # True until the next turn if the descriptor is open and takes data.
        self._is_gathering = False

    def write(self, data: bytes) -> asyncio.Future[None] | None:
        """Queue *data*. If the queue is full, return a future that is done once it is accepted."""
        if self._is_gathering and data:
            queue = self._queue
            queue.append(data)
            queued = self._queued_bytes = self._queued_bytes + len(data)
            # A full queue is always watched: it is flushed as soon as it gets full.
            if queued > self._max_bytes or len(queue) > self._max_writes:
                self._flush()
            return None
        if self._fd < 0 or not data:
            return None
        if not self._is_watching:
            # A keystroke is written at once; more writes of the same wake-up are written together.
            self._is_gathering = True
            self._loop.call_soon(self._gathered)
            self._write_first(data)
            return None
        if not self._waiting and not self._is_full():
            self._queue.append(data)
            self._queued_bytes += len(data)
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting[future] = data
        future.add_done_callback(lambda done: self._waiting.pop(done, None))
        return future

    def _write_first(self, data: bytes) -> None:
        """Write *data*; nothing is queued before it."""
        if len(data) >= _LARGE_WRITE and not self._has_large_pipe:
            self._grow_pipe()
        try:
            sent = os.write(self._fd, data)
        except OSError:
            # The usual way tells a full pipe from a closed one.
            sent = 0
        if sent < len(data):
            self._queue.append(memoryview(data)[sent:])
            self._queued_bytes += len(data) - sent
            self._flush()

    def _gathered(self) -> None:
        self._is_gathering = False
        if self._queue and not self._is_watching:
            self._flush()

    def _is_full(self) -> bool:
        return len(self._queue) > self._max_writes or self._queued_bytes > self._max_bytes

    def end(self) -> None:
        """Close the child's stdin after the queued bytes; on a terminal, type Ctrl-D instead."""
        if self.is_closing:
            return
        if self._is_terminal:
            self.write(b"\x04")
            return
        self.is_closing = True
        if not self._queue:
            self.close()

    def close(self) -> None:
        """Close the descriptor; everything that is queued or waits is discarded."""
        if self._fd >= 0:
            self._unwatch()
            self._is_gathering = False
            os.close(self._fd)
            self._fd = -1
        self._queue.clear()
        self._queued_bytes = 0
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def refuse_waiting(self, error: Exception) -> None:
        """Fail the writes that wait for room; what is queued is written."""
        for future in tuple(self._waiting):
            if not future.done():
                future.set_exception(error)

    def _grow_pipe(self) -> None:
        self._has_large_pipe = True
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _LARGE_PIPE)

    def _flush(self) -> None:
        queue = self._queue
        while queue:
            try:
                sent = os.writev(self._fd, tuple(islice(queue, _VECTOR)))
            except BlockingIOError:
                self._watch()
                return
            except OSError:
                self.close()
                return
            if sent == self._queued_bytes:
                queue.clear()
                self._queued_bytes = 0
            else:
                self._drop(sent)
            self._admit()
        self._unwatch()
        if self.is_closing:
            self.close()

    def _drop(self, sent: int) -> None:
        """Forget the first *sent* bytes of the queue."""
        queue = self._queue
        self._queued_bytes -= sent
        while queue and sent >= len(queue[0]):
            sent -= len(queue.popleft())
        if sent:
            queue[0] = memoryview(queue[0])[sent:]

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching, self._is_gathering = True, False
            self._loop.add_writer(self._fd, self._flush)

    def _unwatch(self) -> None:
        if self._is_watching:
            self._is_watching = False
            self._loop.remove_writer(self._fd)

    def _admit(self) -> None:
        while self._waiting and not self._is_full():
            future = next(iter(self._waiting))
            data = self._waiting.pop(future)
            # The client that waited may have lost its connection: then the write was never
            # accepted.
            if not future.done():
                self._queue.append(data)
                self._queued_bytes += len(data)
                future.set_result(None)

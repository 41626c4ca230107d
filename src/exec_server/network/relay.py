"""Move bytes from one socket to another, in the kernel where possible.

A relay begins with plain reads and writes, which suits the many short connections. A longer one is
spliced through a pipe: its bytes never come into this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import sys
from functools import partial

_CHUNK = 64 * 1024
# From this many bytes on, a pipe is worth its two descriptors.
_BULK_BYTES = 512 * 1024
_PIPE_BYTES = 1024 * 1024
_HAS_SPLICE = sys.platform == "linux"


class Idle(Exception):
    """Nothing was moved for too long."""


class OneWayRelay:
    """Moves bytes from *source* to *sink* until *count* of them, the end of file, or an error.

    `done` has the number of bytes, which is less than *count* if the source ended first. It fails
    with OSError. Nothing is read while the sink takes nothing. Both sockets stay open.
    """

    def __init__(
        self, source: socket.socket, sink: socket.socket, *, count: int | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._sink = sink
        self._left = count
        self._pipe: tuple[int, int] | None = None
        # Bytes that were read and not written yet: here, or in the pipe.
        self._held = memoryview(b"")
        self._piped = 0
        # True while it waits for the sink instead of the source.
        self._is_stalled = False
        # True while another read will come without a report that there is something to read.
        self._reads_on = False
        self.moved = 0
        self.done: asyncio.Future[int] = self._loop.create_future()
        self.done.add_done_callback(lambda _: self._release())
        if count == 0:
            self._finish()
        else:
            self._loop.add_reader(source, self._on_readable)

    def _on_readable(self) -> None:
        try:
            if self._read():
                self._write()
                self._read_on()
            else:
                self._finish()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self._fail(exc)

    def _read_on(self) -> None:
        """Read again in the next turn, until there is nothing: uvloop reports a reset only once."""
        if not (self._reads_on or self._is_stalled or self.done.done()):
            self._reads_on = True
            self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        self._reads_on = False
        if not (self._is_stalled or self.done.done()):
            self._on_readable()

    def _on_writable(self) -> None:
        try:
            self._write()
        except OSError as exc:
            self._fail(exc)

    def _read(self) -> int:
        if self._pipe is None and self.moved >= _BULK_BYTES and _HAS_SPLICE:
            self._open_pipe()
        room = _CHUNK if self._pipe is None else _PIPE_BYTES
        if self._left is not None:
            room = min(room, self._left)
        if self._pipe is None:
            self._held = memoryview(self._source.recv(room))
            return len(self._held)
        # The pipe is empty here, so only the source can block.
        self._piped = os.splice(
            self._source.fileno(),
            self._pipe[1],
            room,
            flags=os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK,
        )
        return self._piped

    def _write(self) -> None:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while self._held or self._piped:
                self._account(self._send())
        if self.done.done():
            return
        if self._held or self._piped:
            if not self._is_stalled:
                self._is_stalled = True
                self._loop.remove_reader(self._source)
                self._loop.add_writer(self._sink, self._on_writable)
            return
        if self._left == 0:
            self._finish()
        elif self._is_stalled:
            self._is_stalled = False
            self._loop.remove_writer(self._sink)
            self._loop.add_reader(self._source, self._on_readable)

    def _send(self) -> int:
        if self._held:
            sent = self._sink.send(self._held)
            self._held = self._held[sent:]
            return sent
        assert self._pipe is not None
        sent = os.splice(
            self._pipe[0],
            self._sink.fileno(),
            self._piped,
            flags=os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK,
        )
        self._piped -= sent
        return sent

    def _account(self, sent: int) -> None:
        self.moved += sent
        if self._left is not None:
            self._left -= sent

    def _open_pipe(self) -> None:
        try:
            self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            # No descriptors are left: copying is slower, but it works.
            return
        # The kernel limits the pipe memory of a user; if it refuses, the usual size works as well.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._pipe[1], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(self.moved)
            self._release()

    def _fail(self, exc: OSError) -> None:
        if not self.done.done():
            self.done.set_exception(exc)
            self._release()

    def _release(self) -> None:
        """Stop watching the sockets and close the pipe; a cancelled relay comes here, too."""
        if self._source.fileno() >= 0:
            self._loop.remove_reader(self._source)
        if self._sink.fileno() >= 0:
            self._loop.remove_writer(self._sink)
        pipe, self._pipe = self._pipe, None
        for fd in pipe or ():
            os.close(fd)


async def move(
    source: socket.socket, sink: socket.socket, *, count: int | None = None, idle: float
) -> int:
    """Relay one way to the end. Raises OSError, or Idle when nothing moves for *idle* seconds."""
    flow = OneWayRelay(source, sink, count=count)
    try:
        await _until_done([flow], idle)
    finally:
        flow.done.cancel()
    return flow.done.result()


async def tunnel(one: socket.socket, other: socket.socket, *, idle: float) -> None:
    """Relay both ways until both have ended; the end of one way is passed on, the other continues.

    An error of either ends both. Raises OSError or Idle.
    """
    flows = [OneWayRelay(one, other), OneWayRelay(other, one)]
    for flow, sink in zip(flows, (other, one), strict=True):
        flow.done.add_done_callback(partial(_pass_on_end, sink))
    try:
        await _until_done(flows, idle)
    finally:
        for flow in flows:
            flow.done.cancel()
    for flow in flows:
        flow.done.result()


def _pass_on_end(sink: socket.socket, done: asyncio.Future[int]) -> None:
    if done.cancelled() or done.exception() is not None or sink.fileno() < 0:
        return
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


async def _until_done(flows: list[OneWayRelay], idle: float) -> None:
    pending = {flow.done for flow in flows}
    while pending:
        before = sum(flow.moved for flow in flows)
        done, pending = await asyncio.wait(
            pending, timeout=idle, return_when=asyncio.FIRST_COMPLETED
        )
        if any(future.exception() is not None for future in done):
            return
        if not done and sum(flow.moved for flow in flows) == before:
            raise Idle

"""One connection on a pair of descriptors, with one message a line."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable

from exec_server.limits import Limits
from exec_server.transport.connection import Identity, Receiver
from exec_server.transport.lines import LineBuffer, LineTooLong

_READ_BYTES = 256 * 1024
_WRITE_HIGH_WATER = 256 * 1024
# Up to this size one copy is cheaper than several writes.
_JOIN_BYTES = 64 * 1024


class StdioConnection:
    """A Connection over the descriptors *reader* and *writer*; it lasts until the input ends."""

    malformed_prefix = "failed to parse JSON-RPC message from exec-server stdio: "
    transport_name = "stdio"
    principal: str | None = None
    identity: Identity | None = None
    peer_name = "stdio"

    def __init__(self, reader: int, writer: int, *, limits: Limits) -> None:
        self._reader = reader
        self._writer = writer
        self._lines = LineBuffer(max_bytes=limits.message_bytes)
        self._receiver: Receiver | None = None
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes | memoryview] = deque()
        self._queued_bytes = 0
        self._is_writing_paused = False
        self._is_reading = False
        self._is_closed = False
        self._close_timeout = limits.close_timeout
        # Runs from `close` until everything queued is written.
        self._closing: asyncio.TimerHandle | None = None
        self._thread: _ReaderThread | None = None
        self._reads_socket = stat.S_ISSOCK(os.fstat(reader).st_mode)
        # The blocking mode of a pipe is ours alone; that of a terminal is shared with the shell.
        self._is_pipe = _is_pipe(writer)
        if self._is_pipe:
            os.set_blocking(writer, False)

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.resume_reading()

    # Input.

    def resume_reading(self) -> None:
        if self._is_reading or self._is_ending:
            return
        self._is_reading = True
        if self._thread is None:
            try:
                self._loop.add_reader(self._reader, self._on_readable)
                return
            except PermissionError:
                # Files and /dev/null cannot be polled; a thread reads them.
                self._thread = _ReaderThread(self._reader, self._loop, self._on_data)
        self._thread.allow.set()

    def pause_reading(self) -> None:
        if not self._is_reading or self._is_closed:
            return
        self._is_reading = False
        if self._thread is not None:
            self._thread.allow.clear()
        else:
            self._loop.remove_reader(self._reader)

    def _on_readable(self) -> None:
        self._read_once()
        # uvloop reports the reset of a socket, and what came before it, only once.
        while self._reads_socket and self._is_reading and not self._is_ending:
            if not _has_input(self._reader):
                return
            self._read_once()

    def _read_once(self) -> None:
        try:
            data = os.read(self._reader, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._on_data(data)

    def _on_data(self, data: bytes) -> None:
        if self._is_ending:
            return
        if not data:
            self._end()
            return
        try:
            for line in self._lines.feed(data):
                if not line.isascii():
                    line.decode()
                if self._receiver is not None and not self._is_ending:
                    self._receiver.message_received(line)
        except (LineTooLong, UnicodeDecodeError):
            self._end()

    # Output.

    def send(self, *parts: bytes) -> None:
        if self._is_ending:
            return
        size = sum(map(len, parts)) + 1
        was_idle = not self._queue
        if size <= _JOIN_BYTES:
            self._queue.append(b"".join((*parts, b"\n")))
        else:
            # A copy of a large message would double its memory; its pieces are freed one by one.
            self._queue += (*parts, b"\n")
        self._queued_bytes += size
        if was_idle:
            self._flush()
        if self._queued_bytes > _WRITE_HIGH_WATER and not self._is_writing_paused:
            self._is_writing_paused = True
            if self._receiver is not None:
                self._receiver.writing_paused()

    @property
    def unsent_bytes(self) -> int:
        return self._queued_bytes

    def _flush(self) -> None:
        had_waited = bool(self._queue) and self._is_writing_paused
        while self._queue:
            line = self._queue[0]
            try:
                sent = os.write(self._writer, line)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._end()
                return
            self._queued_bytes -= sent
            if sent < len(line):
                self._queue[0] = memoryview(line)[sent:]
                self._loop.add_writer(self._writer, self._flush)
                return
            self._queue.popleft()
        self._loop.remove_writer(self._writer)
        if self._closing is not None:
            self._end()
        elif had_waited:
            self._is_writing_paused = False
            if self._receiver is not None:
                self._receiver.writing_resumed()

    # The end.

    @property
    def _is_ending(self) -> bool:
        return self._is_closed or self._closing is not None

    def close(self, reason: str = "", *, is_violation: bool = False) -> None:
        """End when all is written, or after the close timeout, which loses the rest."""
        if self._is_ending:
            return
        if not self._queue:
            self._end()
            return
        self.pause_reading()
        self._closing = self._loop.call_later(self._close_timeout, self._end)

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if self._is_closed:
            return
        self.pause_reading()
        self._is_closed = True
        if self._closing is not None:
            self._closing.cancel()
        if self._is_pipe:
            self._loop.remove_writer(self._writer)
            os.set_blocking(self._writer, True)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self._loop.call_soon(receiver.connection_lost)


class _ReaderThread:
    """Reads a descriptor that cannot be polled; waits while *allow* is cleared."""

    def __init__(
        self, fd: int, loop: asyncio.AbstractEventLoop, on_data: Callable[[bytes], None]
    ) -> None:
        self.allow = threading.Event()
        self._fd, self._loop, self._on_data = fd, loop, on_data
        threading.Thread(target=self._run, name="stdin", daemon=True).start()

    def _run(self) -> None:
        data = b"?"
        while data:
            self.allow.wait()
            try:
                data = os.read(self._fd, _READ_BYTES)
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._on_data, data)
            except RuntimeError:
                return


def _has_input(fd: int) -> bool:
    """True if a read would not block: there is data, the end of file, or an error."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)

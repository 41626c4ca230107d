"""SocketBridge: moves bytes between a socket and one end of a stream."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable

from exec_server.memory import keep_freed_memory
from exec_server.streams.byte_stream import CHUNK_BYTES, ByteStream
from exec_server.streams.turns import StreamTurns

# Closing with this option resets the connection, so that the program does not see a proper end.
_LINGER_RESET = struct.pack("ii", 1, 0)
# Pieces of this size are queued as they are, and smaller ones are joined.
_LARGE_BYTES = 16 * 1024
# Messages come and go; without this the kernel would be asked for their memory each time.
_KEPT_BYTES = 4 << 20


class SocketBridge:
    """Owns *sock*, which is connected; `on_closed` is called once it is closed.

    A program that closes one direction of its socket closes that direction of the stream. An error
    of the socket resets the stream, and a reset of the stream resets the socket.
    """

    def __init__(
        self,
        sock: socket.socket,
        stream: ByteStream,
        turns: StreamTurns,
        *,
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        keep_freed_memory(_KEPT_BYTES)
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._sock = sock
        self._stream = stream
        self._turns = turns
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._is_reading = self._is_scheduled = False
        self._has_read_all = False
        # What has come and was not written yet.
        self._queue: deque[memoryview] = deque()
        # Small pieces that follow the queue: an object for each of them would take 200 times their
        # size. It is empty if the queue is.
        self._small = bytearray()
        self._ends_after = self._closes_after = False
        self._has_shut_down = False
        # Why nothing can be written any more.
        self._failure: str | None = None
        stream.use(self)
        self._resume()

    # From the socket.

    def take_turn(self) -> bool:
        """The connection takes data again."""
        self._resume()
        return False

    def window_opened(self) -> None:
        self._resume()

    def _resume(self) -> None:
        if not self._is_reading and not self._has_read_all and self._sock.fileno() >= 0:
            self._is_reading = True
            self._loop.add_reader(self._sock, self._readable)
            self._read_soon()

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._sock)

    def _read_soon(self) -> None:
        """Read again in the next turn, until there is nothing: uvloop reports a reset only once."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        self._is_scheduled = False
        if self._is_reading:
            self._readable()

    def _readable(self) -> None:
        room = self._stream.room
        if not self._turns.is_open:
            self._pause()
            self._turns.wait(self)
            return
        if room <= 0:
            # An acknowledgement resumes it.
            self._pause()
            return
        try:
            data = self._sock.recv(min(CHUNK_BYTES, room))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self._break_off(_words(exc))
            return
        if data:
            self._stream.write(data)
            self._read_soon()
        elif self._failure is not None:
            self._break_off(self._failure)
        else:
            self._pause()
            self._has_read_all = True
            self._stream.end()
            self._maybe_close()

    # To the socket.

    def data_received(self, data: bytes) -> None:
        if self._failure is not None or self._sock.fileno() < 0:
            self._stream.took(len(data))
            return
        if self._queue:
            self._keep(data)
            return
        self._queue.append(memoryview(data))
        self._write()
        if self._queue:
            self._loop.add_writer(self._sock, self._writable)

    def _keep(self, data: bytes) -> None:
        if len(data) >= _LARGE_BYTES:
            self._queue_small()
            self._queue.append(memoryview(data))
            return
        self._small += data
        if len(self._small) >= CHUNK_BYTES:
            self._queue_small()

    def _queue_small(self) -> None:
        if self._small:
            self._queue.append(memoryview(bytes(self._small)))
            self._small.clear()

    def _writable(self) -> None:
        self._write()
        if not self._queue and self._sock.fileno() >= 0:
            self._loop.remove_writer(self._sock)

    def _write(self) -> None:
        queue, taken = self._queue, 0
        try:
            while queue:
                sent = self._sock.send(queue[0])
                taken += sent
                if sent < len(queue[0]):
                    queue[0] = queue[0][sent:]
                else:
                    queue.popleft()
                    if not queue:
                        self._queue_small()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as exc:
            if self._has_read_all:
                # Nothing else would end the stream, and the other side might send for ever.
                self._break_off(_words(exc))
                return
            # What the program has sent before may still be there to be read.
            self._failure = _words(exc)
            taken += sum(map(len, queue)) + len(self._small)
            queue.clear()
            self._small.clear()
            self._resume()
        self._stream.took(taken)
        if not queue:
            self._finish_writing()

    def end_received(self, *, is_closed: bool) -> None:
        self._ends_after = True
        self._closes_after = self._closes_after or is_closed
        if not self._queue:
            self._finish_writing()

    def _finish_writing(self) -> None:
        if not self._ends_after:
            return
        if self._closes_after:
            self._close()
        elif not self._has_shut_down:
            self._has_shut_down = True
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
        self._stream.took_end()
        self._maybe_close()

    def was_reset(self, reason: str) -> None:
        if self._sock.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        self._close()

    def was_finished(self) -> None:
        """The socket has ended already."""

    # The end.

    def _break_off(self, reason: str) -> None:
        self._stream.reset(reason)
        self._close()

    def _maybe_close(self) -> None:
        if self._has_read_all and self._has_shut_down:
            self._close()

    def _close(self) -> None:
        if self._sock.fileno() >= 0:
            self._pause()
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._queue.clear()
            self._small.clear()
            self._on_closed()


def _words(exc: OSError) -> str:
    return os.strerror(exc.errno) if exc.errno else str(exc)

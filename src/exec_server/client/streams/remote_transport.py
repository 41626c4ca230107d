"""RemoteTransport: the client's end of a stream as an asyncio transport."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Iterable
from typing import Any

from exec_server.streams.byte_stream import ByteStream

# As asyncio's own transports have it.
_HIGH_WATER = 64 * 1024


class RemoteTransport(asyncio.Transport):
    """Behaves as the transport of a socket does; *stream* leads to the socket on the server.

    After a lost connection nothing is lost and nothing comes twice: the bytes wait until the
    session is resumed. If the session is lost, so is the stream, with ConnectionResetError.
    """

    def __init__(self, stream: ByteStream, extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self._stream = stream
        self._protocol: asyncio.Protocol | None = None
        self._loop = asyncio.get_running_loop()
        self._is_paused = False
        # What has come while the reading was paused.
        self._held: deque[bytes] = deque()
        # True or False once the other end has ended, as it is closed or not.
        self._end: bool | None = None
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._is_writing_paused = False
        self._is_closing = self._is_lost = self._is_finished = False

    def start(self, protocol: asyncio.Protocol) -> None:
        """Tell *protocol* that it is connected; what has come follows."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._stream.use(self)

    # What the stream says.

    def data_received(self, data: bytes) -> None:
        if self._is_paused or self._held:
            self._held.append(data)
        else:
            self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        # A stream that is closed takes everything itself.
        if self._protocol is not None and not self._is_closing:
            self._protocol.data_received(data)
            self._stream.took(len(data))

    def end_received(self, *, is_closed: bool) -> None:
        self._end = is_closed
        self._maybe_tell_end()

    def _maybe_tell_end(self) -> None:
        if self._end is None or self._held or self._is_closing or self._protocol is None:
            return
        is_closed, self._end = self._end, None
        stays_open = self._protocol.eof_received()
        self._stream.took_end()
        if is_closed:
            self._lose(None)
        elif not stays_open:
            self.close()

    def window_opened(self) -> None:
        if self._is_writing_paused and self._stream.unsent_bytes <= self._low:
            self._is_writing_paused = False
            if self._protocol is not None:
                self._protocol.resume_writing()

    def was_reset(self, reason: str) -> None:
        self._lose(ConnectionResetError(errno.ECONNRESET, reason))

    def was_finished(self) -> None:
        self._is_finished = True
        if self._is_closing:
            self._lose(None)

    def _lose(self, exc: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._held.clear()
            self._loop.call_soon(self._tell_lost, exc)

    def _tell_lost(self, exc: Exception | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    # What the protocol asks for.

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._loop.call_soon(self._deliver_held)

    def _deliver_held(self) -> None:
        while self._held and not self._is_paused:
            self._deliver(self._held.popleft())
        self._maybe_tell_end()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing:
            return
        if self._stream.has_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        self._stream.write(bytes(data))
        if not self._is_writing_paused and self._stream.unsent_bytes > self._high:
            self._is_writing_paused = True
            if self._protocol is not None:
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_closing:
            self._stream.end()

    def get_write_buffer_size(self) -> int:
        return self._stream.unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Send what was written, then end the stream."""
        if not self._is_closing:
            self._is_closing = True
            self._held.clear()
            self._stream.close()
            if self._is_finished:
                self._lose(None)

    def abort(self) -> None:
        """End the stream at once; what was not sent is lost."""
        if not self._is_lost:
            self._stream.reset("the client has broken it off")
            self._lose(None)

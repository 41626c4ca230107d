"""A blocking WebSocket client around one receive buffer; it decodes nothing that it receives."""

from __future__ import annotations

import base64
import os
import socket
import struct
from collections.abc import Iterator

MORE, TEXT, CLOSE, PING, PONG = 0, 1, 8, 9, 10
_FINAL = 0x80
_CONTROL = 0x08
# Half of the largest that the reference takes.
_FRAME_BYTES = 8 * 1024 * 1024
_MASK = b"\x37\xfa\x21\x3d"
_BUFFER_BYTES = 512 * 1024
_NORMAL_CLOSURE = struct.pack("!H", 1000)


class WireClosed(Exception):
    """The server ended the connection, or never let it begin."""


def encode_frame(payload: bytes, opcode: int = TEXT, *, is_last: bool = True) -> bytes:
    """A masked frame: one whole message unless said otherwise."""
    size = len(payload)
    first = (_FINAL if is_last else 0) | opcode
    if size < 126:
        head = struct.pack("!BB", first, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, size)
    return head + _MASK + _masked(payload)


def encode_frames(payload: bytes) -> list[bytes]:
    """A message in as many frames as every server takes."""
    starts = range(0, len(payload), _FRAME_BYTES)
    return [
        encode_frame(
            payload[start : start + _FRAME_BYTES],
            MORE if start else TEXT,
            is_last=start + _FRAME_BYTES >= len(payload),
        )
        for start in starts
    ]


def _masked(payload: bytes) -> bytes:
    size = len(payload)
    mask = (_MASK * (size // 4 + 1))[:size]
    number = int.from_bytes(payload, "little") ^ int.from_bytes(mask, "little")
    return number.to_bytes(size, "little")


class Wire:
    """One connection. A frame is a pair of offsets in `buffer`, good until the next is taken."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float = 60.0,
        receive_buffer: int | None = None,
        quick_acks: bool = False,
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self.buffer)
        self._start = self._end = 0
        self._quick_acks = quick_acks
        self._upgrade(host, port)

    def _upgrade(self, host: str, port: int) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self.socket.sendall(request.encode())
        while (end := self.buffer.find(b"\r\n\r\n", 0, self._end)) < 0:
            self._receive(self._end + 1)
        status, _, _ = bytes(self.buffer[:end]).partition(b"\r\n")
        if b" 101 " not in status:
            raise WireClosed(f"the upgrade was refused: {status!r}")
        self._start = end + 4

    def send(self, data: bytes) -> None:
        """Send frames that `encode_frame` made."""
        self.socket.sendall(data)

    def frame(self) -> tuple[int, int]:
        """Where the next message begins and ends in `buffer`; pings are answered on the way."""
        while True:
            start, end = self._next()
            while end > self._end:
                self._receive(end - self._start)
                start, end = self._next()
            opcode = self.buffer[self._start]
            self._start = end
            if opcode == _FINAL | TEXT:
                return start, end
            self._handle_control(opcode, bytes(self._view[start:end]))

    def message(self) -> bytes:
        """A copy of the next message."""
        start, end = self.frame()
        return bytes(self._view[start:end])

    def skip(self, most: int) -> int:
        """Drop the next message, and what else is there already: how many, at most *most*."""
        self.frame()
        count = 1
        buffer, start, end = self.buffer, self._start, self._end
        # A tight loop for short ones, so that the client is not what a server waits for.
        while count < most and end - start >= 2 and buffer[start] == _FINAL | TEXT:
            size = buffer[start + 1]
            if size >= 126 or start + 2 + size > end:
                break
            start += 2 + size
            count += 1
        self._start = start
        return count

    def discard(self) -> int:
        """Drop the next message, however large and in however many frames: its bytes."""
        total = 0
        while True:
            start, end = self._next()
            while start == self._start:
                # Not even its header is there.
                self._receive(end - start)
                start, end = self._next()
            opcode = self.buffer[self._start]
            if opcode & _CONTROL:
                self._take_control()
                continue
            self._drop_until(end)
            total += end - start
            if opcode & _FINAL:
                return total

    def arrived(self) -> Iterator[tuple[int, int]]:
        """Receive once, then give every whole frame that is there."""
        _, end = self._next()
        self._receive(end - self._start)
        while self._next()[1] <= self._end:
            yield self.frame()

    def close(self) -> None:
        """Say goodbye without waiting for the answer."""
        try:
            self.send(encode_frame(_NORMAL_CLOSURE, CLOSE))
        except OSError:
            # It is gone already, which is as good.
            pass
        self.socket.close()

    def _next(self) -> tuple[int, int]:
        """The payload of the next frame; it ends beyond `_end` while it is not all there."""
        start = self._start
        have = self._end - start
        if have < 2:
            return start, start + 2
        size = self.buffer[start + 1]
        if size < 126:
            return start + 2, start + 2 + size
        head = 4 if size == 126 else 10
        if have < head:
            return start, start + head
        size = int.from_bytes(self._view[start + 2 : start + head], "big")
        return start + head, start + head + size

    def _take_control(self) -> None:
        start, end = self._next()
        while end > self._end:
            self._receive(end - self._start)
            start, end = self._next()
        opcode = self.buffer[self._start]
        self._start = end
        self._handle_control(opcode, bytes(self._view[start:end]))

    def _drop_until(self, end: int) -> None:
        """Go on behind offset *end*, which may be beyond the buffer."""
        while end > self._end:
            end -= self._end
            self._start = self._end = 0
            self._receive(1)
        self._start = end

    def _handle_control(self, opcode: int, payload: bytes) -> None:
        if opcode == _FINAL | PING:
            self.send(encode_frame(payload, PONG))
        elif opcode == _FINAL | CLOSE:
            raise WireClosed(f"the server closed the connection: {payload[:120]!r}")
        elif opcode != _FINAL | PONG:
            raise WireClosed(f"a frame of a kind that no server here sends: {opcode:#x}")

    def _receive(self, size: int) -> None:
        """Receive once, with room for *size* bytes after `_start`; both offsets may move."""
        if self._start == self._end:
            self._start = self._end = 0
        if self._start + size > len(self.buffer):
            self._make_room(size)
        count = self.socket.recv_into(self._view[self._end :])
        if not count:
            raise WireClosed("the server closed the connection without a word")
        self._end += count
        if self._quick_acks:
            # The kernel forgets this after a while, so it is said every time.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _make_room(self, size: int) -> None:
        live = bytes(self._view[self._start : self._end])
        if size > len(self.buffer):
            self._view.release()
            self.buffer = bytearray(max(size + 65536, 2 * len(self.buffer)))
            self._view = memoryview(self.buffer)
        self._view[: len(live)] = live
        self._start, self._end = 0, len(live)

"""Servers that answer every call with the same words: the floors of small calls and of starts.

    python bench/constant_answers.py blocking|picows PORT

`blocking` reads and writes one socket in a loop: what the kernel and the wire cost. `picows`
answers on the event loop and the WebSocket library that our server uses; the requests of one read
of the socket are answered in one write, as our server does it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvloop
from picows import WSFrame, WSListener, WSTransport, WSUpgradeRequest, ws_create_server

_KEY = re.compile(rb"(?i)sec-websocket-key: *(\S+)")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_ANSWER = b'{"id":%b,"result":{"status":"ready"}}'
_BUFFER_BYTES = 256 * 1024


def id_of(message: bytes) -> bytes:
    """The id of a request in which it comes first, as in those of the benchmark's client."""
    return message[6 : message.index(b",")]


def frame_header(size: int) -> bytes:
    """The header of a text frame that a server sends."""
    if size < 126:
        return bytes((0x81, size))
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2)
    return b"\x81\x7f" + size.to_bytes(8)


def answer_to(message: bytes) -> bytes:
    """The answer to a request, as a frame."""
    answer = _ANSWER % id_of(message)
    return frame_header(len(answer)) + answer


class Answering(WSListener):
    """Gives every request the same answer; those of one read leave in one write."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._answers: list[bytes] = []
        self._stream: Any = transport.underlying_transport
        self._fd = self._stream.get_extra_info("socket").fileno()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        message = frame.get_payload_as_bytes()
        if message.startswith(b'{"id":'):
            self._answers.append(answer_to(message))
        if frame.last_in_buffer:
            self.flush()

    def flush(self) -> None:
        """Send the answers that have gathered."""
        answers = self._answers
        if answers:
            self._answers = []
            self.write(answers[0] if len(answers) == 1 else b"".join(answers))

    def write(self, *data: bytes) -> None:
        """Write to the socket at once; what it does not take is left to the event loop."""
        if self._stream.get_write_buffer_size():
            self._stream.writelines(data)
            return
        try:
            sent = os.write(self._fd, data[0]) if len(data) == 1 else os.writev(self._fd, data)
        except BlockingIOError:
            sent = 0
        for piece in data:
            if sent < len(piece):
                self._stream.write(memoryview(piece)[sent:])
            sent = max(0, sent - len(piece))


def serve(listener: Callable[[], WSListener], port: int) -> None:
    """Serve WebSockets on *port* until a signal."""

    async def run() -> None:
        def make(_: WSUpgradeRequest) -> WSListener:
            return listener()

        server = await ws_create_server(
            make, "127.0.0.1", port, read_buffer_init_size=_BUFFER_BYTES, use_aiofastnet=False
        )
        async with server:
            await server.serve_forever()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def _blocking(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            sock, _ = listener.accept()
            with sock:
                _serve(sock)


def _serve(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = sock.recv(65536)
    found = _KEY.search(head)
    if found is None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        return
    accept = base64.b64encode(hashlib.sha1(found[1] + _GUID).digest())
    sock.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept
    )
    rest = b""
    while data := sock.recv(262_144):
        rest, answers = _answers(rest + data)
        if answers:
            sock.sendall(answers)


def _answers(data: bytes) -> tuple[bytes, bytes]:
    """What is left of *data*, and the answers to the whole frames in it, which are all masked."""
    answers, start = bytearray(), 0
    while len(data) - start >= 6:
        size, header = data[start + 1] & 127, 6
        if size == 126:
            size, header = int.from_bytes(data[start + 2 : start + 4]), 8
        if len(data) - start < header + size:
            break
        mask = int.from_bytes(data[start + header - 4 : start + header] * (size // 4 + 1))
        masked = int.from_bytes(data[start + header : start + header + size])
        message = (masked ^ (mask >> 8 * (4 - size % 4))).to_bytes(size)
        if message.startswith(b'{"id":'):
            answers += answer_to(message)
        start += header + size
    return data[start:], bytes(answers)


def main() -> None:
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "blocking":
        _blocking(port)
    else:
        serve(Answering, port)


if __name__ == "__main__":
    main()

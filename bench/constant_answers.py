"""Servers that answer every call with the same words: the floors of `make layers`.

    python bench/constant_answers.py blocking|picows PORT

`blocking` reads and writes one socket in a loop: what the kernel and the wire cost. `picows`
answers on the event loop and the WebSocket library that our server uses.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import socket
import sys

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

_KEY = re.compile(rb"(?i)sec-websocket-key: *(\S+)")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_ANSWER = b'{"id":%b,"result":{"status":"ready"}}'


def answer_to(message: bytes) -> bytes:
    """The answer to a request whose id comes first, as that of the benchmark's client does."""
    return _ANSWER % message[6 : message.index(b",")]


class _Listener(WSListener):
    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        message = frame.get_payload_as_bytes()
        if message.startswith(b'{"id":'):
            transport.send(WSMsgType.TEXT, answer_to(message))


def _listener(_request: WSUpgradeRequest) -> WSListener:
    return _Listener()


async def _picows(port: int) -> None:
    server = await ws_create_server(_listener, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


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
            answer = answer_to(message)
            answers += bytes((0x81, len(answer))) + answer
        start += header + size
    return data[start:], bytes(answers)


def main() -> None:
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "blocking":
        _blocking(port)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_picows(port))


if __name__ == "__main__":
    main()

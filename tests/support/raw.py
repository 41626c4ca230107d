"""Bytes on a socket: HTTP heads and WebSocket frames written by hand, the wrong ones included."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import struct
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from tests.support.wire import PATIENCE, trusting_all

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA

UPGRADE = {
    "Host": "localhost",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
# What RFC 6455 derives from that key.
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


class HttpAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Frame(NamedTuple):
    opcode: int
    payload: bytes
    fin: bool = True
    rsv: int = 0
    is_masked: bool = False


class RawSocket:
    """A TCP or Unix socket to the server at *url*; every wait has a deadline."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        async with asyncio.timeout(PATIENCE):
            if self._url.startswith("unix://"):
                path = self._url.removeprefix("unix://")
                self.reader, self.writer = await asyncio.open_unix_connection(path)
            else:
                parts = urlsplit(self._url)
                self.reader, self.writer = await asyncio.open_connection(
                    parts.hostname, parts.port, ssl=trusting_all(self._url)
                )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        async with asyncio.timeout(PATIENCE):
            await self.writer.drain()

    async def at_end(self) -> bytes:
        """What the server still says before it ends the connection, which it must."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except (ConnectionResetError, ssl.SSLError):
                return b""

    def end_writing(self) -> None:
        """Close the sending half of the TCP connection."""
        fd = os.dup(self.writer.get_extra_info("socket").fileno())
        with socket.socket(fileno=fd) as sock:
            sock.shutdown(socket.SHUT_WR)

    # HTTP.

    async def answer(self, *, without_body: bool = False) -> HttpAnswer:
        """One HTTP answer."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status_line, *lines = head.rstrip("\r\n").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines)
            }
            size = 0 if without_body else int(headers.get("content-length", "0"))
            return HttpAnswer(
                int(status_line.split(" ")[1]), headers, await self.reader.readexactly(size)
            )

    async def upgrade(self, **headers: str) -> HttpAnswer:
        """Become a WebSocket."""
        await self.send(request_head("GET", "/", {**UPGRADE, **headers}))
        answer = await self.answer()
        assert answer.status == 101, answer
        return answer

    # Frames.

    async def send_frame(self, opcode: int, payload: bytes = b"", **options: Any) -> None:
        await self.send(frame(opcode, payload, **options))

    async def send_json(self, message: Any) -> None:
        await self.send_frame(TEXT, json.dumps(message).encode())

    async def receive_frame(self) -> Frame:
        async with asyncio.timeout(PATIENCE):
            first, second = await self.reader.readexactly(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
            payload = await self.reader.readexactly(size)
        return Frame(
            first & 0x0F, payload, bool(first & 0x80), first >> 4 & 0x7, bool(second & 0x80)
        )

    async def receive_json(self) -> Any:
        """The next message; control frames before it are skipped."""
        got = await self.receive_frame()
        while got.opcode >= CLOSE:
            got = await self.receive_frame()
        return json.loads(got.payload)


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, is_masked: bool = True
) -> bytes:
    """One frame as a client sends it, unless told to break the rules."""
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    flag = 0x80 if is_masked else 0
    size = len(payload)
    if size < 126:
        head = struct.pack(">BB", first, flag | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", first, flag | 126, size)
    else:
        head = struct.pack(">BBQ", first, flag | 127, size)
    if not is_masked:
        return head + payload
    # A key of zeros changes nothing, which saves the time to mask megabytes.
    if size > 1 << 16:
        return head + bytes(4) + payload
    key = os.urandom(4)
    mask = int.from_bytes((key * (size // 4 + 1))[:size], "big")
    return head + key + (int.from_bytes(payload, "big") ^ mask).to_bytes(size, "big")


def request_head(
    method: str, target: str, headers: dict[str, str], *, version: str = "HTTP/1.1"
) -> bytes:
    lines = [f"{method} {target} {version}", *(f"{name}: {text}" for name, text in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def http(url: str, head: bytes, *, without_body: bool = False) -> HttpAnswer:
    """The answer to one request on a connection of its own."""
    async with RawSocket(url) as sock:
        await sock.send(head)
        return await sock.answer(without_body=without_body)

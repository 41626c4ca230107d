"""Read one side of an HTTP exchange: heads, and bodies that mostly bypass the parser."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator

import h11

from exec_server.limits import Limits
from exec_server.network import relay
from exec_server.network.http_heads import Framing

_RECV_BYTES = 64 * 1024
_HEAD_END = re.compile(rb"\n\r?\n")
_HOST = re.compile(rb"^host:", re.IGNORECASE | re.MULTILINE)
_LAST_CHUNK = b"0\r\n\r\n"


class HttpReader:
    """Reads one socket, message by message. `RemoteProtocolError` of h11 is for the caller."""

    def __init__(self, sock: socket.socket, *, limits: Limits) -> None:
        self.sock = sock
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._parser = h11.Connection(h11.SERVER)
        # Bytes that were received after the last head or body.
        self.ahead = b""

    async def request(self) -> h11.Request | None:
        """The head of the next request; None when there is none, or not in time."""
        self._parser = h11.Connection(h11.SERVER, self._limits.proxy_head_bytes)
        try:
            async with asyncio.timeout(self._limits.proxy_head_timeout):
                await self._read_head()
                event = await self._head()
        except TimeoutError:
            return None
        return event if isinstance(event, h11.Request) else None

    async def response(self, method: bytes) -> h11.Response | None:
        """The head of the final answer to a *method* request; None when there is none."""
        self._parser = h11.Connection(h11.CLIENT, self._limits.proxy_head_bytes)
        # The parser has to know what is answered; these bytes are not sent.
        self._parser.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
        self._parser.send(h11.EndOfMessage())
        async with asyncio.timeout(self._limits.proxy_idle_timeout):
            while True:
                event = await self._head()
                if not isinstance(event, h11.InformationalResponse):
                    return event if isinstance(event, h11.Response) else None

    async def _read_head(self) -> None:
        """Read until `ahead` has a whole head. Old programs send CONNECT without Host: add one."""
        while (end := _HEAD_END.search(self.ahead)) is None:
            received = await self._loop.sock_recv(self.sock, _RECV_BYTES)
            self.ahead += received
            if not received or len(self.ahead) > self._limits.proxy_head_bytes:
                # The parser will report what is wrong with the head.
                return
        head = self.ahead[: end.start()]
        if not _HOST.search(head):
            line, newline, rest = self.ahead.lstrip(b"\r\n").partition(b"\n")
            self.ahead = line + newline + b"Host:\r\n" + rest

    async def _head(self) -> h11.Event | None:
        ahead, self.ahead = self.ahead, b""
        if ahead:
            self._parser.receive_data(ahead)
        while True:
            event = self._parser.next_event()
            if event is not h11.NEED_DATA:
                break
            self._parser.receive_data(await self._loop.sock_recv(self.sock, _RECV_BYTES))
        if isinstance(event, h11.PAUSED | h11.ConnectionClosed):
            return None
        return event  # type: ignore[return-value]

    async def pass_on(self, framing: Framing, sink: socket.socket, *, as_chunks: bool) -> None:
        """Send the body on to *sink*. Raises OSError or relay.Idle, also when it ends early."""
        if framing.is_chunked:
            async for data in self._chunks():
                await self._loop.sock_sendall(sink, _chunk(data) if as_chunks else data)
            if as_chunks:
                await self._loop.sock_sendall(sink, _LAST_CHUNK)
            return
        left = framing.length
        self.ahead = self._parser.trailing_data[0]
        begun = self.ahead if left is None else self.ahead[:left]
        self.ahead = self.ahead[len(begun) :]
        if begun:
            await self._loop.sock_sendall(sink, begun)
        if left is not None:
            left -= len(begun)
        moved = await relay.move(self.sock, sink, count=left, idle=self._limits.proxy_idle_timeout)
        if left is not None and moved < left:
            raise ConnectionResetError("a body ended early")

    async def discard(self, framing: Framing, *, at_most: int) -> bool:
        """Read the body and discard it; False when it is too long or does not come."""
        taken = 0
        try:
            async with asyncio.timeout(self._limits.proxy_head_timeout):
                async for data in self._chunks():
                    taken += len(data)
                    if taken > at_most:
                        return False
        except (TimeoutError, OSError, h11.RemoteProtocolError):
            return False
        return True

    async def _chunks(self) -> AsyncIterator[bytes]:
        """The decoded body; afterwards `ahead` has the bytes that follow it."""
        while True:
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                async with asyncio.timeout(self._limits.proxy_idle_timeout):
                    received = await self._loop.sock_recv(self.sock, _RECV_BYTES)
                self._parser.receive_data(received)
            elif isinstance(event, h11.Data):
                yield bytes(event.data)
            else:
                break
        self.ahead = self._parser.trailing_data[0]

    def keep_rest(self) -> None:
        """The message had no body: the bytes after its head belong to the next message."""
        self.ahead = self._parser.trailing_data[0]


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)

"""A target of `http/request` that says on its socket exactly what a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

PATIENCE = 60.0


class Received(NamedTuple):
    """A request as it came."""

    line: str
    # Names in lower case, in the order of the wire.
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def comparable(self) -> tuple[str, list[tuple[str, str]], bytes]:
        """Without the order of different names, which carries no meaning."""
        return self.line, sorted(self.headers, key=lambda header: header[0]), self.body


Behave = Callable[[Received, "Line"], Awaitable[None]]


class Line:
    """One connection from a requester."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes | str) -> None:
        """Send bytes as they are."""
        self.writer.write(data.encode() if isinstance(data, str) else data)
        await self.writer.drain()

    async def answer(self, status: int = 200, body: bytes = b"", *headers: str) -> None:
        """A whole answer with a length."""
        lines = [f"HTTP/1.1 {status} X", *headers, f"Content-Length: {len(body)}", "", ""]
        await self.say("\r\n".join(lines).encode() + body)

    async def hung_up(self) -> None:
        """Until the requester has ended the connection."""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass

    def cut(self) -> None:
        """End the connection at once."""
        self.writer.close()


class Target:
    """Listens on a free port of the loopback and remembers what was asked of it."""

    def __init__(self, behave: Behave, *, scheme: str = "http") -> None:
        self._behave = behave
        self._scheme = scheme
        self.received: list[Received] = []
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def take(self) -> list[Received]:
        """What was asked since the last time."""
        taken, self.received = self.received, []
        return taken

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        line = Line(reader, writer)
        try:
            while (request := await _receive(reader)) is not None:
                self.received.append(request)
                await self._behave(request, line)
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()


async def _receive(reader: asyncio.StreamReader) -> Received | None:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *fields = head.decode("utf-8", "surrogateescape").removesuffix("\r\n\r\n").split("\r\n")
    pairs = (field.partition(":") for field in fields)
    headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    body = b""
    names = dict(headers)
    if "chunked" in names.get("transfer-encoding", ""):
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    elif line.partition(" ")[0] != "CONNECT":
        body = await reader.readexactly(int(names.get("content-length", "0")))
    return Received(line, headers, body)


@contextlib.asynccontextmanager
async def target(behave: Behave, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Target]:
    """A target for the length of a block."""
    serving: set[asyncio.Task[None]] = set()
    made = Target(behave, scheme="https" if tls is not None else "http")

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        # The end of the block ends what still behaves.
        with contextlib.suppress(asyncio.CancelledError):
            await made.serve(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tuple(serving):
            task.cancel()
        if serving:
            await asyncio.wait(serving, timeout=PATIENCE)


async def hello(request: Received, line: Line) -> None:
    """Answers everything the same way."""
    await line.answer(200, b"hello", "X-A: 1", "X-B: 2", "x-a: 3")


def echo_path(request: Received) -> bytes:
    return request.path.encode()

"""Small TCP servers of the loopback, which streams and forwards lead to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

Served = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


@contextlib.asynccontextmanager
async def listening(served: Served) -> AsyncIterator[int]:
    """The port of a server that calls *served*; it is closed at the end."""
    server = await asyncio.start_server(served, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send everything back, and end when the other side has ended."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()

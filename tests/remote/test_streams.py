"""Byte streams through a relay whose sockets are cut."""

from __future__ import annotations

import asyncio
import random

from tests.remote.conftest import connect
from tests.requirements import requirement
from tests.support.listening import echo, listening
from tests.support.wire import PATIENCE


@requirement("streams/lost:exact")
async def test_cuts_of_the_relay_alter_no_byte_of_a_stream(online):
    pieces = [random.randbytes(40_000) for _ in range(12)]
    async with (
        asyncio.timeout(3 * PATIENCE),
        listening(echo) as port,
        connect(online) as client,
        await client.start_server(echo) as remote,
    ):
        pairs = [
            await client.open_connection("127.0.0.1", port),
            await asyncio.open_connection(*remote.address),
        ]
        for number, piece in enumerate(pieces):
            for _, writer in pairs:
                writer.write(piece)
            online.cut("harness" if number % 3 else "environment")
            for reader, _ in pairs:
                assert await reader.readexactly(len(piece)) == piece
        for reader, writer in pairs:
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

"""Streams on servers that do not know them."""

from __future__ import annotations

import asyncio
import errno

import pytest

from exec_server.client_urls import connect
from exec_server.errors import MethodNotFound
from exec_server.server.capabilities import CAPABILITIES
from tests.requirements import requirement
from tests.support.listening import echo, listening
from tests.support.ports import free_port
from tests.support.wire import PATIENCE


async def check(client):
    async with listening(echo) as port:
        for _ in range(2):
            reader, writer = await client.open_connection("127.0.0.1", port)
            writer.write(b"x" * 300_000)
            await writer.drain()
            assert await reader.readexactly(300_000) == b"x" * 300_000
            writer.write(b"end")
            writer.write_eof()
            assert await reader.read() == b"end"
            writer.close()
            await writer.wait_closed()
        async with await client.forward(0, port) as forward:
            reader, writer = await asyncio.open_connection(*forward.address)
            writer.write(b"hello")
            writer.write_eof()
            assert await reader.read() == b"hello"
            writer.close()
            await writer.wait_closed()
    with pytest.raises(OSError) as caught:
        await client.open_connection("127.0.0.1", free_port())
    assert caught.value.errno == errno.ECONNREFUSED
    with pytest.raises(MethodNotFound):
        await client.start_server(echo)


@requirement("streams/helper")
async def test_a_helper_command_carries_connections(monkeypatch, server):
    known = {**CAPABILITIES, "streams": False}
    monkeypatch.setattr("exec_server.server.server.CAPABILITIES", known)
    async with asyncio.timeout(2 * PATIENCE), connect(server.url) as client:
        await check(client)


@requirement("streams/helper")
@pytest.mark.one_loop
async def test_the_same_with_the_server_of_codex(reference):
    async with asyncio.timeout(2 * PATIENCE), connect(reference.url) as client:
        await check(client)

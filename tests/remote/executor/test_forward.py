"""Streams that are forwarded to another WebSocket server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import re
from typing import Any

import pytest
from aiohttp import WSMsgType, web

import exec_server
from exec_server.errors import ConfigurationError, ConnectError
from exec_server.remote.credentials.credentials import BearerToken, HarnessToken
from exec_server.remote.executor.forward import check_destination
from exec_server.remote.harness.dialler import NoiseDialler
from tests.remote.conftest import LIMITS, connect
from tests.requirements import requirement
from tests.support.rendezvous import TOKEN


@contextlib.asynccontextmanager
async def forwarding(relay, url: str):
    config = exec_server.RemoteEnvironmentConfig(
        registry_url=relay.url,
        environment_id="env-1",
        credentials=BearerToken(TOKEN),
        limits=LIMITS,
    )
    task = asyncio.ensure_future(exec_server.run_forward(config, url))
    try:
        await relay.until(relay.is_online)
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextlib.asynccontextmanager
async def destination(behave):
    async def upgrade(request):
        ws = web.WebSocketResponse(compress=False, max_msg_size=0, autoclose=False)
        await ws.prepare(request)
        await behave(ws)
        return ws

    app = web.Application()
    app.router.add_get("/", upgrade)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


class Raw:
    """A stream without JSON-RPC on it."""

    def __init__(self, connection) -> None:
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.connection = connection
        connection.attach(self)

    def message_received(self, data: bytes) -> None:
        self.messages.put_nowait(data)

    def writing_paused(self) -> None: ...

    def writing_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        self.messages.put_nowait(None)

    async def next(self) -> bytes | None:
        async with asyncio.timeout(60):
            return await self.messages.get()


async def dial(relay) -> Raw:
    return Raw(await NoiseDialler(relay.url, "env-1", HarnessToken(TOKEN), limits=LIMITS)())


@requirement("remote/forward:opaque")
async def test_a_server_that_listens_is_reached_through_the_relay(relay, server):
    async with forwarding(relay, server.url), connect(relay) as client:
        assert (await client.run(["echo", "far"])).stdout == b"far\n"
        process = await client.start(["cat"], stdin=True)
        relay.cut("harness")
        await process.write(b"on\n")
        assert (await anext(process)).data == b"on\n"
        await process.terminate()


@requirement("remote/forward:opaque")
async def test_messages_are_not_looked_at_and_large_ones_leave_in_fragments(relay):
    async def echo(ws):
        async for message in ws:
            assert message.type == WSMsgType.BINARY
            await ws.send_bytes(message.data)
            await ws.send_str("as text")

    async with destination(echo) as url, forwarding(relay, url):
        stream = await dial(relay)
        for data in (b"\xff\x00 no json", bytes(9_000_000)):
            stream.connection.send(data)
            assert await stream.next() == data
            assert await stream.next() == b"as text"
        stream.connection.abort()
        assert await stream.next() is None
        await relay.until(lambda: len(relay.sockets) == 1)


@requirement("remote/forward:opaque")
async def test_a_large_message_leaves_in_fragments_of_8_mib(relay):
    frames: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
    async with raw_destination(frames) as url, forwarding(relay, url):
        stream = await dial(relay)
        data = os.urandom(9_000_000)
        stream.connection.send(data)
        async with asyncio.timeout(60):
            (first, start), (second, rest) = [await frames.get() for _ in range(2)]
        # A binary frame that is not the last one, then the last continuation.
        assert (first, second) == (0x02, 0x80)
        assert (len(start), len(rest)) == (8 << 20, 9_000_000 - (8 << 20))
        assert start + rest == data
        stream.connection.abort()


@contextlib.asynccontextmanager
async def raw_destination(frames: asyncio.Queue[tuple[int, bytes]]):
    """A WebSocket server that reports the first byte and the payload of each frame."""
    serving: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        head = await reader.readuntil(b"\r\n\r\n")
        (key,) = re.findall(rb"(?i)sec-websocket-key: *(\S+)", head)
        accept = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-accept: " + base64.b64encode(accept) + b"\r\n\r\n"
        )
        try:
            while True:
                await frames.put(await read_frame(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 24)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await asyncio.wait(serving)


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, second = await reader.readexactly(2)
    size, wide = second & 0x7F, {126: 2, 127: 8}
    if size in wide:
        size = int.from_bytes(await reader.readexactly(wide[size]), "big")
    mask = await reader.readexactly(4)
    masked = await reader.readexactly(size)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return first, (int.from_bytes(masked, "big") ^ key).to_bytes(size, "big")


@requirement("remote/forward:ends")
async def test_the_end_of_the_destination_resets_the_stream_after_its_last_words(relay):
    async def leave(ws):
        await ws.receive()
        await ws.send_bytes(b"last words")
        await ws.close()

    async with destination(leave) as url, forwarding(relay, url):
        stream = await dial(relay)
        stream.connection.send(b"go")
        assert await stream.next() == b"last words"
        assert await stream.next() is None


@requirement("remote/forward:ends")
async def test_the_end_of_the_harness_drops_the_destination(relay):
    gone = asyncio.Event()

    async def wait(ws):
        await ws.send_bytes(b"hello")
        try:
            async for _ in ws:
                pass
        finally:
            gone.set()

    async with destination(wait) as url, forwarding(relay, url):
        stream = await dial(relay)
        assert await stream.next() == b"hello"
        stream.connection.close()
        async with asyncio.timeout(60):
            await gone.wait()


@pytest.mark.parametrize("ends", [False, True])
@requirement("remote/forward:opaque")
async def test_what_the_destination_says_first_waits_for_a_receiver(relay, ends):
    said = asyncio.Event()

    async def talk(ws):
        for number in range(50):
            await ws.send_bytes(b"%d" % number)
        said.set()
        if not ends:
            async for message in ws:
                await ws.send_bytes(message.data)

    async with destination(talk) as url, forwarding(relay, url):
        connection = await NoiseDialler(relay.url, "env-1", HarnessToken(TOKEN), limits=LIMITS)()
        async with asyncio.timeout(60):
            await said.wait()
        stream = Raw(connection)
        assert [await stream.next() for _ in range(50)] == [b"%d" % number for number in range(50)]
        if not ends:
            connection.send(b"and on")
            assert await stream.next() == b"and on"
            connection.abort()
        assert await stream.next() is None


@requirement("remote/forward:ends")
async def test_an_empty_message_and_an_absent_destination_reset_the_stream(relay):
    async def say_nothing(ws):
        await ws.send_bytes(b"")
        async for _ in ws:
            pass

    async with destination(say_nothing) as url, forwarding(relay, url):
        stream = await dial(relay)
        assert await stream.next() is None
    await relay.until(lambda: not relay.sockets)
    async with forwarding(relay, "ws://127.0.0.1:1/"):
        stream = await dial(relay)
        assert await stream.next() is None
        with pytest.raises(ConnectError):
            async with connect(relay):
                pass


@requirement("remote/forward:ends")
@pytest.mark.parametrize("url", ["", "http://h", "ws://", "h:1", "ws://[::1"])
def test_only_a_websocket_url_is_a_destination(url):
    with pytest.raises(ConfigurationError):
        check_destination(url)

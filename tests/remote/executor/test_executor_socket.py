"""The WebSocket to a rendezvous: pings, pauses and its end."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest
from aiohttp import WSMsgType, web

from exec_server.limits import DEFAULT_LIMITS
from exec_server.transport.frames import Sizes, dial_frames
from tests.requirements import requirement

SIZES = Sizes(frame_bytes=262144, message_bytes=262144, sent_frame_bytes=262144)


class Listening:
    """A receiver that keeps what it is given."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.texts: list[bytes] = []
        self.pauses = 0
        self.got = asyncio.Event()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def socket_opened(self, socket) -> None:
        self.socket = socket

    def frame_received(self, data: bytes | memoryview) -> None:
        self.frames.append(bytes(data))
        self.got.set()

    def text_received(self, data: bytes) -> None:
        self.texts.append(data)

    def writing_paused(self) -> None:
        self.pauses += 1

    def writing_resumed(self) -> None: ...

    def socket_lost(self, reason: str) -> None:
        self.lost.set_result(reason)


@contextlib.asynccontextmanager
async def dialled(behave, *, autoping: bool = True, **limits: float):
    """Yield a socket to a server that does what *behave* says."""

    async def upgrade(request):
        ws = web.WebSocketResponse(
            compress=False, max_msg_size=0, autoping=autoping, autoclose=False, timeout=0.2
        )
        await ws.prepare(request)
        await behave(ws, request)
        return ws

    app = web.Application()
    app.router.add_get("/", upgrade)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver = Listening()
    try:
        await dial_frames(
            f"ws://127.0.0.1:{runner.addresses[0][1]}/",
            receiver,
            sizes=SIZES,
            limits=msgspec.structs.replace(DEFAULT_LIMITS, **limits),
        )
        async with asyncio.timeout(60):
            yield receiver
    finally:
        if hasattr(receiver, "socket"):
            receiver.socket.drop()
            await receiver.lost
        await runner.cleanup()


async def read_on(ws, _request):
    async for _ in ws:
        pass


@requirement("remote/socket:keepalive")
async def test_pings_go_out_and_pongs_keep_it_open(no_leaks):
    pings = asyncio.Semaphore(0)

    async def count(ws, _request):
        async for message in ws:
            if message.type == WSMsgType.PING:
                assert message.data == b""
                # Any pong is enough.
                await ws.pong(b"unasked")
                pings.release()

    async with dialled(count, autoping=False, ping_interval=0.02, pong_timeout=5.0) as receiver:
        for _ in range(4):
            await pings.acquire()
        assert not receiver.lost.done()


@requirement("remote/socket:keepalive")
async def test_no_second_ping_is_sent_before_a_pong_and_its_lack_is_the_end(no_leaks):
    pings = []

    async def ignore(ws, _request):
        async for message in ws:
            if message.type == WSMsgType.PING:
                pings.append(message)
                # Other messages do not count as an answer.
                await ws.send_bytes(b"busy")

    async with dialled(ignore, autoping=False, ping_interval=0.02, pong_timeout=0.2) as receiver:
        assert await receiver.lost == "pong_timeout"
    assert len(pings) == 1


@requirement("remote/socket:keepalive")
async def test_a_ping_of_the_peer_is_answered_in_its_words(no_leaks):
    answered = asyncio.get_running_loop().create_future()

    async def ask(ws, _request):
        await ws.ping(b"are you there")
        async for message in ws:
            if message.type == WSMsgType.PONG:
                answered.set_result(message.data)

    async with dialled(ask, autoping=False):
        assert await answered == b"are you there"


@requirement("remote/socket:keepalive")
async def test_a_peer_that_does_not_read_is_dropped(no_leaks):
    is_over = asyncio.Event()

    async def stop_reading(_ws, request):
        request.transport.pause_reading()
        await is_over.wait()
        request.transport.abort()

    async with dialled(stop_reading, relay_write_timeout=0.1) as receiver:
        while not receiver.pauses:
            receiver.socket.send(bytes(262144))
        assert await receiver.lost == "write_error"
        is_over.set()


@requirement("remote/socket:sizes")
@pytest.mark.parametrize("in_fragments", [False, True])
async def test_the_largest_message_passes_and_a_larger_one_drops_the_socket(no_leaks, in_fragments):
    more = asyncio.Event()

    async def say(ws, size):
        if not in_fragments:
            await ws.send_bytes(bytes(size))
            return
        first, rest = bytes(100_000), bytes(size - 100_000)
        writer = ws._writer.transport
        for opcode, data in ((0x02, first), (0x80, rest)):
            writer.write(bytes((opcode, 127)) + len(data).to_bytes(8) + data)

    async def behave(ws, _request):
        await ws.send_str("text")
        await say(ws, 262144)
        await more.wait()
        await say(ws, 262145)
        await read_on(ws, _request)

    async with dialled(behave) as receiver:
        await receiver.got.wait()
        assert [len(frame) for frame in receiver.frames] == [262144]
        assert receiver.texts == [b"text"]
        more.set()
        assert await receiver.lost == "read_error"
        assert len(receiver.frames) == 1


@requirement("remote/socket:close")
async def test_a_close_is_not_answered(no_leaks):
    codes = asyncio.get_running_loop().create_future()

    async def leave(ws, _request):
        try:
            await ws.close(code=1001)
        finally:
            codes.set_result(ws.close_code)

    async with dialled(leave) as receiver:
        assert await receiver.lost == "peer_close"
        # The peer got no close code.
        assert await codes in (None, 1006)

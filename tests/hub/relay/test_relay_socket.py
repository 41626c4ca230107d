"""One rendezvous socket shares the event loop with the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import aiohttp
import msgspec
import pytest

from exec_server.hub.relay.relay_socket import RelaySocket
from exec_server.limits import DEFAULT_LIMITS
from tests.requirements import requirement

MESSAGES = 10_000
TINY = b"\x08\x01\x12\x01s"


class FullSocket:
    """A WebSocket that has received many messages already, and whose peer reads at once."""

    closed = False

    def __init__(self, message: aiohttp.WSMessage) -> None:
        self._message = message
        self.left = MESSAGES
        self.sent = 0
        self.taken: asyncio.Queue[bytes] = asyncio.Queue()
        self.has_begun = asyncio.Event()
        self.was_pinged = asyncio.Event()

    async def receive(self) -> aiohttp.WSMessage:
        if not self.left:
            return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)
        self.left -= 1
        return self._message

    async def send_bytes(self, data: bytes) -> None:
        self.sent += 1
        self.taken.put_nowait(data)
        self.has_begun.set()

    async def pong(self, data: bytes) -> None:
        pass

    async def ping(self) -> None:
        self.was_pinged.set()

    async def close(self, **options: Any) -> None:
        pass


class Turns:
    """Counts how often other tasks run."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Turns:
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


class _Request:
    transport = None


class SlowTransport:
    """A transport whose peer reads only when the test says so."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.waiting = 0

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


class _Upgraded:
    def __init__(self) -> None:
        self.transport = SlowTransport()


def socket_of(full: FullSocket) -> RelaySocket:
    return RelaySocket(full, _Request(), limits=DEFAULT_LIMITS)  # type: ignore[arg-type]


@requirement("security/registry:tiny-frames")
@pytest.mark.parametrize("kind", [aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.PING])
async def test_others_run_while_tiny_messages_are_received(kind):
    full = FullSocket(aiohttp.WSMessage(kind, TINY, None))
    received: list[bytes] = []
    async with Turns() as turns:
        await socket_of(full).carry(received.append)
    assert not full.left
    assert turns.count > MESSAGES / 100


@requirement("security/registry:tiny-frames")
async def test_others_run_while_tiny_messages_are_sent():
    full = FullSocket(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, TINY, None))
    socket = socket_of(full)
    for _ in range(MESSAGES):
        socket.send(TINY, None)
    socket.end(1000, "")
    async with Turns() as turns:
        assert await socket._write_all()
    assert full.sent == MESSAGES
    assert turns.count > MESSAGES / 100


@requirement("security/registry:tiny-frames")
async def test_a_queue_may_be_discarded_while_it_is_sent():
    full = FullSocket(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, TINY, None))
    socket = socket_of(full)
    for _ in range(MESSAGES):
        socket.send(TINY, None)
    writing = asyncio.ensure_future(socket._write_all())
    await full.has_begun.wait()
    socket.discard()
    assert await writing is False
    assert full.sent < MESSAGES


@requirement("hub/socket:keepalive")
async def test_a_peer_that_is_not_read_gets_signs_of_life():
    limits = msgspec.structs.replace(DEFAULT_LIMITS, silence=0.02, ping_interval=3600.0)
    full = FullSocket(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, TINY, None))
    socket = RelaySocket(full, _Request(), limits=limits)  # type: ignore[arg-type]
    carrying = asyncio.ensure_future(socket.carry(lambda data: socket.pause()))
    async with asyncio.timeout(30):
        for _ in range(3):
            await full.was_pinged.wait()
            full.was_pinged.clear()
    # It was paused by its first message.
    assert full.left == MESSAGES - 1
    carrying.cancel()
    await asyncio.wait([carrying])


@requirement("hub/socket:whole-frames")
@pytest.mark.parametrize(
    ("size", "header"),
    [(1, "8201"), (200, "827e00c8"), (61_508, "827ef044"), (200_000, "827f0000000000030d40")],
)
async def test_a_message_is_written_at_once_and_in_one_piece(size, header):
    request = _Upgraded()
    left: list[int] = []
    full = FullSocket(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, TINY, None))
    socket = RelaySocket(full, request, limits=DEFAULT_LIMITS)  # type: ignore[arg-type]
    socket.on_taken(lambda origin, size: left.append(size))
    socket.pause()
    socket.send(b"before the socket is carried", None)
    assert not request.transport.writes
    carrying = asyncio.ensure_future(socket.carry(lambda data: None))
    await full.has_begun.wait()
    left.clear()
    socket.send(bytes(size), None)
    assert request.transport.writes == [bytes.fromhex(header) + bytes(size)]
    assert left == [size]
    carrying.cancel()
    await asyncio.wait([carrying])


async def carried() -> tuple[_Upgraded, FullSocket, RelaySocket, asyncio.Future[None]]:
    """A socket that is being carried and receives nothing."""
    request = _Upgraded()
    full = FullSocket(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, TINY, None))
    socket = RelaySocket(full, request, limits=DEFAULT_LIMITS)  # type: ignore[arg-type]
    socket.pause()
    carrying = asyncio.ensure_future(socket.carry(lambda data: None))
    await asyncio.sleep(0)
    return request, full, socket, carrying


@requirement("hub/socket:whole-frames")
async def test_messages_keep_their_order_behind_a_slow_peer():
    request, full, socket, carrying = await carried()
    request.transport.waiting = 1 << 20
    socket.send(b"first", None)
    request.transport.waiting = 0
    # The first one waits for the task that writes, so the second one does, too.
    socket.send(b"second", None)
    assert not request.transport.writes
    assert [await full.taken.get(), await full.taken.get()] == [b"first", b"second"]
    socket.send(b"third", None)
    assert request.transport.writes == [b"\x82\x05third"] and full.sent == 2
    carrying.cancel()
    await asyncio.wait([carrying])


@requirement("hub/socket:whole-frames")
async def test_nothing_is_written_after_the_close_frame():
    request, full, socket, carrying = await carried()
    full.closed = True
    socket.send(b"late", None)
    assert not request.transport.writes
    carrying.cancel()
    await asyncio.wait([carrying])

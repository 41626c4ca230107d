"""One rendezvous socket shares the event loop with the others."""

from __future__ import annotations

import asyncio
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
        self.has_begun = asyncio.Event()
        self.was_pinged = asyncio.Event()

    async def receive(self) -> aiohttp.WSMessage:
        if not self.left:
            return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)
        self.left -= 1
        return self._message

    async def send_bytes(self, data: bytes) -> None:
        self.sent += 1
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

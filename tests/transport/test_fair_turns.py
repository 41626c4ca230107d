"""One client that sends very many small things, and the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from exec_server.server.serving import serve
from exec_server.transport.fair_turns import MESSAGES_PER_TURN, HeldInput
from tests.requirements import requirement
from tests.support.raw import RawSocket
from tests.support.wire import PATIENCE, Wire

# Everything here is the same over TLS.
pytestmark = [
    pytest.mark.usefixtures("carrier"),
    pytest.mark.parametrize("carrier", ["plain", "tls"], indirect=True),
]

COUNT = 20_000
INITIALIZE = {"id": 7, "method": "initialize", "params": {"clientName": "x"}}


def frame(opcode: int, payload: bytes) -> bytes:
    assert len(payload) < 126
    return bytes([0x80 | opcode, 0x80 | len(payload), 0, 0, 0, 0]) + payload


class Turns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self.count += 1
        self._handle = self._loop.call_soon(self._tick)

    def stop(self) -> None:
        self._handle.cancel()


@asynccontextmanager
async def upgraded(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with RawSocket(url) as sock:
        await sock.upgrade()
        yield sock.reader, sock.writer


async def read_until(reader: asyncio.StreamReader, wanted: bytes) -> None:
    tail = b""
    async with asyncio.timeout(PATIENCE):
        while wanted not in tail:
            data = await reader.read(1 << 20)
            assert data, "the server closed the connection"
            tail = tail[-len(wanted) :] + data


@requirement("fair:turns")
@pytest.mark.parametrize(
    "small",
    [frame(0x9, b""), frame(0xA, b""), frame(0x1, b"x"), frame(0x2, b"{}"), b"fragments"],
    ids=["pings", "pongs", "malformed", "binary", "fragments"],
)
async def test_many_tiny_frames_take_many_turns(no_leaks, small):
    flood = small * COUNT
    if small == b"fragments":
        # One message in very many frames, the first of which is not a continuation.
        flood = b"\x01\x80\0\0\0\0" + b"\x00\x81\0\0\0\0 " * COUNT + b"\x80\x80\0\0\0\0"
    async with serve() as server, upgraded(server.url) as (reader, writer):
        turns = Turns()
        writer.write(flood + frame(0x1, json.dumps(INITIALIZE).encode()))
        await read_until(reader, b'{"id":7,"result"')
        turns.stop()
        assert turns.count > COUNT / MESSAGES_PER_TURN / 4


@requirement("fair:turns")
async def test_another_client_is_served_during_a_flood(no_leaks):
    async with serve() as server, upgraded(server.url) as (reader, writer):
        async with Wire(server.url) as wire:
            await wire.initialize()
            seen = asyncio.create_task(read_until(reader, b'{"id":7,"result"'))
            writer.write(frame(0x1, b"x") * COUNT + frame(0x1, json.dumps(INITIALIZE).encode()))
            await wire.call("environment/status", {})
            assert not seen.done()
            await seen


@requirement("fair:turns")
async def test_many_tiny_lines_take_many_turns(no_leaks, tmp_path):
    async with serve(f"unix://{tmp_path}/socket"):
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/socket")
        turns = Turns()
        writer.write(b"{}\n" * COUNT + json.dumps(INITIALIZE).encode() + b"\n")
        await read_until(reader, b'{"id":7,"result"')
        turns.stop()
        writer.close()
        assert turns.count > COUNT / MESSAGES_PER_TURN / 4


async def test_held_input_keeps_its_order_and_says_when_nothing_is_left():
    seen: list[tuple[int, bool]] = []
    reading: list[bool] = []
    held: HeldInput[int] = HeldInput(lambda item, more: seen.append((item, more)), reading.append)
    for number in range(MESSAGES_PER_TURN + 2):
        held.add(number)
    assert not seen and reading == [False]
    await asyncio.sleep(0)
    assert len(seen) == MESSAGES_PER_TURN and seen[-1] == (MESSAGES_PER_TURN - 1, False)
    await asyncio.sleep(0)
    assert [item for item, _ in seen] == list(range(MESSAGES_PER_TURN + 2))
    assert reading == [False, True] and not held


async def test_held_input_that_is_cleared_is_not_delivered():
    seen: list[int] = []

    def stop(item: int, _: bool) -> None:
        seen.append(item)
        held.clear()

    held: HeldInput[int] = HeldInput(stop, lambda _: None)
    for number in range(5):
        held.add(number)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [0]

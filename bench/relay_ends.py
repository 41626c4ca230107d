"""Two ends that send each other relay frames, and how fast these arrive.

Neither encrypts, and both are in one process: what is between them is measured, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from picows import ws_create_server

from exec_server.limits import DEFAULT_LIMITS
from exec_server.relay.frame import Data, RelayFrame, StreamId, encode
from exec_server.transport.frames import FrameSocket, Sizes, dial_frames

_MIB = 1 << 20
_RECORD = 60 << 10
_ECHOES = 2000
_SIZES = Sizes(
    frame_bytes=DEFAULT_LIMITS.relay_frame_bytes,
    message_bytes=DEFAULT_LIMITS.relay_frame_bytes,
    sent_frame_bytes=DEFAULT_LIMITS.relay_frame_bytes,
)


class End:
    """One end of a way: counts what comes, and sends it back where that is wanted."""

    def __init__(self) -> None:
        self.echoes = False
        self._missing = 0
        self._arrived = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._lost = asyncio.Event()

    @staticmethod
    async def dial(url: str) -> End:
        end = End()
        await dial_frames(url, end, sizes=_SIZES, limits=DEFAULT_LIMITS)
        return end

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    async def lost(self) -> None:
        await self._lost.wait()

    def socket_opened(self, socket: FrameSocket) -> None:
        self._socket = socket

    def frame_received(self, data: bytes | memoryview) -> None:
        if self.echoes:
            self._socket.send(bytes(data))
        self._missing -= len(data)
        if self._missing <= 0:
            self._arrived.set()

    def text_received(self, data: bytes) -> None:
        raise AssertionError("a peer sent text")

    def writing_paused(self) -> None:
        self._may_write.clear()

    def writing_resumed(self) -> None:
        self._may_write.set()

    def socket_lost(self, reason: str) -> None:
        self._lost.set()
        self._may_write.set()

    def expect(self, size: int) -> None:
        self._missing = size
        self._arrived.clear()

    async def arrived(self) -> None:
        await self._arrived.wait()

    async def send(self, data: bytes) -> None:
        await self._may_write.wait()
        assert not self.is_lost, "the socket is lost"
        self._socket.send(data)

    def drop(self) -> None:
        self._socket.drop()


class Way(NamedTuple):
    harness: End
    executor: End


@contextlib.asynccontextmanager
async def directly() -> AsyncIterator[Way]:
    """A socket from one end to the other, with nothing in between."""
    executor = End()

    def listener(_: Any) -> FrameSocket:
        return FrameSocket(
            executor,
            sizes=_SIZES,
            limits=DEFAULT_LIMITS,
            answers_close=False,
            on_open=lambda _: None,
        )

    server = await ws_create_server(listener, "127.0.0.1", 0, enable_auto_ping=False)
    port = server.sockets[0].getsockname()[1]
    harness = await End.dial(f"ws://127.0.0.1:{port}")
    try:
        yield Way(harness, executor)
    finally:
        harness.drop()
        executor.drop()
        server.close()


class Measured(NamedTuple):
    """MB/s each way, and the seconds of a small frame and its echo."""

    up: float
    down: float
    echo: float


async def measure(way: Way, megabytes: int) -> Measured:
    # A stream is the harness's that first speaks on it.
    echo = await _echo(way)
    up = await throughput(way.harness, way.executor, megabytes)
    return Measured(up, await throughput(way.executor, way.harness, megabytes), echo)


def middle(figures: list[Measured]) -> Measured:
    return Measured(*(statistics.median(column) for column in zip(*figures, strict=True)))


async def throughput(sender: End, receiver: End, megabytes: int) -> float:
    """MB/s of payload; on a stream on which the harness has spoken."""
    frame = _frame(_RECORD)
    count = megabytes * _MIB // _RECORD
    receiver.expect(count * len(frame))
    began = time.perf_counter()
    for _ in range(count):
        await sender.send(frame)
    await receiver.arrived()
    return count * _RECORD / 1e6 / (time.perf_counter() - began)


async def _echo(way: Way) -> float:
    frame = _frame(64)
    times = []
    way.executor.echoes = True
    for _ in range(_ECHOES):
        way.harness.expect(len(frame))
        began = time.perf_counter()
        await way.harness.send(frame)
        await way.harness.arrived()
        times.append(time.perf_counter() - began)
    way.executor.echoes = False
    return statistics.median(times)


def _frame(size: int) -> bytes:
    return encode(RelayFrame(StreamId("bench"), Data(1, bytes(size))))

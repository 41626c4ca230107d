"""The throughput of a NATS bus between two nodes, and the share of the library.

    python bench/bus.py [--megabytes 256] [--rounds 5]

Two processes exchange messages through one nats-server on the loopback: with our bus whose
messages have codes, as nodes use it, with our bus without codes, with nats-py
alone as its manual shows it, and with a bare client of the protocol that does nothing but parse,
which shows what the server itself allows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import nats
from nats.aio.msg import Msg

from bench import machine
from exec_server.cli.event_loop import in_loop
from exec_server.hub.bus import Bus
from exec_server.hub.bus.nats_bus import NatsBus
from exec_server.hub.bus.signed_bus import SignedBus
from tests.support.nats import NatsCluster

_MIB = 1 << 20
_RECORD = 60 << 10
_SMALL = 64
_ECHOES = 2000
# The records that are on the way at most, and how often the receiver acknowledges.
_WINDOW = 128
_ACK_EVERY = 16
_SECONDS = 300

Take = Callable[[bytes], None]


class Node(Protocol):
    """One of two ends: it receives what the other one sends."""

    async def send(self, data: bytes) -> None: ...


class BusNode:
    def __init__(self, bus: Bus, other: str) -> None:
        self._bus, self._other = bus, other

    async def send(self, data: bytes) -> None:
        self._bus.publish(self._other, data)


@contextlib.asynccontextmanager
async def our_bus(url: str, name: str, other: str, take: Take) -> AsyncIterator[Node]:
    bus = await NatsBus.open(url, name="bench")
    await bus.subscribe(name, take)
    yield BusNode(bus, other)
    await bus.close()


class LibraryNode:
    def __init__(self, client: Any, other: str) -> None:
        self._client, self._other = client, other

    async def send(self, data: bytes) -> None:
        await self._client.publish(self._other, data)


@contextlib.asynccontextmanager
async def library(url: str, name: str, other: str, take: Take) -> AsyncIterator[Node]:
    client = await nats.connect(url)

    async def receive(message: Msg) -> None:
        take(message.data)

    await client.subscribe(name, cb=receive)
    await client.flush()
    yield LibraryNode(client, other)
    await client.close()


class BareNode(asyncio.Protocol):
    """A minimal client, which takes every line for a message."""

    def __init__(self, name: str, other: str, take: Take) -> None:
        self._name, self._other, self._take = name, other.encode(), take
        self._buffer = bytearray()
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(b'CONNECT {"verbose":false}\r\nSUB %s 1\r\n' % self._name.encode())

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    async def send(self, data: bytes) -> None:
        await self._may_write.wait()
        head = b"PUB %s %d\r\n" % (self._other, len(data))
        self.transport.writelines([head, data, b"\r\n"])

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n", 0, 4096)) >= 0:
            words = bytes(self._buffer[:end]).split()
            size = 0
            if words[0] == b"MSG":
                size = int(words[-1]) + 2
                if len(self._buffer) < end + 2 + size:
                    return
                self._take(bytes(memoryview(self._buffer)[end + 2 : end + size]))
            elif words[0] == b"PING":
                self.transport.write(b"PONG\r\n")
            del self._buffer[: end + 2 + size]


@contextlib.asynccontextmanager
async def bare(url: str, name: str, other: str, take: Take) -> AsyncIterator[Node]:
    host, _, port = url.removeprefix("nats://").partition(":")
    loop = asyncio.get_running_loop()
    transport, node = await loop.create_connection(
        lambda: BareNode(name, other, take), host, int(port)
    )
    yield node
    transport.close()


@contextlib.asynccontextmanager
async def signed(url: str, name: str, other: str, take: Take) -> AsyncIterator[Node]:
    bus = SignedBus(await NatsBus.open(url, name="bench"), bytes(32))
    await bus.subscribe(name, take)
    yield BusNode(bus, other)
    await bus.close()


WAYS = {"signed": signed, "bus": our_bus, "library": library, "bare": bare}


class Far:
    """The process at the other end: it echoes small messages and counts large ones."""

    def __init__(self) -> None:
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._count = 0

    def take(self, data: bytes) -> None:
        if len(data) == _SMALL:
            self._answers.put_nowait(data)
            return
        self._count += 1
        if self._count % _ACK_EVERY == 0:
            self._answers.put_nowait(b"%d" % self._count)

    async def run(self, way: str, url: str) -> int:
        async with WAYS[way](url, "far", "near", self.take) as node:
            # The process that started this one ends it.
            await node.send(b"hello")
            while True:
                await node.send(await self._answers.get())


@contextlib.contextmanager
def far(way: str, url: str) -> Iterator[None]:
    child = subprocess.Popen([sys.executable, __file__, "--far", way, url])
    try:
        yield
    finally:
        child.kill()
        child.wait()


class Measured(NamedTuple):
    """MB/s one way, and the seconds of a small message and its echo."""

    rate: float
    echo: float


class Near:
    """The process that measures."""

    def __init__(self) -> None:
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def measure(self, way: str, url: str, megabytes: int) -> Measured:
        async with WAYS[way](url, "near", "far", self._answers.put_nowait) as node:
            with far(way, url):
                await self._answers.get()
                echo = await self._echo(node)
                return Measured(await self._rate(node, megabytes), echo)

    async def _echo(self, node: Node) -> float:
        times = []
        for _ in range(_ECHOES):
            began = time.perf_counter()
            await node.send(bytes(_SMALL))
            await self._answers.get()
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    async def _rate(self, node: Node, megabytes: int) -> float:
        record = bytes(_RECORD)
        count = megabytes * _MIB // _RECORD // _ACK_EVERY * _ACK_EVERY
        arrived = 0
        began = time.perf_counter()
        for number in range(count):
            while number - arrived >= _WINDOW:
                arrived = int(await self._answers.get())
            await node.send(record)
        while arrived < count:
            arrived = int(await self._answers.get())
        return count * _RECORD / 1e6 / (time.perf_counter() - began)


async def run(megabytes: int, rounds: int) -> dict[str, Measured]:
    found: dict[str, list[Measured]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, NatsCluster(Path(folder)) as cluster:
        await cluster.ready()
        async with asyncio.timeout(_SECONDS):
            for _ in range(rounds):
                for way, figures in found.items():
                    figures.append(await Near().measure(way, cluster.url, megabytes))
    return {way: _middle(figures) for way, figures in found.items()}


def _middle(figures: list[Measured]) -> Measured:
    return Measured(*(statistics.median(column) for column in zip(*figures, strict=True)))


def report(found: dict[str, Measured]) -> str:
    limit = found["bare"]
    return "\n".join(
        f"{way}: {figure.rate:.0f} MB/s ({figure.rate / limit.rate:.2f} of the bare client), "
        f"echo {figure.echo * 1e6:.0f} us"
        for way, figure in found.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--far", nargs=2, metavar=("WAY", "URL"), help=argparse.SUPPRESS)
    values = parser.parse_args()

    async def work() -> int:
        print(report(await run(values.megabytes, values.rounds)))
        return 0

    if values.far:
        in_loop(Far().run(*values.far))
    for name, text in machine.facts().items():
        print(f"{name}: {text}")
    print(f"Load before: {machine.load():.1f}", flush=True)
    in_loop(work())


if __name__ == "__main__":
    main()

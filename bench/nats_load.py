"""The load of a large registry on its NATS servers: subscriptions, owner records and beats.

    python bench/nats_load.py subscriptions [--nodes 50] [--count 1000000] [--servers 3]
    python bench/nats_load.py owners [--count 50000] [--servers 3]
    python bench/nats_load.py beats [--count 5000]

No node runs. Bare connections, one for each node, make the subscriptions. The owner records are
written through our bus, as nodes do it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import aiohttp

from bench import proc
from bench.hub import show_machine
from bench.registries import Meter, Spent, all_of
from exec_server.cli.event_loop import in_loop
from exec_server.hub.bus.nats_bus import NatsBus
from exec_server.hub.cluster.channels import new_node
from exec_server.hub.cluster.node_messages import Beat, OwnerRecord, encode, ownership_key
from exec_server.hub.cluster.peers import Peers
from exec_server.limits import DEFAULT_LIMITS
from tests.support.nats import NatsCluster

_SECONDS = 900
# These subjects are as long as the real ones.
_SUBJECT = "exec-server.{name}.request.executor.{key}"
_NAME = os.urandom(8).hex()
_LINES = 1000
_POLL_SECONDS = 0.05
# Servers have a few subscriptions of their own, which come and go.
_SLACK = 50
# Until the servers have allocated what they need for themselves.
_SETTLE_SECONDS = 2.0
_BEAT_SECONDS = 0.001
# The nodes that write owner records, and the calls of all of them at a time.
_BUSES = 3
_AT_ONCE = 192


class Connection:
    """A client that subscribes and reads no messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)

    @staticmethod
    async def dial(host: str) -> Connection:
        name, _, port = host.partition(":")
        reader, writer = await asyncio.open_connection(name, int(port), limit=1 << 20)
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
        return Connection(reader, writer)

    async def subscribe(self, count: int) -> None:
        """Return when the server knows all subscriptions."""
        for start in range(0, count, _LINES):
            size = min(_LINES, count - start)
            numbers = itertools.islice(self._numbers, size)
            self._writer.writelines(_subscription(number) for number in numbers)
            await self._writer.drain()
        await self.settle()

    async def send(self, line: bytes, count: int) -> None:
        for start in range(0, count, _LINES):
            self._writer.write(line * min(_LINES, count - start))
            await self._writer.drain()

    async def settle(self) -> None:
        self._writer.write(b"PING\r\n")
        while await self._reader.readline() != b"PONG\r\n":
            # The server also sends pings. A measurement is too short to have to answer them.
            pass

    def close(self) -> None:
        self._writer.close()


def _subscription(number: int) -> bytes:
    subject = _SUBJECT.format(name=_NAME, key=os.urandom(16).hex())
    return f"SUB {subject} {number}\r\n".encode()


class Monitors:
    """The number of new subscriptions that each server knows of."""

    def __init__(self, cluster: NatsCluster, web: aiohttp.ClientSession) -> None:
        self._web = web
        self._ports = [_monitor(cluster.log(index)) for index in range(cluster.size)]
        self._before: list[int] = []

    async def start(self) -> None:
        self._before = await self._read()

    async def agree_on(self, count: int) -> None:
        """Return when every server knows of *count*."""
        while max(abs(known - count) for known in await self._known()) > _SLACK:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)

    async def _known(self) -> list[int]:
        return [now - was for now, was in zip(await self._read(), self._before, strict=True)]

    async def _read(self) -> list[int]:
        return [await self._subscriptions(port) for port in self._ports]

    async def _subscriptions(self, port: str) -> int:
        async with self._web.get(f"http://127.0.0.1:{port}/subsz") as response:
            return int((await response.json())["num_subscriptions"])


def _monitor(log: str) -> str:
    found = re.search(r"http monitor on 127.0.0.1:(\d+)", log)
    assert found, log
    return found[1]


async def subscriptions(servers: int, nodes: int, count: int) -> str:
    """Subscriptions of *nodes* connections, spread over the servers."""
    lines = []
    with (
        tempfile.TemporaryDirectory() as folder,
        NatsCluster(Path(folder), servers, config='http: "127.0.0.1:-1"') as cluster,
    ):
        await cluster.ready()
        async with aiohttp.ClientSession() as web:
            monitors = Monitors(cluster, web)
            hosts = cluster.hosts
            connections = [
                await Connection.dial(hosts[number % servers]) for number in range(nodes)
            ]
            await asyncio.sleep(_SETTLE_SECONDS)
            await monitors.start()
            pids = [cluster.pid(index) for index in range(servers)]
            empty, done = _resident(pids), 0
            for total in _steps(count):
                meter = Meter({"nats": pids})
                each = (total - done) // nodes
                await asyncio.gather(*(one.subscribe(each) for one in connections))
                done += each * nodes
                await monitors.agree_on(done)
                spent = meter.spent()
                lines.append(_subscriptions_line(done, each * nodes, _resident(pids), empty, spent))
            began = time.perf_counter()
            connections[0].close()
            await monitors.agree_on(done - done // nodes)
            lines.append(
                f"a lost node's {done // nodes} are gone from all servers after "
                f"{time.perf_counter() - began:.2f} s"
            )
            for one in connections[1:]:
                one.close()
    return "\n".join(lines)


def _subscriptions_line(done: int, new: int, now: list[int], empty: list[int], spent: Spent) -> str:
    each = max(after - before for after, before in zip(now, empty, strict=True)) / done
    return (
        f"{done} subscriptions: {max(now) / 1e6:.0f} MB of a server, {each:.0f} bytes each; "
        f"{new} were known to all servers after {spent.seconds:.1f} s, "
        f"{1e6 * spent.cpu['nats'] / new:.1f} us of processor each"
    )


def _steps(count: int) -> list[int]:
    """1000, 10000 and so on, and *count*."""
    steps = [1000]
    while steps[-1] * 10 < count:
        steps.append(steps[-1] * 10)
    return [*(step for step in steps if step < count), count]


def _resident(pids: list[int]) -> list[int]:
    return [proc.memory([proc.Identity(pid, 0)]).resident for pid in pids]


# Owner records.


async def owners(servers: int, count: int) -> str:
    """Owner records of *count* environments: claimed, read, released."""
    with (
        tempfile.TemporaryDirectory() as folder,
        NatsCluster(Path(folder), servers) as cluster,
    ):
        await cluster.ready()
        pids = [cluster.pid(index) for index in range(servers)]
        buses = [await NatsBus.open(cluster.url, name="bench") for _ in range(_BUSES)]
        empty, disk = _resident(pids), _disk(Path(folder))
        revisions: dict[int, int] = {}

        async def claim(number: int) -> None:
            await write(number, os.urandom(8).hex(), after=0)

        async def release(number: int) -> None:
            await write(number, "", after=revisions[number])

        async def write(number: int, socket_id: str, *, after: int) -> None:
            bus = buses[number % _BUSES]
            revision = await bus.compare_and_set(
                ownership_key(f"idle-{number}"), _owner(socket_id), after=after
            )
            assert revision is not None
            revisions[number] = revision

        async def read(number: int) -> None:
            assert await buses[number % _BUSES].read_value(ownership_key(f"idle-{number}"))

        lines = []
        for what, work in (("claimed", claim), ("read", read), ("released", release)):
            meter = Meter({"nats": pids, "clients": [os.getpid()]})
            await all_of((work(number) for number in range(count)), at_once=_AT_ONCE)
            spent = meter.spent()
            each = spent.per(count)
            lines.append(
                f"{count} owner records {what}: {count / spent.seconds:.0f}/s; processor us each: "
                f"{1e6 * each['nats']:.0f} of all servers, {1e6 * each['clients']:.0f} of clients"
            )
        grown = max(now - was for now, was in zip(_resident(pids), empty, strict=True))
        lines.append(
            f"{grown / count:.0f} bytes of memory each of a server, "
            f"{(_disk(Path(folder)) - disk) / servers / count:.0f} bytes of its disk"
        )
        for bus in buses:
            await bus.close()
    return "\n".join(lines)


# Beats.


async def beats(count: int) -> str:
    """The cost of one beat for the node that receives it, and for NATS."""
    with tempfile.TemporaryDirectory() as folder, NatsCluster(Path(folder)) as cluster:
        await cluster.ready()
        bus = await NatsBus.open(cluster.url, name=_NAME)
        peers = Peers(bus, new_node(), lost=lambda node: None, limits=DEFAULT_LIMITS)
        await peers.start()
        beat = encode(Beat(new_node()))
        subject = f"exec-server.{_NAME}.message.beats"
        line = f"PUB {subject} {len(beat)}\r\n".encode() + beat + b"\r\n"
        heard = asyncio.Event()
        await bus.subscribe("end", lambda data: heard.set())
        connection = await Connection.dial(cluster.hosts[0])
        meter = Meter({"nats": [cluster.pid(0)], "node": [os.getpid()]})
        # They are sent one at a time, as independent nodes send them.
        for _ in range(count):
            await connection.send(line, 1)
            await asyncio.sleep(_BEAT_SECONDS)
        await connection.send(f"PUB exec-server.{_NAME}.message.end 0\r\n\r\n".encode(), 1)
        await heard.wait()
        each = meter.spent().per(count)
        connection.close()
        await peers.stop()
        await bus.close()
    return f"a beat: {1e6 * each['node']:.1f} us of the node, {1e6 * each['nats']:.1f} us of NATS"


def _owner(socket_id: str) -> bytes:
    owner = OwnerRecord(
        node=os.urandom(6).hex(),
        socket_id=socket_id,
        registration_id=os.urandom(11).hex(),
        generation=1,
        since=time.time(),
    )
    return encode(owner)


def _disk(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("subscriptions", "owners", "beats"))
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--count", type=int, default=50_000)
    values = parser.parse_args()
    parts: dict[str, Callable[[], Awaitable[str]]] = {
        "subscriptions": lambda: subscriptions(values.servers, values.nodes, values.count),
        "owners": lambda: owners(values.servers, values.count),
        "beats": lambda: beats(values.count),
    }

    async def work() -> int:
        async with asyncio.timeout(_SECONDS):
            print(await parts[values.part]())
        return 0

    show_machine()
    in_loop(work())


if __name__ == "__main__":
    main()

"""Several nodes on one bus, for each kind of bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from exec_server.hub.bus import Bus
from exec_server.hub.bus.memory_bus import Medium, MemoryBus
from exec_server.hub.bus.nats_bus import NatsBus
from tests.support.chaotic_bus import ChaoticBus
from tests.support.nats import NatsCluster

# A timeout that turns a hang into a failure.
SECONDS = 60.0

# A function that adds a node to the bus of a test.
Join = Callable[[], Awaitable[Bus]]


@pytest.fixture(scope="session")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


@pytest.fixture
def registry_name(request: pytest.FixtureRequest) -> str:
    """A name for each test, so that tests can share a server."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


@pytest.fixture(params=["memory", "chaotic", "nats"])
def server(request: pytest.FixtureRequest) -> NatsCluster | str:
    """The server of a test's bus. It starts before the check for leaks."""
    if request.param == "nats":
        running: NatsCluster = request.getfixturevalue("one_server")
        return running
    return str(request.param)


@pytest.fixture
async def join(
    server: NatsCluster | str, registry_name: str, no_leaks: None
) -> AsyncIterator[Join]:
    medium = Medium()
    nodes: list[Bus] = []

    async def make() -> Bus:
        if isinstance(server, NatsCluster):
            return await NatsBus.open(server.url, name=registry_name)
        return MemoryBus(medium) if server == "memory" else ChaoticBus(MemoryBus(medium))

    async def make_one_more() -> Bus:
        nodes.append(await make())
        return nodes[-1]

    yield make_one_more
    for node in nodes:
        await node.close()


@pytest.fixture
async def open_nats(registry_name: str) -> AsyncIterator[Callable[..., Awaitable[NatsBus]]]:
    """A function that opens NATS buses, which are closed at the end."""
    async with AsyncExitStack() as stack:

        async def open_one(cluster: NatsCluster, **options: Any) -> NatsBus:
            bus = await NatsBus.open(cluster.url, **{"name": registry_name, **options})
            stack.push_async_callback(bus.close)
            return bus

        yield open_one


class Heard:
    """The messages that a subscription has received."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self._more = asyncio.Event()

    def __call__(self, data: bytes) -> None:
        self.messages.append(data)
        self._more.set()

    async def until(self, *, count: int) -> list[bytes]:
        async with asyncio.timeout(SECONDS):
            while len(self.messages) < count:
                self._more.clear()
                await self._more.wait()
        return self.messages

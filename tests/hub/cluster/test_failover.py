"""What nodes do when a node is gone, or owner records cannot be written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from exec_server.hub.bus import BusUnavailable, StoredValue
from exec_server.hub.bus.memory_bus import MemoryBus
from exec_server.relay.frame import Reset, decode
from tests.hub.cluster.test_nodes import QUICK, Nodes, exchange_frames, harness_at
from tests.hub.conftest import bring_online
from tests.hub.http.test_rendezvous import ended, frame, received
from tests.requirements import requirement
from tests.support.chaotic_bus import ChaoticBus
from tests.support.files import until

# The silence of a node is never the reason here.
PATIENT = msgspec.structs.replace(QUICK, hub_peer_seconds=60.0, hub_ownership_seconds=0.1)


class WithoutLeader(MemoryBus):
    """A bus whose servers have no leader: messages flow, and no value can be read or written."""

    is_away = True
    written = 0

    async def read_value(self, key: str) -> StoredValue | None:
        self._check()
        return await super().read_value(key)

    async def compare_and_set(self, key: str, value: bytes, *, after: int) -> int | None:
        self._check()
        revision = await super().compare_and_set(key, value, after=after)
        self.written += revision is not None
        return revision

    def _check(self) -> None:
        if self.is_away:
            raise BusUnavailable("no leader")


@pytest.fixture
async def nodes(tmp_path: Path, no_leaks: None) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        yield Nodes(stack, tmp_path)


async def until_served(visitor, pair) -> None:
    """Wait until some node serves the executor, of which the executor itself is not told."""
    async with asyncio.timeout(60):
        while (await visitor.connect(pair.name, pair.harness)).status != 200:
            pass


@requirement("hub/cluster:no-ownership")
async def test_without_owner_records_executors_are_served_and_found(nodes):
    buses = [WithoutLeader(nodes.medium), WithoutLeader(nodes.medium)]
    first, second = [await nodes.add(bus, PATIENT) for bus in buses]
    pair = await bring_online(first)
    await until_served(second, pair)
    await exchange_frames(pair.executor, await harness_at(second, pair), 3)
    for bus in buses:
        bus.is_away = False
    await until(lambda: buses[0].written > 0)


@requirement("hub/cluster:no-ownership")
async def test_without_owner_records_a_socket_that_comes_back_elsewhere_is_the_one(nodes):
    first, second = [await nodes.add(WithoutLeader(nodes.medium), PATIENT) for _ in range(2)]
    pair = await bring_online(first)
    await until_served(second, pair)
    url = pair.registration["url"].replace(first.hub.url[4:], second.hub.url[4:])
    executor = await second.open(url)
    assert await ended(pair.executor) == []
    for visitor in (first, second):
        await until_served(visitor, pair)
        harness = await harness_at(visitor, pair)
        await exchange_frames(executor, harness, 3)
        await harness.close()
        await received(executor)


@requirement("hub/cluster:no-ownership")
async def test_a_newer_registration_wins_when_owner_records_are_back(nodes):
    apart = ChaoticBus(MemoryBus(nodes.medium))
    first, second = await nodes.add(apart, PATIENT), await nodes.add(limits=PATIENT)
    pair = await bring_online(first)
    await until_served(first, pair)
    apart.cut_off()
    newer = (await second.register(pair.name, pair.enrolment)).body
    executor = await second.open(newer["url"])
    await until_served(second, pair)
    apart.let_back()
    assert await ended(pair.executor) == []
    await exchange_frames(executor, await harness_at(first, pair), 3)


@requirement("hub/cluster:replaced")
async def test_harnesses_hear_at_once_that_their_executor_is_elsewhere(nodes):
    dead = ChaoticBus(MemoryBus(nodes.medium))
    first = await nodes.add(dead, PATIENT)
    second, third = [await nodes.add(limits=PATIENT) for _ in range(2)]
    pair = await bring_online(first)
    harness = await harness_at(second, pair)
    await harness.send_bytes(frame("s"))
    await received(pair.executor)
    dead.cut_off()
    url = pair.registration["url"].replace(first.hub.url[4:], third.hub.url[4:])
    executor = await third.open(url)
    (lost,) = await ended(harness)
    assert isinstance(decode(lost).body, Reset)
    await exchange_frames(executor, await harness_at(second, pair), 3)


@requirement("hub/cluster:silence")
async def test_a_node_without_a_subscription_is_given_up_early(nodes):
    bus = MemoryBus(nodes.medium)
    first, second = await nodes.add(bus, PATIENT), await nodes.add(limits=PATIENT)
    pair = await bring_online(first)
    harness = await harness_at(second, pair)
    await harness.send_bytes(frame("s"))
    await received(pair.executor)
    await bus.close()
    (lost,) = await ended(harness)
    assert isinstance(decode(lost).body, Reset)

"""Several nodes of one registry: a client at one node reaches the executors of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from exec_server.hub.bus import Bus
from exec_server.hub.bus.memory_bus import Medium, MemoryBus
from exec_server.hub.cluster import registrations
from exec_server.hub.registry_service import HubOptions, serve_hub
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay.frame import Reset, decode
from tests.hub.conftest import Pair, Visitor, bring_online, transport_of
from tests.hub.http.test_rendezvous import ended, frame, received, seq_of
from tests.requirements import requirement
from tests.support.chaotic_bus import ChaoticBus, Rates
from tests.support.files import until

# Shorter times than between machines.
QUICK = msgspec.structs.replace(
    DEFAULT_LIMITS,
    hub_beat_seconds=0.05,
    hub_peer_seconds=0.5,
    hub_settle_seconds=0.2,
    hub_channel_tick=0.02,
)


class Nodes:
    """Nodes that share a state and a bus, and a visitor for each."""

    def __init__(self, stack: AsyncExitStack, path: Path) -> None:
        self._stack = stack
        self._state = str(path / "registry.sqlite3")
        self.medium = Medium()
        self.visitors: list[Visitor] = []

    async def add(self, bus: Bus | None = None, limits: Limits = QUICK, **options: Any) -> Visitor:
        bus = bus or MemoryBus(self.medium)
        hub = await self._stack.enter_async_context(
            serve_hub(HubOptions(state=self._state, **options), limits=limits, bus=bus)
        )
        web = await self._stack.enter_async_context(aiohttp.ClientSession())
        visitor = Visitor(hub, web)
        self._stack.callback(visitor.drop_all)
        self.visitors.append(visitor)
        return visitor


@pytest.fixture
async def nodes(tmp_path: Path, no_leaks: None) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        yield Nodes(stack, tmp_path)


async def harness_at(visitor: Visitor, pair: Pair) -> aiohttp.ClientWebSocketResponse:
    """A harness of *pair*'s environment whose socket is at another node."""
    answer = await visitor.connect(pair.name, pair.harness)
    assert answer.status == 200, answer
    return await visitor.open(answer.body["url"])


async def joined(first: Visitor, second: Visitor) -> tuple[Pair, Any]:
    """An executor at one node and a harness at another, with a stream between them."""
    pair = await bring_online(first)
    harness = await harness_at(second, pair)
    await harness.send_bytes(frame("s"))
    await received(pair.executor)
    return pair, harness


async def exchange_frames(executor, harness, count: int, size: int = 2000) -> None:
    """Send *count* frames in both directions at once, and check that all arrive in order."""

    async def send(socket) -> None:
        for seq in range(count):
            await socket.send_bytes(frame("s", seq, size))

    async def take(socket) -> None:
        for seq in range(count):
            assert await received(socket) == frame("s", seq, size)

    await harness.send_bytes(frame("s", 0))
    await received(executor)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for work in (send(executor), take(harness), send(harness), take(executor)):
            tasks.create_task(work)


@requirement("hub/nodes:any-to-any")
async def test_a_harness_at_any_node_reaches_an_executor_at_any_other(nodes):
    first, second, third = [await nodes.add() for _ in range(3)]
    pair = await bring_online(first)
    for visitor in (first, second, third):
        harness = await harness_at(visitor, pair)
        await exchange_frames(pair.executor, harness, 100)
        await harness.close()
        assert isinstance(decode(await received(pair.executor)).body, Reset)


@requirement("hub/nodes:any-to-any")
async def test_frames_of_every_size_cross_unchanged(nodes):
    first, second = await nodes.add(), await nodes.add()
    pair = await bring_online(first)
    harness = await harness_at(second, pair)
    for seq, size in enumerate((1, 61456, 200_000)):
        await harness.send_bytes(frame("s", seq, size))
        assert await received(pair.executor) == frame("s", seq, size)
        await pair.executor.send_bytes(frame("s", seq, size))
        assert await received(harness) == frame("s", seq, size)


@requirement("hub/nodes:ends")
@pytest.mark.parametrize("how", ["close", "drop"])
async def test_the_executor_hears_of_a_harness_of_another_node_that_is_gone(nodes, how):
    first, second = await nodes.add(), await nodes.add()
    pair, harness = await joined(first, second)
    if how == "close":
        await harness.close()
    else:
        transport_of(harness).abort()
    lost = decode(await received(pair.executor))
    assert (lost.stream_id, type(lost.body)) == ("s", Reset)


@requirement("hub/nodes:ends")
async def test_a_harness_hears_that_the_executor_of_another_node_is_gone(nodes):
    first, second = await nodes.add(), await nodes.add()
    pair, harness = await joined(first, second)
    await pair.executor.close()
    (lost,) = await ended(harness)
    assert isinstance(decode(lost).body, Reset)
    answer = await second.connect(pair.name, pair.harness)
    assert (answer.status, answer.code) == (409, "environment_offline")


@requirement("hub/nodes:newest")
async def test_a_registration_at_another_node_replaces_the_one_before(nodes):
    first, second = await nodes.add(), await nodes.add()
    pair, harness = await joined(first, second)
    newer = (await second.register(pair.name, pair.enrolment)).body
    assert await ended(pair.executor) == []
    assert isinstance(decode((await ended(harness))[-1]).body, Reset)
    executor = await second.open(newer["url"])
    again = await harness_at(first, pair)
    await exchange_frames(executor, again, 3)


@requirement("hub/nodes:newest")
async def test_a_socket_that_comes_back_at_another_node_is_the_one(nodes):
    first, second = await nodes.add(), await nodes.add()
    pair = await bring_online(first)
    url = pair.registration["url"].replace(first.hub.url[4:], second.hub.url[4:])
    executor = await second.open(url)
    assert await ended(pair.executor) == []
    for visitor in (first, second):
        harness = await harness_at(visitor, pair)
        await exchange_frames(executor, harness, 3)
        await harness.close()
        await received(executor)


async def test_an_older_registration_waits_wherever_the_newer_one_lives(nodes):
    first, second = await nodes.add(), await nodes.add()
    older = (await first.register("build", (await first.token("enrol"))[1])).body
    _, secret = await first.token("enrol")
    newer = (await first.register("build", secret)).body
    await first.open(newer["url"])
    url = older["url"].replace(first.hub.url[4:], second.hub.url[4:])
    assert await second.refusal(url) == (503, "route_unavailable")


async def test_a_stream_of_a_harness_of_another_node_is_not_disturbed(nodes):
    first, second = await nodes.add(), await nodes.add()
    pair = await bring_online(first)
    one, other = await harness_at(first, pair), await harness_at(second, pair)
    await one.send_bytes(frame("s"))
    await received(pair.executor)
    await other.send_bytes(frame("s", 1))
    assert await ended(other) == []
    assert other.close_code == 1008
    await exchange_frames(pair.executor, one, 3)


@requirement("hub/nodes:pressure")
async def test_a_harness_that_does_not_read_makes_the_executor_of_another_node_wait(nodes):
    first, second = await nodes.add(), await nodes.add()
    pair, harness = await joined(first, second)
    transport_of(harness).pause_reading()
    count, size = 1200, 60_000

    async def flood() -> None:
        for seq in range(count):
            await pair.executor.send_bytes(frame("s", seq, size))

    flooding = asyncio.create_task(flood())
    waiting = first.hub.rendezvous.memory, second.hub.rendezvous.memory
    # Each node pauses its sender at the bound, until half of the queue has been read.
    await until(lambda: sum(each.used for each in waiting) > QUICK.hub_waiting_bytes)
    assert not flooding.done()
    transport_of(harness).resume_reading()
    for seq in range(count):
        assert seq_of(await received(harness)) == seq
        assert all(each.used < QUICK.hub_stream_bytes for each in waiting)
    await flooding


@requirement("hub/nodes:pressure")
async def test_an_executor_that_does_not_read_makes_harnesses_of_other_nodes_wait(nodes):
    first, second = await nodes.add(), await nodes.add()
    pair = await bring_online(first)
    harness = await harness_at(second, pair)
    transport_of(pair.executor).pause_reading()
    count, size = 1000, 60_000

    async def flood() -> None:
        for seq in range(count):
            await harness.send_bytes(frame("s", seq, size))

    flooding = asyncio.create_task(flood())
    memory = second.hub.rendezvous.memory
    await until(lambda: memory.used > QUICK.hub_waiting_bytes // 2)
    assert not flooding.done()
    assert memory.used < 2 * QUICK.hub_waiting_bytes
    transport_of(pair.executor).resume_reading()
    for seq in range(count):
        assert seq_of(await received(pair.executor)) == seq
    await flooding


async def test_a_harness_is_sent_to_the_node_of_its_executor_where_that_has_a_name(nodes):
    first, second = await nodes.add(node_url="https://first.example.net"), await nodes.add()
    pair = await bring_online(first)
    for visitor in (first, second):
        answer = await visitor.connect(pair.name, pair.harness)
        assert answer.body["url"].startswith("wss://first.example.net/rendezvous/build?")


@requirement("hub/nodes:listing")
async def test_every_node_lists_the_environments_of_all(nodes):
    first, second = await nodes.add(), await nodes.add()
    await bring_online(first, "one")
    pair = await bring_online(second, "two")
    await harness_at(first, pair)
    for visitor in (first, second):
        answer = await visitor.ask("GET", "/api/environments", pair.harness)
        assert {each["name"]: each["isOnline"] for each in answer.body} == {
            "one": True,
            "two": True,
        }


@requirement("hub/nodes:listing", "hub/listing:pages")
async def test_a_page_has_executors_of_other_nodes_however_many_answers_that_takes(
    nodes, monkeypatch
):
    monkeypatch.setattr(registrations, "_PAGE", 2)
    first, second = await nodes.add(), await nodes.add()
    names = [f"e{number}" for number in range(7)]
    for name in names:
        pair = await bring_online(second, name)
    path = "/api/environments?after=e0&limit=5"
    answer = await first.ask("GET", path, pair.harness)
    assert {each["name"]: each["isOnline"] for each in answer.body} == dict.fromkeys(
        names[1:6], True
    )


@requirement("hub/nodes:revocation")
async def test_a_token_that_is_revoked_ends_sockets_of_every_node(nodes):
    limits = msgspec.structs.replace(QUICK, hub_revocation_seconds=0.05)
    first, second = await nodes.add(limits=limits), await nodes.add(limits=limits)
    pair = await bring_online(first)
    harness = await harness_at(second, pair)
    await first.hub.store.revoke_token(pair.harness_token.id, now=1.0)
    await ended(harness)
    assert harness.close_code == 1008


@requirement("hub/nodes:death")
async def test_streams_to_a_node_that_is_gone_are_reset(nodes):
    cut_off = ChaoticBus(MemoryBus(nodes.medium))
    first, second = await nodes.add(cut_off), await nodes.add()
    _pair, harness = await joined(first, second)
    cut_off.cut_off()
    (lost,) = await ended(harness)
    assert isinstance(decode(lost).body, Reset)


@requirement("hub/nodes:death")
async def test_an_executor_of_a_node_that_is_gone_hears_of_harnesses_and_comes_back(nodes):
    cut_off = ChaoticBus(MemoryBus(nodes.medium))
    first, second = await nodes.add(cut_off), await nodes.add()
    pair, _harness = await joined(first, second)
    cut_off.cut_off()
    assert isinstance(decode(await received(pair.executor)).body, Reset)
    url = pair.registration["url"].replace(first.hub.url[4:], second.hub.url[4:])
    executor = await second.open(url)
    await exchange_frames(executor, await harness_at(second, pair), 3)
    cut_off.let_back()
    # Its node finds out that another socket serves the environment by now.
    assert await ended(pair.executor) == []


@requirement("hub/nodes:nothing-lost")
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_lost_on_a_bus_that_loses_doubles_and_delays(nodes, seed):
    buses = [
        ChaoticBus(
            MemoryBus(nodes.medium),
            seed=seed * 10 + n,
            rates=Rates(lose=0.05, double=0.05, delay=0.05),
        )
        for n in range(2)
    ]
    limits = msgspec.structs.replace(QUICK, hub_peer_seconds=5.0)
    first, second = [await nodes.add(bus, limits) for bus in buses]
    pair = await bring_online(first)
    harness = await harness_at(second, pair)
    await exchange_frames(pair.executor, harness, 500)


async def test_a_bus_that_is_away_is_no_reason_to_end_a_stream(nodes):
    flaky = ChaoticBus(MemoryBus(nodes.medium))
    limits = msgspec.structs.replace(QUICK, hub_channel_patience=1000)
    first, second = await nodes.add(flaky, limits), await nodes.add(limits=limits)
    pair = await bring_online(first)
    harness = await harness_at(second, pair)
    await exchange_frames(pair.executor, harness, 10)
    flaky.cut_off()
    for seq in range(10, 20):
        await harness.send_bytes(frame("s", seq))
        await pair.executor.send_bytes(frame("s", seq))
    flaky.let_back()
    for seq in range(10, 20):
        assert seq_of(await received(pair.executor)) == seq
        assert seq_of(await received(harness)) == seq


async def test_without_the_bus_no_new_socket_is_served_and_requests_say_why(nodes):
    flaky = ChaoticBus(MemoryBus(nodes.medium))
    visitor = await nodes.add(flaky)
    pair = await bring_online(visitor)
    assert (await visitor.connect(pair.name, pair.harness)).status == 200
    flaky.cut_off()
    answer = await visitor.connect(pair.name, pair.harness)
    assert (answer.status, answer.code) == (503, "nodes_unreachable")
    assert (await visitor.ask("GET", "/readyz")).status == 503
    flaky.let_back()
    assert (await visitor.connect(pair.name, pair.harness)).status == 200


async def test_what_a_node_says_last_arrives_when_it_stops(nodes):
    second = await nodes.add()
    async with AsyncExitStack() as stack:
        stopping = Nodes(stack, Path(nodes._state).parent)
        stopping.medium = nodes.medium
        first = await stopping.add()
        _pair, harness = await joined(first, second)
    (lost,) = await ended(harness)
    assert isinstance(decode(lost).body, Reset)

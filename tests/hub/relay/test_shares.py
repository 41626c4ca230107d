"""Fair shares: one environment or token does not use up what others need."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import msgspec
import pytest

from exec_server.hub.relay.queue_memory import Memory
from exec_server.hub.relay.routing import Exchange, JoinedHarness
from exec_server.limits import DEFAULT_LIMITS
from exec_server.relay.frame import Data, RelayFrame, StreamId, decode, encode
from tests.hub.conftest import bring_online
from tests.requirements import requirement

from .test_routing import FRAME, LIMITS, FakePort, frame, is_reset


class Tenant:
    """An environment whose peers do not read unless told to."""

    def __init__(self, name: str, memory: Memory, limits=LIMITS) -> None:
        self.name = name
        self.executor = FakePort()
        self.exchange = Exchange(self.executor, memory=memory, limits=limits, environment_id=name)
        self.executor.took = self.exchange.executor_took
        self.harnesses: list[tuple[FakePort, JoinedHarness]] = []

    def join(self, token_id: str = "t") -> FakePort:
        port = FakePort()
        harness = self.exchange.join(port, now=0, token_id=token_id)
        port.took = lambda _, size: self.exchange.harness_took(harness, size)
        self.exchange.from_harness(harness, frame(f"{self.name}{len(self.harnesses)}", 0), now=0)
        self.executor.read(9)
        self.harnesses.append((port, harness))
        return port

    def flood_harnesses(self, rounds: int = 100) -> None:
        for _ in range(rounds):
            for index in range(len(self.harnesses)):
                if not self.executor.is_paused and self.executor.ended is None:
                    self.exchange.from_executor(frame(f"{self.name}{index}", 1), now=0)

    def flood_executor(self, rounds: int = 100) -> None:
        for _ in range(rounds):
            for index, (port, harness) in enumerate(self.harnesses):
                if not port.is_paused and port.ended is None:
                    self.exchange.from_harness(harness, frame(f"{self.name}{index}", 1), now=0)

    def moves(self) -> bool:
        """True if a frame arrives in both directions at once."""
        port, harness = self.harnesses[0]
        if port.is_paused or self.executor.is_paused:
            return False
        self.exchange.from_harness(harness, frame(f"{self.name}0", 7), now=0)
        self.executor.read(9)
        self.exchange.from_executor(frame(f"{self.name}0", 8), now=0)
        port.read(9)
        return not is_reset(port.got[-1]) and port.ended is None


@requirement("security/registry:shares")
@pytest.mark.parametrize("how", ["flood_harnesses", "flood_executor"])
@pytest.mark.parametrize("tenants", [1, 2, 5, 20])
def test_an_environment_moves_while_others_flood_and_do_not_read(how, tenants):
    memory = Memory(LIMITS.hub_total_bytes, share=10 * FRAME)
    innocent = Tenant("innocent", memory)
    innocent.join()
    others = [Tenant(f"bad{number}", memory) for number in range(tenants)]
    for other in others:
        for number in range(4):
            other.join(f"{other.name}-{number}")
        getattr(other, how)()
        assert innocent.moves()
    assert memory.used <= LIMITS.hub_total_bytes + tenants * 5 * 2 * FRAME


@requirement("security/registry:shares")
def test_the_largest_share_is_dropped_when_a_small_one_needs_memory():
    memory = Memory(10 * FRAME)
    limits = msgspec.structs.replace(LIMITS, hub_waiting_bytes=99 * FRAME)
    large, small = Tenant("large", memory, limits), Tenant("small", memory, limits)
    slow = large.join()
    small.join()
    large.flood_harnesses()
    assert memory.is_full and large.executor.is_paused and slow.ended is None
    assert small.moves()
    assert slow.ended is not None and not memory.is_full
    assert memory.dropped == 1


def test_an_executor_that_does_not_read_is_dropped_if_its_queue_is_the_largest():
    memory = Memory(6 * FRAME)
    large, small = Tenant("large", memory), Tenant("small", memory)
    port = large.join()
    large.join("second")
    small.join()
    large.flood_executor()
    assert memory.is_full
    assert small.moves()
    assert large.executor.ended is not None and port.ended is not None


@requirement("security/registry:shares")
def test_a_token_has_one_share_in_all_environments():
    memory = Memory(100 * FRAME, share=6 * FRAME)
    first, second = Tenant("first", memory), Tenant("second", memory)
    one, other, good = first.join("greedy"), second.join("greedy"), second.join("good")
    for number in range(5):
        first.exchange.from_executor(frame("first0", number), now=0)
    for number in range(5):
        second.exchange.from_executor(frame("second0", number), now=0)
        second.exchange.from_executor(frame("second1", number), now=0)
        good.read(9)
    assert other.ended is not None
    assert good.ended is None and one.ended is None
    assert not second.executor.is_paused


def test_a_harness_whose_token_has_too_much_waits_and_goes_on():
    memory = Memory(100 * FRAME, share=3 * FRAME)
    first, second = Tenant("first", memory), Tenant("second", memory)
    one, other = first.join("greedy"), second.join("greedy")
    for tenant, count in ((first, 2), (second, 1)):
        for _ in range(count):
            tenant.exchange.from_harness(tenant.harnesses[0][1], frame(f"{tenant.name}0", 1), now=0)
    assert (one.is_paused, other.is_paused) == (False, True)
    first.executor.read(9)
    assert not other.is_paused


@requirement("security/registry:places")
def test_a_token_cannot_take_all_places_of_an_executor():
    memory = Memory(LIMITS.hub_total_bytes)
    tenant = Tenant("e", memory)
    counts = []
    for token in ("a", "b", "c"):
        count = 0
        while tenant.exchange.has_room_for(token):
            tenant.exchange.join(FakePort(), now=0, token_id=token)
            count += 1
        counts.append(count)
    assert counts == [4, 2, 1]
    assert tenant.exchange.has_room_for("d")


@requirement("security/registry:tiny-frames")
@pytest.mark.parametrize("is_executor", [True, False])
def test_tiny_frames_count_with_what_they_take(is_executor):
    memory = Memory(DEFAULT_LIMITS.hub_total_bytes)
    tenant = Tenant("e", memory, DEFAULT_LIMITS)
    port = tenant.join()
    tiny = b"\x08\x01\x12\x02e0"
    sent = 0
    while not (tenant.executor.is_paused if is_executor else port.is_paused):
        if is_executor:
            tenant.exchange.from_executor(tiny, now=0)
        else:
            tenant.exchange.from_harness(tenant.harnesses[0][1], tiny, now=0)
        sent += 1
    # Each of them is a message, an entry of a queue and the object of its content.
    assert (
        sent * (sys.getsizeof(tiny) + sys.getsizeof((1, 2)) + 8) < DEFAULT_LIMITS.hub_waiting_bytes
    )
    (port if is_executor else tenant.executor).read(sent)
    assert memory.used == 0


# Over real sockets.


def data_frame(stream_id: str, size: int = 50_000) -> bytes:
    return encode(RelayFrame(StreamId(stream_id), Data(0, bytes(size))))


@requirement("security/registry:shares")
async def test_a_second_environment_keeps_its_pace_while_the_first_floods(visit):
    limits = msgspec.structs.replace(
        DEFAULT_LIMITS,
        hub_total_bytes=8 << 20,
        hub_share_bytes=2 << 20,
        hub_stream_bytes=1 << 20,
        hub_waiting_bytes=1 << 18,
        # Without shares a turn waits until a write to a peer that does not read is given up.
        hub_write_timeout=3600.0,
    )
    visitor = await visit(limits=limits)
    flooding = [await bring_online(visitor, f"flood-{number}") for number in range(5)]
    quiet = await bring_online(visitor, "quiet")
    own = await quiet.open_harness()

    async def flood(pair) -> None:
        for number in range(4):
            harness = await pair.open_harness()
            await harness.send_bytes(data_frame(f"s{number}", 10))
        while True:
            for number in range(4):
                await pair.executor.send_bytes(data_frame(f"s{number}"))

    async with asyncio.TaskGroup() as tasks:
        floods = [tasks.create_task(flood(pair)) for pair in flooding]
        for _ in range(300):
            async with asyncio.timeout(30):
                await own.send_bytes(data_frame("own", 100))
                await quiet.executor.receive()
                await quiet.executor.send_bytes(data_frame("own", 100))
                assert decode((await own.receive()).data).stream_id == "own"
        for task in floods:
            task.cancel()


@requirement("security/registry:places")
async def test_a_second_token_gets_in_when_the_first_has_opened_all_it_can(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_harnesses=6)
    visitor = await visit(limits=limits)
    pair = await bring_online(visitor)
    for _ in range(3):
        await pair.open_harness()
    refused = (await visitor.connect(pair.name, pair.harness)).body["url"]
    assert await visitor.refusal(refused) == (503, "route_unavailable")
    _, second = await visitor.token("connect")
    await visitor.open((await visitor.connect(pair.name, second)).body["url"])


@requirement("security/registry:places")
async def test_a_token_cannot_take_all_sockets_of_a_node(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_sockets=8)
    visitor = await visit(limits=limits)
    pairs = [await bring_online(visitor, name) for name in ("one", "two")]
    url = ""
    for number in range(4):
        url = (await visitor.connect(pairs[number % 2].name, pairs[0].harness)).body["url"]
        if number < 3:
            await visitor.open(url)
    assert await visitor.refusal(url) == (503, "route_unavailable")
    await pairs[1].open_harness()


@requirement("security/registry:places")
async def test_an_enrol_token_cannot_take_all_pairing_codes(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_pairings=8, hub_token_pairings=3)
    visitor = await visit(limits=limits)
    _, greedy = await visitor.token("enrol", principal="greedy")
    _, modest = await visitor.token("enrol", principal="modest")
    paths = [f"/api/pairings/m{number}" for number in range(6)]
    answers = await asyncio.gather(*(visitor.ask("POST", path, greedy) for path in paths))
    assert sorted(answer.status for answer in answers) == [200] * 3 + [503] * 3
    assert (await visitor.ask("POST", "/api/pairings/other", modest)).status == 200


@requirement("security/registry:places")
async def test_an_address_cannot_take_all_pairing_codes(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_address_offers=4)
    visitor = await visit(limits=limits)
    statuses = []
    for number in range(3):
        _, secret = await visitor.token("enrol", principal=f"p{number}")
        for name in ("a", "b"):
            path = f"/api/pairings/{name}{number}"
            statuses.append((await visitor.ask("POST", path, secret)).status)
    assert statuses == [200] * 4 + [429] * 2


@requirement("security/registry:places")
async def test_sockets_that_are_opened_at_the_same_moment_are_all_counted(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_sockets=8)
    visitor = await visit(limits=limits)
    pair = await bring_online(visitor)
    urls = [(await visitor.connect(pair.name, pair.harness)).body["url"] for _ in range(30)]
    opened = await asyncio.gather(*(visitor.open(url) for url in urls), return_exceptions=True)
    refused = [each for each in opened if isinstance(each, BaseException)]
    # One place has the executor. Of the other seven, four go to the first token.
    assert len(opened) - len(refused) == 4, refused
    _, second = await visitor.token("connect")
    await visitor.open((await visitor.connect(pair.name, second)).body["url"])


@requirement("security/registry:places")
@pytest.mark.parametrize("is_at_once", [True, False])
async def test_a_token_of_executors_leaves_sockets_for_others(visit, is_at_once):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_sockets=64)
    visitor = await visit(limits=limits)
    _, greedy = await visitor.token("enrol", principal="greedy")
    urls = [(await visitor.register(f"g{number}", greedy)).body["url"] for number in range(70)]
    if is_at_once:
        opened = await asyncio.gather(*map(visitor.open, urls), return_exceptions=True)
        refused = sum(isinstance(each, BaseException) for each in opened)
    else:
        refused = 0
        for url in urls:
            try:
                await visitor.open(url)
            except aiohttp.WSServerHandshakeError as exc:
                assert exc.status == 503
                refused += 1
    # It has fifteen times as many as are free.
    assert refused == 70 - 60
    pair = await bring_online(visitor, "other")
    await pair.open_harness()

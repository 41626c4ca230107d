"""Messages between nodes: only nodes of the registry can write them, and each is heard once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.hub.access.signing import Signer
from exec_server.hub.bus import BusUnavailable
from exec_server.hub.bus.memory_bus import Medium, MemoryBus
from exec_server.hub.bus.signed_bus import SignedBus
from exec_server.hub.cluster.node_messages import (
    Beat,
    OwnerRecord,
    Takeover,
    encode,
    ownership_key,
)
from tests.hub.cluster.test_nodes import QUICK, Nodes, joined
from tests.hub.conftest import Visitor, bring_online
from tests.hub.http.test_rendezvous import frame, received
from tests.requirements import requirement

from .conftest import Heard

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


class SettableClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Tapped:
    """A bus that keeps what is published, so that a test can publish it again."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.published: list[tuple[str, bytes]] = []

    def publish(self, subject: str, data: bytes) -> None:
        self.published.append((subject, data))
        self._bus.publish(subject, data)

    def __getattr__(self, name: str):
        return getattr(self._bus, name)


class Wire:
    """Two nodes with one key, and an attacker without it."""

    def __init__(self) -> None:
        medium = Medium()
        self.clock = SettableClock()
        self.tapped = Tapped(MemoryBus(medium))
        self.sender = SignedBus(self.tapped, KEY, clock=self.clock)
        self.receiver = SignedBus(MemoryBus(medium), KEY, clock=self.clock)
        self.stranger = SignedBus(MemoryBus(medium), OTHER_KEY, clock=self.clock)
        self.attacker = MemoryBus(medium)


async def settle() -> None:
    """Let all messages that were published arrive."""
    for _ in range(5):
        await asyncio.sleep(0)


@requirement("security/registry:bus")
async def test_unsigned_and_wrongly_signed_messages_are_dropped_and_counted():
    wire, heard = Wire(), Heard()
    await wire.receiver.subscribe("news", heard)
    wire.sender.publish("news", b"good")
    await settle()
    (_, signed) = wire.tapped.published[0]
    wire.stranger.publish("news", b"forged")
    forged = [b"", b"forged", bytes(200), signed[:-1], signed + b"x", b"\0" + signed[1:]]
    for data in forged:
        wire.attacker.publish("news", data)
    await settle()
    assert heard.messages == [b"good"]
    assert wire.receiver.rejected == 1 + len(forged)


@requirement("security/registry:bus")
async def test_a_message_is_good_for_its_subject_and_once():
    wire, news, other = Wire(), Heard(), Heard()
    await wire.receiver.subscribe("news", news)
    await wire.receiver.subscribe("other", other)
    for number in range(2000):
        wire.sender.publish("news", b"%d" % number)
    await settle()
    assert len(news.messages) == 2000
    for subject, data in wire.tapped.published:
        wire.attacker.publish(subject, data)
        wire.attacker.publish("other", data)
    await settle()
    assert len(news.messages) == 2000 and not other.messages
    assert wire.receiver.rejected == 4000


@requirement("security/registry:bus")
@pytest.mark.parametrize(("seconds", "is_good"), [(100, True), (-100, True), (130, False)])
async def test_a_message_is_good_for_a_time(seconds, is_good):
    wire, heard = Wire(), Heard()
    wire.sender.publish("news", b"old")
    wire.clock.now += seconds
    await wire.receiver.subscribe("news", heard)
    wire.attacker.publish(*wire.tapped.published[0])
    await settle()
    assert bool(heard.messages) is is_good


async def test_messages_that_overtake_one_another_are_heard():
    wire, heard = Wire(), Heard()
    for number in range(100):
        wire.sender.publish("news", b"%d" % number)
    await settle()
    await wire.receiver.subscribe("news", heard)
    for subject, data in reversed(wire.tapped.published):
        wire.attacker.publish(subject, data)
    await settle()
    assert len(heard.messages) == 100


@requirement("security/registry:bus")
async def test_an_answer_is_good_for_its_request_alone():
    wire = Wire()
    unsubscribe = await wire.receiver.answer("who", lambda data: b"me " + data)
    assert await wire.sender.request("who", b"1", timeout=1) == b"me 1"
    assert await wire.attacker.request("who", b"1", timeout=1) == b""
    with pytest.raises(BusUnavailable):
        await wire.stranger.request("who", b"1", timeout=1)
    await unsubscribe()
    recorded: list[bytes] = []

    def replay(data: bytes) -> bytes:
        return recorded[0]

    assert await wire.sender.request("who", b"1", timeout=1) is None
    signed = wire.receiver._signed(b"answer", "who 00", b"me")
    recorded.append(signed)
    await wire.attacker.answer("who", replay)
    with pytest.raises(BusUnavailable):
        await wire.sender.request("who", b"1", timeout=1)


@requirement("security/registry:bus")
async def test_a_forged_value_is_empty_and_can_be_replaced():
    wire = Wire()
    first = await wire.sender.compare_and_set("owner", b"me", after=0)
    assert first is not None
    stored = await wire.receiver.read_value("owner")
    assert stored is not None and stored.value == b"me"
    second = await wire.attacker.compare_and_set("owner", b"attacker" * 4, after=first)
    assert second is not None
    forged = await wire.receiver.read_value("owner")
    assert forged is not None and (forged.value, forged.revision) == (b"", second)
    assert await wire.sender.compare_and_set("owner", b"me", after=second)
    # The value of another key is not good either.
    taken = await wire.attacker.read_value("owner")
    assert taken is not None
    await wire.attacker.compare_and_set("other", taken.value, after=0)
    copied = await wire.receiver.read_value("other")
    assert copied is not None and copied.value == b""


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_the_keys_of_two_registries_differ(one, other):
    keys = {Signer(one).bus_key, Signer(other).bus_key}
    assert len(keys) == (1 if one == other else 2)
    assert one not in keys


# In a registry.


@pytest.fixture
async def nodes(tmp_path, no_leaks):
    async with AsyncExitStack() as stack:
        yield Nodes(stack, tmp_path)


async def rejected(visitor: Visitor) -> int:
    _, secret = await visitor.token("observe")
    text = str((await visitor.ask("GET", "/metrics", secret)).body)
    return int(text.rpartition("bus_rejected_total ")[2].split()[0])


@requirement("security/registry:bus")
async def test_a_stranger_on_the_bus_ends_no_executor_and_redirects_no_client(nodes):
    first, second = await nodes.add(), await nodes.add()
    third = await nodes.add(node_url="https://three.example")
    pair, harness = await joined(first, second)
    elsewhere = await bring_online(third, "other")
    attacker = MemoryBus(nodes.medium)
    attacker.publish("taken", encode(Takeover(environment_id="build", generation=99)))
    attacker.publish("beats", encode(Beat("00" * 6, {}, "wss://evil.example")))
    record = OwnerRecord(node="evil", socket_id="evil", registration_id="x", generation=99)
    key = ownership_key("build")
    before = await attacker.read_value(key)
    assert before is not None
    await attacker.compare_and_set(key, encode(record), after=before.revision)
    await settle()
    await harness.send_bytes(frame("s", 5))
    assert await received(pair.executor) == frame("s", 5)
    answer = await second.connect("build", pair.harness)
    assert answer.body["url"].startswith("ws://127.0.0.1:")
    answer = await second.connect("other", elsewhere.harness)
    assert answer.body["url"].startswith("wss://three.example/")
    assert await rejected(first) >= 2 and await rejected(second) >= 2


@requirement("security/registry:bus")
async def test_a_stranger_on_the_bus_is_not_asked_for_the_place_of_an_executor(nodes):
    visitor = await nodes.add(limits=QUICK)
    pair = await bring_online(visitor)
    await pair.executor.close()
    attacker = MemoryBus(nodes.medium)
    await attacker.answer(f"executor.{ownership_key('build')}", lambda data: b"\x80" * 60)
    answer = await visitor.connect("build", pair.harness)
    assert answer.code in ("environment_offline", "nodes_unreachable")

"""A bus whose NATS servers die, refuse us or lose their disks."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from exec_server.hub.bus import BusUnavailable, StoredValue
from exec_server.hub.bus.nats_bus import NatsBus
from exec_server.limits import DEFAULT_LIMITS
from tests.hub.bus.conftest import SECONDS, Heard
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.nats import NatsCluster

pytestmark = pytest.mark.usefixtures("no_leaks")

LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, bus_pause=0.02, bus_timeout=2.0)


async def again(ask):
    """Repeat a call until the bus is back and has a leader."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return await ask()
            except BusUnavailable:
                await asyncio.sleep(LIMITS.bus_pause)


async def heard_again(sender: NatsBus, subject: str, heard: Heard) -> None:
    """Return when messages of *sender* arrive again."""
    heard.messages.clear()
    async with asyncio.timeout(SECONDS):
        while not heard.messages:
            sender.publish(subject, b"again")
            await asyncio.sleep(LIMITS.bus_pause)


@requirement("hub/bus:subjects", "hub/bus:compare-and-set")
async def test_registries_of_other_names_have_nothing_to_do_with_us(one_server, open_nats):
    ours, theirs = await open_nats(one_server), await open_nats(one_server, name="theirs")
    heard, overheard = Heard(), Heard()
    await ours.subscribe("news", heard)
    await theirs.subscribe("news", overheard)
    await theirs.answer("echo", bytes)
    ours.publish("news", b"secret")
    await heard.until(count=1)
    assert await ours.request("echo", b"", timeout=5) is None
    await ours.compare_and_set("owner", b"us", after=0)
    assert await theirs.read_value("owner") is None
    theirs.publish("news", b"their own")
    assert await overheard.until(count=1) == [b"their own"]
    assert heard.messages == [b"secret"]


@requirement("hub/bus/nats:returns", "hub/bus/nats:bounded")
async def test_a_bus_comes_back_with_its_server(tmp_path, open_nats, caplog):
    with NatsCluster(tmp_path) as cluster:
        one, other = [await open_nats(cluster, limits=LIMITS) for _ in range(2)]
        heard = Heard()
        await other.subscribe("news", heard)
        await other.answer("echo", bytes)
        before = other.connected_since
        revision = await one.compare_and_set("owner", b"one", after=0)

        cluster.kill(0)
        await eventually(lambda: one.connected_since is None and other.connected_since is None)
        for _ in range(100):
            one.publish("news", b"lost")
        assert one.lost_messages == 100
        for attempt in (
            one.request("echo", b"", timeout=5),
            one.read_value("owner"),
            one.compare_and_set("owner", b"", after=0),
            one.subscribe("more", heard),
        ):
            with pytest.raises(BusUnavailable):
                await attempt

        cluster.start(0)
        await eventually(lambda: one.connected_since and other.connected_since)
        assert other.connected_since > before
        one.publish("news", b"back")
        assert await heard.until(count=1) == [b"back"]
        assert await one.request("echo", b"x", timeout=5) == b"x"
        assert await again(lambda: one.read_value("owner")) == StoredValue(b"one", revision)
    assert caplog.text.count("messages to other nodes are lost") == 1
    assert "100 messages to other nodes were lost" in caplog.text


@requirement("hub/bus/nats:returns")
@pytest.mark.one_loop
async def test_a_server_that_says_nothing_more_is_noticed(tmp_path, open_nats):
    limits = msgspec.structs.replace(LIMITS, bus_ping_interval=0.1, bus_timeout=0.5)
    with NatsCluster(tmp_path) as cluster:
        bus = await open_nats(cluster, limits=limits)
        heard = Heard()
        await bus.subscribe("news", heard)
        cluster.pause(0)
        with pytest.raises(BusUnavailable):
            await bus.request("anybody", b"", timeout=0.1)
        await eventually(lambda: bus.connected_since is None)
        cluster.resume(0)
        await eventually(lambda: bus.connected_since)
        bus.publish("news", b"back")
        assert await heard.until(count=1) == [b"back"]


@requirement("hub/bus/nats:bounded")
@pytest.mark.one_loop
async def test_what_a_stuck_server_does_not_take_is_lost_beyond_a_bound(tmp_path, open_nats):
    limits = msgspec.structs.replace(LIMITS, bus_waiting_bytes=1 << 20, bus_timeout=0.5)
    with NatsCluster(tmp_path) as cluster:
        bus = await open_nats(cluster, limits=limits)
        cluster.pause(0)
        for _ in range(20):
            bus.publish("news", bytes(100_000))
        assert bus.lost_messages == 10
        cluster.resume(0)


@requirement("hub/bus/nats:returns", "hub/bus/nats:values-survive")
@pytest.mark.one_loop
async def test_one_of_three_servers_may_die(tmp_path, open_nats):
    with NatsCluster(tmp_path, 3) as cluster:
        await cluster.ready()
        one, other = [await open_nats(cluster, limits=LIMITS) for _ in range(2)]
        heard = Heard()
        await other.subscribe("news", heard)
        await other.answer("echo", bytes)
        before = other.connected_since
        revision = await one.compare_and_set("owner", b"one", after=0)

        url = other._connection.client.connected_url
        cluster.kill(cluster.hosts.index(url.netloc))
        await eventually(lambda: other.connected_since and other.connected_since > before)
        await heard_again(one, "news", heard)
        assert await again(lambda: one.request("echo", b"x", timeout=1)) == b"x"
        assert await again(lambda: other.read_value("owner")) == StoredValue(b"one", revision)
        await hold_surely(other, "owner", b"other", revision)
        assert (await again(lambda: one.read_value("owner"))).value == b"other"


async def hold_surely(bus: NatsBus, key: str, value: bytes, after: int) -> int:
    """Write values as a single writer. After an error it reads whether the value was replaced."""
    while True:
        try:
            revision = await bus.compare_and_set(key, value, after=after)
        except BusUnavailable:
            revision = None
        if revision is None:
            held = await again(lambda: bus.read_value(key))
            if held.value != value:
                continue
            revision = held.revision
        return revision


@requirement("hub/bus/nats:values-survive")
async def test_a_bucket_that_is_gone_is_made_again(tmp_path, open_nats):
    with NatsCluster(tmp_path) as cluster:
        bus = await open_nats(cluster, limits=LIMITS)
        revision = await bus.compare_and_set("owner", b"before", after=0)
        revision = await bus.compare_and_set("owner", b"before", after=revision)
        cluster.kill(0)
        cluster.lose_disk(0)
        cluster.start(0)
        await eventually(lambda: bus.connected_since is None)
        assert await again(lambda: bus.read_value("owner")) is None
        assert await again(lambda: bus.compare_and_set("owner", b"late", after=revision)) is None
        assert await bus.compare_and_set("owner", b"anew", after=0) == 1
        assert await bus.read_value("owner") == StoredValue(b"anew", 1)


@requirement("hub/bus/nats:returns")
async def test_a_client_that_gives_up_is_replaced(one_server, open_nats):
    one, other = [await open_nats(one_server, limits=LIMITS) for _ in range(2)]
    heard = Heard()
    await other.subscribe("news", heard)
    unsubscribe = await other.subscribe("old", heard)
    before = other.connected_since
    # The library does this itself when a server says that our credentials have expired.
    await other._connection.client.close()
    assert other.connected_since is None
    await eventually(lambda: other.connected_since)
    assert other.connected_since > before
    await unsubscribe()
    one.publish("old", b"nobody hears it")
    one.publish("news", b"back")
    assert await heard.until(count=1) == [b"back"]
    assert await other.compare_and_set("owner", b"x", after=0)


@requirement("hub/bus/nats:returns")
async def test_a_subscription_that_is_given_up_does_not_harm_the_connection(one_server, open_nats):
    bus = await open_nats(one_server, limits=LIMITS)
    since = bus.connected_since
    heard = Heard()
    for _ in range(10):
        given_up = asyncio.create_task(bus.subscribe("news", heard))
        # The command was sent, and its answer has not come.
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait({given_up})
    kept = Heard()
    await bus.subscribe("news", kept)
    bus.publish("news", b"one")
    assert await kept.until(count=1) == [b"one"]
    assert heard.messages == []
    assert bus.connected_since == since

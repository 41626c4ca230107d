"""The chaotic bus does what it is told, so that the tests that use it are meaningful."""

from __future__ import annotations

import pytest

from exec_server.hub.bus import BusUnavailable
from exec_server.hub.bus.memory_bus import Medium, MemoryBus
from tests.hub.bus.conftest import Heard
from tests.requirements import requirement
from tests.support.chaotic_bus import ChaoticBus, Rates

MESSAGES = 500
BAD = Rates(lose=0.1, double=0.1, delay=0.1)


async def received(seed: int, rates: Rates) -> list[int]:
    bus = ChaoticBus(MemoryBus(), seed=seed, rates=rates)
    heard, ending = Heard(), Heard()
    await bus.subscribe("news", heard)
    await bus.subscribe("end", ending)
    for number in range(MESSAGES):
        bus.publish("news", b"%d" % number)
    bus.settle()
    bus.publish("end", b"")
    await ending.until(count=1)
    await bus.close()
    return [int(message) for message in heard.messages]


@requirement("hub/bus:chaos")
async def test_messages_are_lost_doubled_and_reordered_by_the_seed():
    found = await received(1, BAD)
    assert found == await received(1, BAD)
    assert found != await received(2, BAD)
    assert set(found) < set(range(MESSAGES))
    assert len(found) > len(set(found))
    assert found != sorted(found)


@requirement("hub/bus:chaos")
@pytest.mark.parametrize(
    ("rates", "is_so"),
    [
        (Rates(lose=0.5), lambda found: found == sorted(set(found)) and len(found) < MESSAGES),
        (Rates(double=0.5), lambda found: found == sorted(found) and len(found) > MESSAGES),
        (Rates(delay=0.5), lambda found: sorted(found) == list(range(MESSAGES)) != found),
        (
            Rates(delay=0.5, places=3),
            lambda found: all(abs(at - number) <= 6 for at, number in enumerate(found)),
        ),
        (Rates(), lambda found: found == list(range(MESSAGES))),
    ],
)
async def test_each_rate_does_one_thing(rates, is_so):
    assert is_so(await received(3, rates))


@requirement("hub/bus:chaos")
async def test_a_delayed_message_arrives_although_no_other_overtakes_it():
    bus = ChaoticBus(MemoryBus(), rates=Rates(delay=1.0))
    heard = Heard()
    await bus.subscribe("news", heard)
    bus.publish("news", b"late")
    assert await heard.until(count=1) == [b"late"]


@requirement("hub/bus:chaos")
async def test_a_node_that_is_cut_off_hears_and_says_nothing_until_it_is_back():
    medium = Medium()
    here, there = ChaoticBus(MemoryBus(medium)), MemoryBus(medium)
    heard, overheard = Heard(), Heard()
    await here.subscribe("news", heard)
    await here.answer("echo", bytes)
    await there.subscribe("news", overheard)
    before = here.connected_since
    here.cut_off()
    assert here.connected_since is None
    here.publish("news", b"from here")
    there.publish("news", b"from there")
    assert await overheard.until(count=1) == [b"from there"]
    with pytest.raises(BusUnavailable):
        await there.request("echo", b"", timeout=1)
    for attempt in (
        here.request("echo", b"", timeout=1),
        here.read_value("a"),
        here.subscribe("b", heard),
    ):
        with pytest.raises(BusUnavailable):
            await attempt
    here.let_back()
    assert before is not None and here.connected_since is not None
    assert here.connected_since >= before
    there.publish("news", b"again")
    assert await heard.until(count=1) == [b"again"]
    assert await there.request("echo", b"x", timeout=1) == b"x"


@requirement("hub/bus:chaos")
async def test_a_compare_and_set_that_failed_may_have_happened():
    bus = ChaoticBus(MemoryBus(), rates=Rates(set_undone=1.0))
    with pytest.raises(BusUnavailable):
        await bus.compare_and_set("owner", b"x", after=0)
    assert await bus.read_value("owner") is None
    bus.rates = Rates(set_done=1.0)
    with pytest.raises(BusUnavailable):
        await bus.compare_and_set("owner", b"x", after=0)
    assert await bus.read_value("owner") is not None


@requirement("hub/bus:chaos")
async def test_answers_are_lost_too():
    bus = ChaoticBus(MemoryBus(), rates=Rates(lose=1.0))
    asked = Heard()

    def answer(data: bytes) -> bytes:
        asked(data)
        return data

    await bus.answer("echo", answer)
    with pytest.raises(BusUnavailable):
        await bus.request("echo", b"x", timeout=1)
    bus.rates = Rates(double=1.0)
    assert await bus.request("echo", b"y", timeout=1) == b"y"
    assert asked.messages == [b"x", b"y", b"y"]

"""The contract of every bus: in memory, over NATS, and the chaotic one without chaos."""

from __future__ import annotations

import asyncio

import pytest

from exec_server.hub.bus import BusUnavailable, StoredValue
from exec_server.hub.bus.subjects import VALUE_BYTES
from tests.hub.bus.conftest import Heard
from tests.requirements import requirement

MESSAGES = 500


@requirement("hub/bus:order")
async def test_what_one_node_publishes_arrives_in_order(join):
    sender, receiver = await join(), await join()
    heard = Heard()
    await receiver.subscribe("a.b", heard)
    sent = [b"%d" % number for number in range(MESSAGES)]
    for message in sent:
        sender.publish("a.b", message)
    assert not heard.messages
    assert await heard.until(count=MESSAGES) == sent


@requirement("hub/bus:subjects")
async def test_only_the_exact_subject_is_heard(join):
    sender, receiver = await join(), await join()
    heard = Heard()
    await receiver.subscribe("a.b", heard)
    for subject in ("a", "a.b.c", "a.bb", "a.c", "A.B", "b.a", "a.b"):
        sender.publish(subject, subject.encode())
    assert await heard.until(count=1) == [b"a.b"]


@requirement("hub/bus:subjects")
async def test_all_subscribers_receive_a_message_also_the_sender(join):
    nodes = [await join(), await join()]
    subscribers = [Heard(), Heard(), Heard()]
    await nodes[0].subscribe("news", subscribers[0])
    await nodes[1].subscribe("news", subscribers[1])
    await nodes[1].subscribe("news", subscribers[2])
    nodes[0].publish("news", b"one")
    nodes[0].publish("news", b"two")
    for heard in subscribers:
        assert await heard.until(count=2) == [b"one", b"two"]


@requirement("hub/bus:subjects")
async def test_a_former_subscriber_receives_nothing_more(join):
    sender, receiver = await join(), await join()
    before, after = Heard(), Heard()
    unsubscribe = await receiver.subscribe("news", before)
    await receiver.subscribe("news", after)
    sender.publish("news", b"one")
    await before.until(count=1)
    await unsubscribe()
    await unsubscribe()
    sender.publish("news", b"two")
    assert await after.until(count=2) == [b"one", b"two"]
    assert before.messages == [b"one"]


@requirement("hub/bus:harmless")
async def test_a_receiver_that_fails_does_not_harm_others(join, caplog):
    sender, receiver = await join(), await join()
    heard = Heard()

    def fail(data: bytes) -> None:
        raise RuntimeError("on purpose")

    await receiver.subscribe("news", fail)
    await receiver.subscribe("news", heard)
    sender.publish("news", b"one")
    sender.publish("news", b"two")
    assert await heard.until(count=2) == [b"one", b"two"]
    assert "on purpose" in caplog.text


@requirement("hub/bus:order")
async def test_a_receiver_may_publish_and_unsubscribe(join):
    node = await join()
    heard = Heard()
    await node.subscribe("pong", heard)

    def ponging(data: bytes) -> None:
        node.publish("pong", data)

    await node.subscribe("ping", ponging)
    node.publish("ping", b"one")
    assert await heard.until(count=1) == [b"one"]


@requirement("hub/bus:request")
async def test_a_request_is_answered(join):
    asking, answering = await join(), await join()
    await answering.answer("double", lambda data: data * 2)
    answers = await asyncio.gather(
        *(asking.request("double", b"%d" % number, timeout=10) for number in range(100))
    )
    assert answers == [b"%d%d" % (number, number) for number in range(100)]


@requirement("hub/bus:request")
async def test_a_request_without_a_responder_returns_at_once(join):
    asking, listening = await join(), await join()
    await listening.subscribe("anybody", Heard())
    end = await listening.answer("leaving", bytes)
    assert await asking.request("nobody", b"", timeout=60) is None
    assert await asking.request("anybody", b"", timeout=60) is None
    assert await asking.request("leaving", b"x", timeout=60) == b"x"
    await end()
    assert await asking.request("leaving", b"x", timeout=60) is None


@requirement("hub/bus:request")
async def test_an_answer_that_fails_is_no_answer(join):
    asking, answering = await join(), await join()

    def fail(data: bytes) -> bytes:
        raise RuntimeError("on purpose")

    await answering.answer("broken", fail)
    with pytest.raises(BusUnavailable):
        await asking.request("broken", b"", timeout=0.1)
    await answering.answer("broken", bytes)
    assert await asking.request("broken", b"x", timeout=10) == b"x"


@requirement("hub/bus:request")
async def test_a_request_that_is_given_up_harms_no_other(join):
    asking, answering = await join(), await join()
    await answering.answer("echo", bytes)
    given_up = asyncio.create_task(asking.request("echo", b"one", timeout=10))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await asking.request("echo", b"two", timeout=10) == b"two"


@requirement("hub/bus:size")
async def test_a_message_may_be_as_long_as_the_bus_says(join):
    sender, receiver = await join(), await join()
    heard = Heard()
    await receiver.subscribe("large", heard)
    await receiver.answer("large", bytes)
    largest = bytes(range(256)) * (sender.message_bytes // 256)
    assert len(largest) == sender.message_bytes
    sender.publish("large", largest)
    assert await heard.until(count=1) == [largest]
    assert await sender.request("large", largest, timeout=10) == largest
    with pytest.raises(ValueError, match="longer"):
        sender.publish("large", largest + b"x")
    with pytest.raises(ValueError, match="longer"):
        await sender.request("large", largest + b"x", timeout=10)
    sender.publish("large", b"")
    assert await heard.until(count=2) == [largest, b""]


@requirement("hub/bus:names")
@pytest.mark.parametrize(
    "name", ["", "*", ">", "a.*", "a..b", ".a", "a b", "a\r\nPUB", "ä", "a" * 1025]
)
async def test_what_is_no_name_is_refused(join, name):
    node = await join()
    for attempt in (
        node.subscribe(name, Heard()),
        node.answer(name, bytes),
        node.request(name, b"", timeout=1),
        node.read_value(name),
        node.compare_and_set(name, b"", after=0),
    ):
        with pytest.raises(ValueError, match="is not a"):
            await attempt
    with pytest.raises(ValueError, match="is not a subject"):
        node.publish(name, b"")


@requirement("hub/bus:compare-and-set")
async def test_one_writer_replaces_each_value(join):
    nodes = [await join(), await join()]
    assert await nodes[0].read_value("owner") is None
    first = await nodes[0].compare_and_set("owner", b"a", after=0)
    assert await nodes[1].read_value("owner") == StoredValue(b"a", first)
    assert await nodes[1].compare_and_set("owner", b"b", after=0) is None
    assert await nodes[1].compare_and_set("owner", b"b", after=first + 1) is None
    second = await nodes[1].compare_and_set("owner", b"b", after=first)
    assert second > first
    assert await nodes[0].compare_and_set("owner", b"c", after=first) is None
    assert await nodes[0].read_value("owner") == StoredValue(b"b", second)
    assert await nodes[0].read_value("another") is None
    assert await nodes[0].compare_and_set("another", b"", after=0) > second
    assert (await nodes[1].read_value("another")).value == b""
    assert await nodes[1].compare_and_set("owner", bytes(VALUE_BYTES), after=second)
    with pytest.raises(ValueError, match="longer"):
        await nodes[1].compare_and_set("owner", bytes(VALUE_BYTES + 1), after=second)


@requirement("hub/bus:compare-and-set")
async def test_of_many_writers_of_a_value_one_wins_each_time(join):
    nodes = [await join() for _ in range(3)]
    wins = [0, 0, 0]

    async def race(index: int) -> None:
        node = nodes[index]
        for _ in range(20):
            held = await node.read_value("counter")
            value = b"%d" % (int(held.value) + 1 if held else 1)
            if await node.compare_and_set("counter", value, after=held.revision if held else 0):
                wins[index] += 1

    await asyncio.gather(*map(race, range(3)))
    held = await nodes[0].read_value("counter")
    assert int(held.value) == sum(wins) > 0


@requirement("hub/bus:closed")
async def test_a_closed_bus_is_out_of_it(join):
    staying, leaving = await join(), await join()
    heard, late = Heard(), Heard()
    assert leaving.connected_since <= asyncio.get_running_loop().time()
    await leaving.subscribe("news", heard)
    await leaving.answer("echo", bytes)
    await staying.subscribe("news", late)
    leaving.publish("news", b"last words")
    await leaving.close()
    await leaving.close()
    assert await late.until(count=1) == [b"last words"]
    assert leaving.connected_since is None
    leaving.publish("news", b"too late")
    for attempt in (
        leaving.subscribe("news", Heard()),
        leaving.answer("echo", bytes),
        leaving.request("echo", b"", timeout=1),
        leaving.read_value("owner"),
        leaving.compare_and_set("owner", b"", after=0),
    ):
        with pytest.raises(BusUnavailable):
            await attempt
    assert await staying.request("echo", b"", timeout=10) is None
    staying.publish("news", b"without you")
    assert await late.until(count=2) == [b"last words", b"without you"]
    assert b"without you" not in heard.messages

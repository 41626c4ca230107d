"""Bulk makes way while small messages go to and fro, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from exec_server.client_urls import connect
from exec_server.protocol.streams import END
from exec_server.server.serving import serve
from exec_server.streams.byte_stream import ACK_BYTES, CHUNK_BYTES, ByteStream
from exec_server.streams.pace import (
    REST_SECONDS,
    SMALL_BYTES,
    TALK_SECONDS,
    TURN_BYTES,
    TURN_SECONDS,
    BulkPace,
)
from exec_server.streams.turns import StreamTurns
from tests.requirements import requirement
from tests.support.listening import echo, listening
from tests.support.wire import PATIENCE


class Clock:
    """Time that passes when a test says so; it calls back as an event loop does."""

    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay, callback):
        self._timers.append((self.now + delay, callback))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self._timers if each[0] <= end]:
            first = min(due, key=lambda each: each[0])
            self._timers.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = end

    @property
    def is_idle(self) -> bool:
        return not self._timers


class Wire:
    """A connection that takes everything; it counts the messages of data."""

    def __init__(self, pace: BulkPace) -> None:
        self.turns = StreamTurns(pace)
        self.turns.open()
        self.messages = 0
        # How many messages of data were sent before each end.
        self.ends: list[int] = []

    def send_bulk(self, before, data, after):
        self.messages += 1

    def send_event(self, event, params):
        if event is END:
            self.ends.append(self.messages)

    def stream_over(self, stream):
        pass


class Line:
    """A stream of its own wire whose user writes without an end, or types."""

    def __init__(self, pace: BulkPace) -> None:
        self.wire = Wire(pace)
        self.stream = ByteStream("s", self.wire, window=1 << 30)
        self._heard = 0

    def write(self, chunks: int) -> None:
        self.stream.write(bytes(chunks * CHUNK_BYTES))

    def hear(self, data: bytes) -> None:
        self.stream.data_arrived(self._heard, data)
        self._heard += len(data)

    def talk(self) -> None:
        """A key and its echo."""
        self.stream.write(b"k")
        self.hear(b"k")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pace(clock):
    return BulkPace(clock)


@requirement("streams/wire:pace")
def test_bulk_is_sent_as_it_comes_if_there_is_nothing_else(clock, pace):
    bulk = Line(pace)
    bulk.write(50)
    assert bulk.wire.messages == 50 and clock.is_idle


@requirement("streams/wire:pace")
def test_while_keys_are_typed_bulk_is_sent_one_message_at_a_time(clock, pace):
    bulk, keys = Line(pace), Line(pace)
    keys.talk()
    bulk.write(50)
    assert bulk.wire.messages == 1
    clock.advance(1.5 * TURN_SECONDS)
    assert bulk.wire.messages == 2
    clock.advance(5 * TURN_SECONDS)
    assert bulk.wire.messages == 7


@requirement("streams/wire:pace")
def test_while_keys_are_typed_bulk_waits_until_its_last_message_has_arrived(clock, pace):
    bulk, keys = Line(pace), Line(pace)
    bulk.stream.other_end_acknowledges(ACK_BYTES)
    keys.talk()
    bulk.write(50)
    for count in range(1, 5):
        clock.advance(10 * TURN_SECONDS)
        assert bulk.wire.messages == count
        bulk.stream.acknowledged(count * CHUNK_BYTES)
    # Without keys, the window alone decides again.
    clock.advance(TALK_SECONDS)
    bulk.stream.acknowledged(5 * CHUNK_BYTES)
    assert bulk.wire.messages > 6


@requirement("streams/wire:pace")
@pytest.mark.parametrize("acks", [1, ACK_BYTES, CHUNK_BYTES])
def test_what_bulk_waits_for_is_enough_for_an_acknowledgement(clock, pace, acks):
    bulk, keys = Line(pace), Line(pace)
    bulk.stream.other_end_acknowledges(acks)
    keys.talk()
    size = ACK_BYTES // 2 - 1
    least = max(ACK_BYTES, acks)
    for _ in range(10):
        bulk.stream.write(bytes(size))
        clock.advance(10 * TURN_SECONDS)
    # The other end acknowledges after so many bytes, and not before.
    assert (bulk.wire.messages - 1) * size < least <= bulk.wire.messages * size


@requirement("streams/wire:pace")
def test_bulk_rests_when_a_key_passes_and_has_a_turn_before_the_next_rest(clock, pace):
    bulk, keys = Line(pace), Line(pace)
    bulk.write(1)
    keys.talk()
    bulk.write(50)
    assert bulk.wire.messages == 1
    clock.advance(REST_SECONDS * 0.9)
    assert bulk.wire.messages == 1
    keys.talk()
    clock.advance(REST_SECONDS * 0.2)
    assert bulk.wire.messages == 2, "a second key makes no rest longer"


@requirement("streams/wire:pace")
def test_keys_never_wait_for_the_pace(clock, pace):
    keys = Line(pace)
    for count in range(1, 100):
        keys.talk()
        assert keys.wire.messages == count
    assert clock.is_idle


@requirement("streams/wire:pace")
def test_when_the_typing_has_ended_all_of_the_bulk_is_sent(clock, pace):
    bulk, keys = Line(pace), Line(pace)
    keys.talk()
    bulk.write(5000)
    clock.advance(TALK_SECONDS + TURN_SECONDS)
    assert bulk.wire.messages == 5000 and clock.is_idle


@requirement("streams/wire:pace")
def test_a_small_request_for_a_large_answer_is_no_typing(clock, pace):
    """A download begins with a small request, and would be slow for no one's sake."""
    near, far = Line(pace), Line(BulkPace(clock))
    for _ in range(3):
        near.stream.write(b"GET /large")
        near.hear(bytes(SMALL_BYTES + 1))
        far.hear(b"GET /large")
        far.write(20)
    assert far.wire.messages == 60 and clock.is_idle


@requirement("streams/wire:pace")
def test_streams_of_several_connections_share_the_turns_evenly(clock, pace):
    keys, lines = Line(pace), [Line(pace) for _ in range(4)]
    keys.talk()
    for line in lines:
        line.write(100)
    clock.advance(40.5 * TURN_SECONDS)
    counts = [line.wire.messages for line in lines]
    assert sum(counts) >= 40 and max(counts) - min(counts) <= 1


@requirement("streams/wire:pace")
def test_messages_of_a_few_kilobytes_share_a_turn(clock, pace):
    bulk, keys = Line(pace), Line(pace)
    keys.talk()
    for _ in range(200):
        bulk.stream.write(bytes(4096))
    assert bulk.wire.messages == TURN_BYTES // 4096


@requirement("streams/wire:pace")
def test_the_end_of_a_stream_comes_after_its_paced_bytes(clock, pace):
    bulk, keys = Line(pace), Line(pace)
    keys.talk()
    bulk.write(3)
    bulk.stream.end()
    assert bulk.wire.ends == []
    clock.advance(5 * TURN_SECONDS)
    assert bulk.wire.ends == [3]


@requirement("streams/wire:pace")
def test_a_stream_without_a_connection_goes_on_in_its_turn_later(clock, pace):
    bulk, keys = Line(pace), Line(pace)
    keys.talk()
    bulk.write(3)
    bulk.wire.turns.close()
    clock.advance(5 * TURN_SECONDS)
    assert bulk.wire.messages == 1
    bulk.wire.turns.open()
    clock.advance(5 * TURN_SECONDS)
    assert bulk.wire.messages == 3


@pytest.mark.parametrize("durable", [False, True])
@requirement("streams/wire:pace")
async def test_streams_make_way_for_what_is_typed_into_a_terminal(
    no_leaks, monkeypatch, tmp_path, durable
):
    """At the client's end, and at the server's."""
    talks = []

    def talked(pace: BulkPace) -> None:
        talks.append(pace)

    monkeypatch.setattr(BulkPace, "talked", talked)
    async with (
        asyncio.timeout(PATIENCE),
        listening(echo) as port,
        serve(state_directory=tmp_path if durable else None) as running,
        connect(running.url) as client,
    ):
        _, writer = await client.open_connection("127.0.0.1", port)
        process = await client.start(["cat"], tty=True, durable=durable)
        await process.write(b"x")
        assert await anext(process.stdout) == b"x"
        assert await process.terminate()
        assert len(talks) == 2 and talks[0] is not talks[1]
        writer.close()
        await writer.wait_closed()

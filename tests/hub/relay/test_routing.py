"""Routing: no frame of a living stream is lost, and memory is bounded."""

from __future__ import annotations

from collections import deque

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from exec_server.errors import RelayError
from exec_server.hub.relay.queue_memory import Memory
from exec_server.hub.relay.routing import Exchange, JoinedHarness
from exec_server.limits import DEFAULT_LIMITS
from exec_server.relay.frame import Data, RelayFrame, Reset, StreamId, decode, encode
from tests.requirements import requirement

FRAME = 1000
LIMITS = msgspec.structs.replace(
    DEFAULT_LIMITS,
    hub_waiting_bytes=4 * FRAME,
    hub_stream_bytes=12 * FRAME,
    hub_executor_bytes=8 * FRAME,
    hub_total_bytes=25 * FRAME,
    hub_harnesses=8,
    hub_harness_streams=2,
    hub_quiet_seconds=5.0,
    # The tests count in frames of one size.
    hub_frame_overhead=0,
)


def frame(stream_id: str, number: int, size: int = FRAME) -> bytes:
    payload = number.to_bytes(4, "big") + bytes(size - 4)
    return encode(RelayFrame(StreamId(stream_id), Data(0, payload)))


def number_of(data: bytes) -> int:
    body = decode(data).body
    assert isinstance(body, Data)
    return int.from_bytes(body.payload[:4], "big")


def is_reset(data: bytes) -> bool:
    return isinstance(decode(data).body, Reset)


class FakePort:
    def __init__(self) -> None:
        self.queue: deque[tuple[bytes, JoinedHarness | None]] = deque()
        self.got: list[bytes] = []
        self.took = lambda origin, size: None
        self.is_paused = False
        self.ended: int | None = None

    def send(self, data, origin):
        if self.ended is not None:
            self.took(origin, len(data))
            return
        self.queue.append((data, origin))

    def discard(self):
        queue, self.queue = self.queue, deque()
        for data, origin in queue:
            self.took(origin, len(data))

    def end(self, code, reason):
        self.ended = code

    def pause(self):
        assert not self.is_paused
        self.is_paused = True

    def resume(self):
        self.is_paused = False

    def read(self, count: int = 1) -> None:
        """The peer takes some messages."""
        for _ in range(min(count, len(self.queue))):
            data, origin = self.queue.popleft()
            self.got.append(data)
            self.took(origin, len(data))

    @property
    def queued(self) -> int:
        return sum(len(data) for data, _ in self.queue)


class Board:
    """An executor and its harnesses."""

    def __init__(self, limits=LIMITS, memory=None) -> None:
        self.memory = memory or Memory(limits.hub_total_bytes)
        self.executor = FakePort()
        self.exchange = Exchange(self.executor, memory=self.memory, limits=limits)
        self.executor.took = self.exchange.executor_took

    def join(self, now: float = 0.0) -> tuple[FakePort, JoinedHarness]:
        port = FakePort()
        harness = self.exchange.join(port, now=now)
        port.took = lambda _, size: self.exchange.harness_took(harness, size)
        return port, harness


@requirement("hub/route:both-ways")
def test_frames_go_both_ways_and_only_to_whom_they_belong():
    board = Board()
    (a, harness_a), (b, harness_b) = board.join(), board.join()
    board.exchange.from_harness(harness_a, frame("a", 1), now=0)
    board.exchange.from_harness(harness_b, frame("b", 2), now=0)
    board.exchange.from_executor(frame("b", 3), now=0)
    for port in (a, b, board.executor):
        port.read(9)
    assert [number_of(data) for data in board.executor.got] == [1, 2]
    assert (a.got, [number_of(data) for data in b.got]) == ([], [3])


@requirement("hub/route:taken-id")
def test_a_stream_id_belongs_to_who_used_it_first():
    board = Board()
    (_, first), (_, second) = board.join(), board.join()
    board.exchange.from_harness(first, frame("a", 1), now=0)
    with pytest.raises(RelayError, match="taken"):
        board.exchange.from_harness(second, frame("a", 2), now=0)
    assert len(board.executor.queue) == 1


def test_a_harness_has_so_many_streams_and_no_more():
    board = Board()
    _, harness = board.join()
    for name in ("a", "b"):
        board.exchange.from_harness(harness, frame(name, 1), now=0)
    with pytest.raises(RelayError, match="too many"):
        board.exchange.from_harness(harness, frame("c", 1), now=0)


@requirement("hub/route:back-pressure")
def test_a_harness_waits_for_an_executor_that_does_not_read():
    board = Board()
    (fast, harness), (other, second) = board.join(), board.join()
    for number in range(5):
        board.exchange.from_harness(harness, frame("a", number), now=0)
    assert fast.is_paused
    board.exchange.from_harness(second, frame("b", 9), now=0)
    assert not other.is_paused
    board.executor.read(4)
    assert not fast.is_paused


@requirement("hub/route:back-pressure")
def test_all_harnesses_go_on_when_the_executor_has_caught_up():
    board = Board(msgspec.structs.replace(LIMITS, hub_executor_bytes=2 * FRAME))
    joined = [board.join() for _ in range(4)]
    for number, (_, harness) in enumerate(joined):
        board.exchange.from_harness(harness, frame(f"s{number}", 0), now=0)
    assert [port.is_paused for port, _ in joined] == [False, True, True, True]
    assert not board.exchange.has_room
    board.executor.read(4)
    assert not any(port.is_paused for port, _ in joined)


@requirement("hub/route:back-pressure")
def test_an_executor_waits_for_its_only_harness():
    board = Board()
    slow, harness = board.join()
    board.exchange.from_harness(harness, frame("a", 0), now=0)
    for number in range(5):
        board.exchange.from_executor(frame("a", number), now=0)
    assert board.executor.is_paused
    slow.read(4)
    assert not board.executor.is_paused


@requirement("hub/route:slow-stream-alone")
def test_a_slow_harness_does_not_stall_another():
    board = Board()
    (slow, harness), (lively, other) = board.join(), board.join()
    board.exchange.from_harness(harness, frame("slow", 0), now=0)
    board.exchange.from_harness(other, frame("lively", 0), now=0)
    for number in range(20):
        board.exchange.from_executor(frame("slow", number), now=1)
        board.exchange.from_executor(frame("lively", number), now=1)
        lively.read(9)
        assert not board.executor.is_paused
    assert [number_of(data) for data in lively.got] == list(range(20))
    # The harness was told, and so was the executor.
    assert slow.ended is not None
    assert [is_reset(data) for data, _ in slow.queue] == [True]
    assert decode(board.executor.queue[-1][0]).stream_id == "slow"
    assert is_reset(board.executor.queue[-1][0])


def test_a_harness_that_was_silent_for_long_is_not_harmed_by_a_pause_until_it_moves():
    board = Board()
    (slow, harness), (_, other) = board.join(), board.join()
    board.exchange.from_harness(harness, frame("slow", 0), now=0)
    board.exchange.from_harness(other, frame("idle", 0), now=0)
    for number in range(5):
        board.exchange.from_executor(frame("slow", number), now=100)
    assert board.executor.is_paused
    board.exchange.from_harness(other, frame("idle", 1), now=101)
    assert not board.executor.is_paused
    assert slow.ended is None


@requirement("hub/route:resets")
def test_the_executor_is_told_of_every_stream_of_a_harness_that_is_gone():
    board = Board()
    _, harness = board.join()
    for name in ("a", "b"):
        board.exchange.from_harness(harness, frame(name, 7), now=0)
    board.exchange.leave(harness)
    board.executor.read(9)
    # Its earlier frames are still delivered.
    assert [number_of(data) for data in board.executor.got[:2]] == [7, 7]
    assert {decode(data).stream_id for data in board.executor.got[2:]} == {"a", "b"}
    assert all(is_reset(data) for data in board.executor.got[2:])
    board.exchange.from_executor(frame("a", 1), now=0)
    assert board.exchange.unroutable == 1


@requirement("hub/route:resets")
def test_harnesses_are_told_when_the_executor_is_gone():
    board = Board()
    port, harness = board.join()
    board.exchange.from_harness(harness, frame("a", 1), now=0)
    board.exchange.from_executor(frame("a", 2), now=0)
    board.exchange.end("the executor is gone")
    port.read(9)
    assert number_of(port.got[0]) == 2
    assert is_reset(port.got[1])
    assert port.ended is not None
    assert not board.exchange.has_room


@requirement("hub/route:total-bound")
def test_a_sender_that_fills_the_memory_waits_until_it_is_free():
    limits = msgspec.structs.replace(LIMITS, hub_total_bytes=3 * FRAME)
    board = Board(limits)
    port, harness = board.join()
    for number in range(3):
        board.exchange.from_harness(harness, frame("a", number), now=0)
    assert port.is_paused
    board.exchange.from_executor(frame("a", 5), now=0)
    assert board.executor.is_paused
    board.executor.read(2)
    assert not port.is_paused
    assert not board.executor.is_paused


@requirement("hub/route:total-bound")
def test_who_waits_for_memory_goes_on_when_others_have_freed_it():
    limits = msgspec.structs.replace(LIMITS, hub_total_bytes=3 * FRAME)
    greedy = Board(limits)
    modest = Board(limits, greedy.memory)
    (_, greedy_harness), (port, harness) = greedy.join(), modest.join()
    for number in range(3):
        greedy.exchange.from_harness(greedy_harness, frame("a", number), now=0)
    modest.exchange.from_harness(harness, frame("b", 1), now=0)
    modest.executor.read(1)
    assert port.is_paused
    greedy.executor.read(3)
    assert not port.is_paused


class Traffic(RuleBasedStateMachine):
    """Sockets that read and close at random, and senders that stop when they are paused."""

    def __init__(self) -> None:
        super().__init__()
        self.board = Board()
        self.ports: dict[str, tuple[FakePort, JoinedHarness]] = {}
        self.sent_up: dict[str, list[int]] = {}
        self.sent_down: dict[str, list[int]] = {}
        self.count = 0
        self.now = 0.0

    @precondition(lambda self: len(self.ports) < 4)
    @rule()
    def a_harness_comes(self):
        name = f"s{len(self.sent_up)}"
        self.ports[name] = self.board.join(self.now)
        self.sent_up[name], self.sent_down[name] = [], []

    @precondition(lambda self: self.ports)
    @rule(data=st.data(), count=st.integers(1, 8))
    def a_harness_sends(self, data, count):
        name = data.draw(st.sampled_from(sorted(self.ports)))
        port, harness = self.ports[name]
        for _ in range(count):
            if port.is_paused or port.ended is not None:
                return
            self.count += 1
            self.board.exchange.from_harness(harness, frame(name, self.count), now=self.now)
            self.sent_up[name].append(self.count)

    @precondition(lambda self: self.ports)
    @rule(data=st.data(), count=st.integers(1, 8))
    def the_executor_sends(self, data, count):
        name = data.draw(st.sampled_from(sorted(self.ports)))
        if not self.sent_up[name]:
            return
        for _ in range(count):
            if self.board.executor.is_paused:
                return
            self.count += 1
            self.board.exchange.from_executor(frame(name, self.count), now=self.now)
            self.sent_down[name].append(self.count)

    @rule(count=st.integers(1, 10))
    def the_executor_reads(self, count):
        self.board.executor.read(count)

    @precondition(lambda self: self.ports)
    @rule(data=st.data(), count=st.integers(1, 10))
    def a_harness_reads(self, data, count):
        self.ports[data.draw(st.sampled_from(sorted(self.ports)))][0].read(count)

    @precondition(lambda self: self.ports)
    @rule(data=st.data())
    def a_harness_goes(self, data):
        port, harness = self.ports.pop(data.draw(st.sampled_from(sorted(self.ports))))
        self.board.exchange.leave(harness)
        port.ended = port.ended or 1000
        port.discard()

    @rule(seconds=st.floats(0.1, 10))
    def time_passes(self, seconds):
        self.now += seconds

    @invariant()
    def what_arrives_is_what_was_sent_in_order(self):
        up: dict[str, list[int]] = {}
        for data in self.board.executor.got:
            if not is_reset(data):
                up.setdefault(decode(data).stream_id, []).append(number_of(data))
        for name, numbers in up.items():
            assert numbers == self.sent_up[name][: len(numbers)]
        for name, (port, _) in self.ports.items():
            numbers = [number_of(data) for data in port.got if not is_reset(data)]
            assert numbers == self.sent_down[name][: len(numbers)]

    @invariant()
    def queues_are_bounded_and_counted(self):
        queued = [port.queued for port, _ in self.ports.values()]
        most = 2 * FRAME
        assert all(size <= LIMITS.hub_stream_bytes + most for size in queued)
        assert self.board.memory.used == sum(queued) + self.board.executor.queued
        assert self.board.memory.used <= LIMITS.hub_total_bytes + 6 * most

    @invariant()
    def nobody_waits_for_nothing(self):
        if self.board.memory.used == 0:
            assert not self.board.executor.is_paused
            assert not any(port.is_paused for port, _ in self.ports.values())


@requirement("hub/route:no-loss", "hub/route:bounded")
class TestTraffic(Traffic.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=60, stateful_step_count=60, deadline=None)

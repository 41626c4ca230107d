"""Whatever the bus does to packets: messages arrive once, in order and unchanged, within bounds."""

from __future__ import annotations

import random
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from exec_server.hub.cluster.reliable_halves import ASK, END, GAP, HEAD, HEADER_BYTES, STATUS
from tests.requirements import requirement
from tests.support.reliable_channels import (
    FRAGMENT,
    LIMIT,
    WINDOW,
    bring,
    channel,
    kind_of,
    settle,
)

numbers_near_zero = st.integers(0, 30) | st.integers(0, 2**64 - 1)
likely = st.builds(
    lambda kind, number, expected, credit, payload: (
        HEAD.pack(kind, number, expected, min(LIMIT + credit, 2**64 - 1)) + payload
    ),
    st.integers(0, 255) | st.sampled_from([0, 1, 2, 3, STATUS | GAP, STATUS | ASK]),
    numbers_near_zero,
    numbers_near_zero,
    numbers_near_zero,
    st.binary(max_size=30),
)


@requirement("hub/reliable:nonsense")
@given(st.lists(likely | st.binary(max_size=60), max_size=30))
def test_no_packet_raises(garbage):
    near = channel()
    near.send(b"abc")
    near.packets()
    for packet in garbage:
        near.receive(packet)
        near.messages()
        near.tick()
        near.taken()
        assert sum(map(len, near.packets())) <= LIMIT + HEADER_BYTES
        assert not (near.has_failed and near.needs_ticks)


class Side:
    """One end under test, with its expected and actual messages."""

    def __init__(self) -> None:
        self.channel = channel(patience=10_000)
        self.wanted: list[bytes] = []
        self.got: list[bytes] = []
        self.taken = 0
        self.end: tuple[int, str] | None = None
        # The published packets by number, and the highest progress told to the other side.
        self.published: dict[int, bytes] = {}
        self.told = LIMIT

    def publish(self) -> list[bytes]:
        packets = self.channel.packets()
        for packet in packets:
            _, number, _, credit = HEAD.unpack_from(packet)
            assert credit >= self.told
            self.told = credit
            if kind_of(packet) != STATUS:
                # A number never stands for two packets.
                body = bytes([kind_of(packet)]) + packet[HEADER_BYTES:]
                assert self.published.setdefault(number, body) == body
        return packets

    def look(self) -> None:
        self.got += self.channel.messages()
        self.taken += self.channel.taken()

    def untaken_bytes(self, told: int) -> int:
        """The published payload that the peer has not taken, as far as it has *told*."""
        sent, untaken = LIMIT, 0
        for _, body in sorted(self.published.items()):
            if body[0] != END:
                sent += HEADER_BYTES + len(body) - 1
                untaken += len(body) - 1 if sent > told else 0
        return untaken


SIDES = st.sampled_from([0, 1])
SIZES = st.sampled_from([0, 0, 1, 20, FRAGMENT, FRAGMENT + 1, 250, WINDOW, 3 * WINDOW])


class BadBus(RuleBasedStateMachine):
    """Two ends, and the packets between them, which the test delivers, drops or doubles."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = [Side(), Side()]
        self.flying: list[tuple[int, bytes]] = []
        self.serial = count()

    @rule(side=SIDES, size=SIZES, times=st.integers(1, 4))
    def send(self, side, size, times):
        sender = self.sides[side]
        for _ in range(times):
            data = next(self.serial).to_bytes(4, "big").ljust(size, b".")[:size]
            sender.channel.send(data)
            if sender.end is None:
                sender.wanted.append(data)

    @rule(side=SIDES)
    def discard(self, side):
        discarded = self.sides[side].channel.discard()
        if discarded:
            del self.sides[side].wanted[-discarded:]

    @rule(side=SIDES, code=st.integers(1000, 1013), luck=st.integers(0, 4))
    def end(self, side, code, luck):
        if luck:
            return
        self.sides[side].channel.end(code, f"by {side}")
        self.sides[side].end = self.sides[side].end or (code, f"by {side}")

    @rule(side=SIDES, is_paused=st.booleans())
    def pause_or_resume(self, side, is_paused):
        end = self.sides[side].channel
        end.pause() if is_paused else end.resume()

    @rule(side=SIDES)
    def tick(self, side):
        if self.sides[side].channel.needs_ticks:
            self.sides[side].channel.tick()

    @rule(side=SIDES)
    def publish(self, side):
        self.flying += [(1 - side, packet) for packet in self.sides[side].publish()]

    @precondition(lambda self: self.flying)
    @rule(count=st.integers(1, 10))
    def deliver_in_order(self, count):
        for side, packet in self.flying[:count]:
            self._deliver(side, packet)
        del self.flying[:count]

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), is_doubled=st.booleans())
    def deliver_one_of_them(self, data, is_doubled):
        at = data.draw(st.integers(0, len(self.flying) - 1))
        self._deliver(*self.flying[at])
        if not is_doubled:
            del self.flying[at]

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def lose(self, data):
        at = data.draw(st.integers(0, len(self.flying) - 1))
        del self.flying[at : at + data.draw(st.integers(1, 5))]

    @invariant()
    def what_arrived_is_what_was_sent_so_far(self):
        for side, other in (self.sides, self.sides[::-1]):
            assert side.got == other.wanted[: len(side.got)]
            assert other.taken <= len(side.got)
            assert other.untaken_bytes(side.told) <= WINDOW
            assert not side.channel.has_failed
            assert side.channel.malformed == 0
            if side.channel.ended is not None:
                assert side.channel.ended == other.end
                assert side.got == other.wanted

    def teardown(self):
        """Let the bus deliver all packets, in any order; then all messages arrive."""
        for to, packet in reversed(self.flying):
            self._deliver(to, packet)
        for side in self.sides:
            side.channel.resume()
            side.look()
        late = settle(*(side.channel for side in self.sides))
        for side, other, messages in zip(self.sides, self.sides[::-1], late, strict=True):
            side.got += messages
            assert side.got == other.wanted
            assert other.taken + other.channel.taken() == len(side.got)
            assert side.channel.ended == other.end
            assert side.channel.is_finished == (side.end is not None)
            assert not side.channel.has_failed

    def _deliver(self, side: int, packet: bytes) -> None:
        self.sides[side].channel.receive(packet)
        self.sides[side].look()


@requirement("hub/reliable:exact", "hub/reliable:window", "hub/reliable:taken", "hub/reliable:end")
class TestBadBus(BadBus.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(stateful_step_count=60, deadline=None)


@requirement("hub/reliable:exact", "hub/reliable:again", "hub/reliable:reopened")
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    doubled=st.sampled_from([0.0, 0.3]),
    late=st.sampled_from([0.0, 0.3]),
)
def test_a_long_stream_over_a_bad_bus_arrives_exactly(seed, loss, doubled, late):
    """Two busy ends that get their ticks, on a bus with faults for 60 rounds."""
    chance = random.Random(seed)
    ends = [channel(patience=200) for _ in range(2)]
    sent: list[list[bytes]] = [[], []]
    got: list[list[bytes]] = [[], []]
    delayed: list[tuple[int, bytes]] = []
    for round_ in range(60):
        for side, end in enumerate(ends):
            for _ in range(chance.randrange(4)):
                sent[side].append(chance.randbytes(chance.choice([0, 3, 90, 350, 900])))
                end.send(sent[side][-1])
        for _ in range(4):
            now, delayed = delayed, []
            now += [(1 - side, packet) for side, end in enumerate(ends) for packet in end.packets()]
            for side, packet in now:
                if chance.random() < loss:
                    continue
                if chance.random() < late:
                    delayed.append((side, packet))
                    continue
                got[side] += bring([packet] * (1 + (chance.random() < doubled)), ends[side])
            chance.shuffle(delayed)
        for end in ends:
            if round_ % 5 == 0:
                chance.choice([end.pause, end.resume])()
            if end.needs_ticks:
                end.tick()
    for messages, end in zip(got, ends, strict=True):
        end.resume()
        messages += end.messages()
    for messages, rest in zip(got, settle(*ends), strict=True):
        messages += rest
    assert got == sent[::-1]
    assert [end.taken() for end in ends] == [len(messages) for messages in sent]
    assert not any(end.has_failed for end in ends)

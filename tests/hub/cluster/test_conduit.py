"""Whatever the bus does to packets: messages arrive once, in order and unchanged, within bounds."""

from __future__ import annotations

import random
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from exec_server.hub.cluster.conduit import Conduit
from exec_server.hub.cluster.directions import ASK, END, GAP, HEAD, HEADER_BYTES, KIND, STATUS
from tests.requirements import requirement

WINDOW = 400
FRAGMENT = 100
PATIENCE = 6
LIMIT = WINDOW + HEADER_BYTES


def conduit(*, window: int = WINDOW, fragment: int = FRAGMENT, patience: int = PATIENCE) -> Conduit:
    return Conduit(window=window, fragment=fragment, patience=patience)


@pytest.fixture
def near() -> Conduit:
    return conduit()


@pytest.fixture
def far() -> Conduit:
    return conduit()


def bring(packets: list[bytes], to: Conduit) -> list[bytes]:
    """Deliver *packets*, and return the messages that come of it."""
    messages = []
    for packet in packets:
        to.receive(packet)
        messages += to.messages()
    return messages


def kind_of(packet: bytes) -> int:
    return packet[0] & KIND


def numbers(packets: list[bytes]) -> list[int]:
    return [HEAD.unpack_from(packet)[1] for packet in packets if kind_of(packet) != STATUS]


def payload_bytes(packets: list[bytes]) -> int:
    return sum(len(packet) - HEADER_BYTES for packet in packets)


def header(kind: int, *, number: int = 0, expected: int = 0, credit: int = LIMIT) -> bytes:
    return HEAD.pack(kind, number, expected, credit)


def settle(*ends: Conduit, rounds: int = 1000) -> list[list[bytes]]:
    """Let a bus that behaves carry everything; the messages that each of two ends got."""
    got: list[list[bytes]] = [[], []]
    for _ in range(rounds):
        while any(moved := [end.packets() for end in ends]):
            got[0] += bring(moved[1], ends[0])
            got[1] += bring(moved[0], ends[1])
        if not any(end.needs_ticks for end in ends):
            return got
        for end in ends:
            end.tick()
    raise AssertionError("the conduits never came to rest")


@requirement("hub/conduit:exact")
def test_messages_go_both_ways(near, far):
    near.send(b"ping")
    assert bring(near.packets(), far) == [b"ping"]
    far.send(b"pong")
    assert bring(far.packets(), near) == [b"pong"]
    assert near.taken() == 1
    assert near.packets() == []


@requirement("hub/conduit:pieces")
@pytest.mark.parametrize("size", [0, 1, FRAGMENT, FRAGMENT + 1, WINDOW, 10 * WINDOW + 7])
def test_a_message_of_any_size_arrives_whole(near, far, size):
    data = random.Random(size).randbytes(size)
    near.send(data)
    near.send(b"next")
    first = near.packets()
    assert all(len(packet) <= HEADER_BYTES + FRAGMENT for packet in first)
    assert bring(first, far) + settle(near, far)[1] == [data, b"next"]


def test_a_packet_as_long_as_the_window_fits():
    near, far = conduit(fragment=WINDOW), conduit(fragment=WINDOW)
    near.send(bytes(WINDOW))
    assert bring(near.packets(), far) == [bytes(WINDOW)]


@pytest.mark.parametrize(
    "wrong", [{"fragment": 0}, {"fragment": WINDOW + 1}, {"patience": 0}], ids=str
)
def test_a_conduit_that_could_not_work_is_not_made(wrong):
    with pytest.raises(ValueError, match="a conduit needs"):
        conduit(**wrong)


@requirement("hub/conduit:window")
@pytest.mark.parametrize("size", [0, 1, 30, FRAGMENT, 3 * FRAGMENT])
def test_no_more_is_sent_than_the_window(near, far, size):
    far.pause()
    for _ in range(1000):
        near.send(bytes(size))
    sent = near.packets()
    assert sent
    assert payload_bytes(sent) <= WINDOW
    assert sum(map(len, sent)) <= LIMIT
    assert bring(sent, far) == []
    assert near.packets() == []
    # Nor is more kept to be repeated.
    near.tick()
    near.tick()
    assert near.packets() == sent
    far.resume()
    assert len(far.messages() + settle(near, far)[1]) == 1000


@requirement("hub/conduit:window")
@pytest.mark.parametrize(("excess", "sent"), [(0, 2), (1, 1)])
def test_the_window_is_used_to_the_last_byte(excess, sent):
    wide = conduit(fragment=WINDOW)
    for size in (FRAGMENT, LIMIT - FRAGMENT - 2 * HEADER_BYTES + excess):
        wide.send(bytes(size))
    assert len(wide.packets()) == sent


@requirement("hub/conduit:window")
def test_a_quarter_of_the_window_is_announced_when_taken(near, far):
    near.send(bytes(WINDOW // 4 - HEADER_BYTES - 1))
    bring(near.packets(), far)
    assert far.packets() == []
    near.send(b"")
    bring(near.packets(), far)
    [status] = far.packets()
    assert HEAD.unpack(status) == (STATUS, 0, 2, LIMIT + WINDOW // 4 - 1 + HEADER_BYTES)
    bring([status], near)
    assert near.taken() == 2


@requirement("hub/conduit:window")
def test_a_large_window_is_announced_in_small_steps():
    """Who bounds its own queue by what was taken must not wait for a tick."""
    large, step = 64 << 20, 128 << 10
    near, far = (conduit(window=large, fragment=step) for _ in range(2))
    near.send(bytes(step))
    bring(near.packets(), far)
    bring(far.packets(), near)
    assert near.taken() == 1


@requirement("hub/conduit:again")
def test_a_gap_is_filled_at_once_and_once(near, far):
    for number in range(4):
        near.send(b"%d" % number)
    packets = near.packets()
    assert bring([packets[0], *packets[2:]], far) == [b"0"]
    [status] = far.packets()
    assert status[0] == STATUS | GAP
    bring([status], near)
    again = near.packets()
    assert numbers(again) == [1, 2, 3]
    # The same news again is about the same gap.
    bring([status], near)
    assert near.packets() == []
    assert bring(again, far) == [b"1", b"2", b"3"]


@requirement("hub/conduit:again")
def test_news_of_a_gap_that_was_filled_is_old(near, far):
    for number in range(3):
        near.send(b"%d" % number)
    packets = near.packets()
    bring(packets[1:], far)
    old = far.packets()
    bring(packets, far)
    far.tick()
    bring(far.packets(), near)
    near.send(b"3")
    near.packets()
    bring(old, near)
    assert near.packets() == []


@requirement("hub/conduit:again")
def test_what_was_lost_at_the_end_is_repeated_after_a_whole_tick(near, far):
    near.send(b"a")
    near.send(b"b")
    sent = near.packets()
    near.tick()
    assert near.packets() == []
    near.tick()
    assert near.packets() == sent
    assert near.packets() == []
    near.tick()
    assert bring(near.packets(), far) == [b"a", b"b"]


@requirement("hub/conduit:again")
@pytest.mark.parametrize("progress", ["arrives", "is taken"])
def test_progress_puts_a_repetition_off(near, far, progress):
    near.send(b"a")
    near.send(b"b")
    first, _ = near.packets()
    far.pause()
    if progress == "is taken":
        bring([first], far)
        far.tick()
        bring(far.packets(), near)
        far.resume()
    near.tick()
    bring([first], far)
    far.messages()
    far.tick()
    bring(far.packets(), near)
    near.tick()
    assert near.packets() == []
    near.tick()
    assert numbers(near.packets()) == [1]


@requirement("hub/conduit:again")
def test_news_of_a_gap_travels_with_a_message(near, far):
    for _ in range(3):
        near.send(b"")
    far.send(b"x")
    far.send(b"y")
    bring(near.packets()[1:], far)
    packets = far.packets()
    assert [packet[0] & GAP for packet in packets] == [GAP, 0]
    assert bring(packets, near) == [b"x", b"y"]
    assert numbers(near.packets()) == [0, 1, 2]


@requirement("hub/conduit:again", "hub/conduit:idle")
def test_an_acknowledgement_goes_alone_at_a_tick_when_nothing_carries_it(near, far):
    near.send(b"a")
    bring(near.packets(), far)
    assert far.packets() == []
    assert far.needs_ticks
    far.tick()
    [status] = far.packets()
    assert kind_of(status) == STATUS
    assert not far.needs_ticks
    bring([status], near)
    assert not near.needs_ticks
    assert near.taken() == 1


@requirement("hub/conduit:idle")
def test_a_conduit_at_rest_says_nothing(near, far):
    assert not near.needs_ticks
    near.send(b"a")
    assert near.needs_ticks
    settle(near, far)
    for end in (near, far):
        assert not end.needs_ticks
        for _ in range(10 * PATIENCE):
            end.tick()
        assert end.packets() == []
        assert not end.has_failed


@requirement("hub/conduit:quiet")
def test_a_burst_behind_a_lost_packet_is_answered_once(near, far):
    for _ in range(5):
        near.send(b"")
    bring(near.packets()[1:], far)
    assert [packet[0] for packet in far.packets()] == [STATUS | GAP]
    near.tick()
    near.tick()
    bring(near.packets()[1:], far)
    assert far.packets() == []
    # That answer may be lost: after a tick there is another one.
    assert far.needs_ticks
    far.tick()
    assert not far.needs_ticks
    near.tick()
    bring(near.packets()[1:], far)
    assert [packet[0] for packet in far.packets()] == [STATUS | GAP]


@requirement("hub/conduit:quiet")
def test_each_gap_is_reported_when_there_was_progress_between(near, far):
    for _ in range(6):
        near.send(b"")
    packets = near.packets()
    bring([packets[1], packets[0], packets[3]], far)
    [status] = far.packets()
    assert HEAD.unpack(status)[:3] == (STATUS | GAP, 0, 1)
    bring([packets[1], packets[5]], far)
    [status] = far.packets()
    assert HEAD.unpack(status)[:3] == (STATUS | GAP, 0, 2)


@requirement("hub/conduit:quiet", "hub/conduit:exact")
def test_repeated_packets_are_answered_once_and_delivered_never(near, far):
    for _ in range(5):
        near.send(b"x")
    packets = near.packets()
    bring(packets, far)
    far.packets()
    assert bring(packets, far) == []
    assert [packet[0] for packet in far.packets()] == [STATUS]
    assert bring(packets, far) == []
    assert far.packets() == []
    assert far.needs_ticks
    far.tick()
    assert bring(packets, far) == []
    assert len(far.packets()) == 1


@requirement("hub/conduit:reopened")
def test_a_lost_announcement_of_an_open_window_is_asked_for(near, far):
    for _ in range(10):
        near.send(bytes(FRAGMENT))
    far.pause()
    bring(near.packets(), far)
    far.tick()
    bring(far.packets(), near)
    far.resume()
    far.messages()
    assert far.packets()  # lost
    assert near.packets() == []
    assert near.needs_ticks
    assert not far.needs_ticks
    near.tick()
    near.tick()
    [probe] = near.packets()
    assert probe[0] == STATUS | ASK
    bring([probe], far)
    bring(far.packets(), near)
    assert near.taken() == 3
    assert near.packets()


@requirement("hub/conduit:reopened", "hub/conduit:taken")
def test_lost_news_of_taken_messages_is_asked_for_though_nothing_more_is_queued(near, far):
    near.send(b"a")
    far.pause()
    bring(near.packets(), far)
    far.tick()
    bring(far.packets(), near)
    assert near.taken() == 0
    far.resume()
    far.messages()
    far.tick()
    assert far.packets()  # lost
    settle(near, far)
    assert near.taken() == 1


@requirement("hub/conduit:taken")
def test_messages_count_as_taken_only_when_the_peer_took_them(near, far):
    for data in (b"", b"a", bytes(2 * FRAGMENT), b""):
        near.send(data)
    far.pause()
    bring(near.packets(), far)
    far.tick()
    bring(far.packets(), near)
    assert near.taken() == 0
    far.resume()
    assert far.messages() == [b"", b"a", bytes(2 * FRAGMENT), b""]
    far.tick()
    bring(far.packets(), near)
    assert near.taken() == 4
    assert near.taken() == 0


@requirement("hub/conduit:taken")
def test_discarding_spares_what_was_begun(near, far):
    near.send(b"whole")
    near.send(bytes(2 * WINDOW))
    near.send(b"never")
    near.send(b"sent")
    first = near.packets()
    assert near.discard() == 2
    assert near.discard() == 0
    near.send(b"later")
    assert bring(first, far) + settle(near, far)[1] == [b"whole", bytes(2 * WINDOW), b"later"]
    assert near.taken() == 3


@requirement("hub/conduit:taken", "hub/conduit:idle")
def test_what_was_discarded_is_not_waited_for(near, far):
    near.send(b"a")
    for _ in range(PATIENCE - 1):
        near.tick()
    assert near.discard() == 1
    assert not near.needs_ticks
    near.send(b"b")
    near.tick()
    assert not near.has_failed
    assert settle(near, far)[1] == [b"b"]
    assert near.taken() == 1


@requirement("hub/conduit:end")
def test_an_end_comes_after_all_messages(near, far):
    near.send(b"a")
    near.end(1001, "going")
    near.send(b"too late")
    near.end(1000, "twice")
    far.pause()
    bring(near.packets(), far)
    assert far.ended is None
    far.resume()
    assert far.messages() == [b"a"]
    assert far.ended == (1001, "going")
    assert not near.is_finished
    # The end is acknowledged without waiting for a tick.
    bring(far.packets(), near)
    assert near.is_finished
    assert not far.is_finished
    assert not near.has_failed


@requirement("hub/conduit:end")
def test_an_end_needs_no_window(near, far):
    for _ in range(4):
        near.send(bytes(FRAGMENT - HEADER_BYTES))
    near.end(1000, "")
    far.pause()
    bring(near.packets(), far)
    bring(far.packets(), near)
    assert near.is_finished
    assert far.ended is None


@requirement("hub/conduit:end")
def test_a_lost_end_is_repeated(near, far):
    near.end(1000, "")
    near.packets()
    settle(near, far)
    assert far.ended == (1000, "")
    assert near.is_finished


@requirement("hub/conduit:end")
def test_when_both_end_neither_needs_the_last_word(near, far):
    near.end(1000, "near")
    far.end(1001, "far")
    crossing = near.packets(), far.packets()
    bring(crossing[1], near)
    bring(crossing[0], far)
    assert not near.is_finished
    assert not far.is_finished
    near.packets(), far.packets()  # both lost
    assert near.is_finished
    assert far.is_finished
    for _ in range(PATIENCE):
        far.tick()
    assert not far.has_failed
    assert not far.needs_ticks


@requirement("hub/conduit:end")
def test_a_reason_is_cut_between_letters(near, far):
    near.end(1000, "é" * 100 + "\ud800")
    bring(near.packets(), far)
    assert far.ended == (1000, "é" * 61)


@requirement("hub/conduit:gone")
def test_on_a_dead_bus_patience_ends(near):
    near.send(b"a")
    for _ in range(PATIENCE - 1):
        near.packets()
        near.tick()
        assert not near.has_failed
    near.tick()
    assert near.has_failed
    assert not near.needs_ticks
    assert near.packets() == []
    near.send(b"b")
    near.end(1000, "")
    near.tick()
    near.receive(header(STATUS))
    assert near.packets() == []


@requirement("hub/conduit:gone")
def test_a_peer_that_is_gone_while_the_window_is_closed_is_noticed(near, far):
    far.pause()
    near.send(bytes(2 * WINDOW))
    bring(near.packets(), far)
    far.tick()
    bring(far.packets(), near)
    for _ in range(PATIENCE):
        assert not near.has_failed
        near.tick()
        near.packets()
    assert near.has_failed


@requirement("hub/conduit:gone")
def test_a_peer_that_takes_nothing_but_lives_is_waited_for(near, far):
    far.pause()
    near.send(bytes(2 * WINDOW))
    for _ in range(20 * PATIENCE):
        bring(near.packets(), far)
        bring(far.packets(), near)
        near.tick()
        far.tick()
    assert not near.has_failed
    far.resume()
    assert far.messages() + settle(near, far)[1] == [bytes(2 * WINDOW)]


@requirement("hub/conduit:gone")
def test_a_peer_that_is_heard_but_hears_nothing_is_given_up(near, far):
    near.send(b"a")
    near.packets()
    for _ in range(PATIENCE):
        assert not near.has_failed
        far.send(b"b")
        bring(far.packets(), near)
        near.tick()
        near.packets()
    assert near.has_failed


MALFORMED = [
    b"",
    header(STATUS)[:-1],
    header(STATUS) + b"x",
    header(END),
    header(END) + b"x",
    header(END) + b"\x03\xe8\xff",
    header(END) + b"\x03\xe8" + bytes(124),
    header(1),
    header(4),
    header(0x40),
    header(0x80 | STATUS),
]


@requirement("hub/conduit:nonsense")
@pytest.mark.parametrize("packet", MALFORMED, ids=bytes.hex)
def test_a_malformed_packet_is_counted_and_ignored(near, packet):
    near.receive(packet)
    assert near.malformed == 1
    assert not near.has_failed
    assert not near.needs_ticks
    assert near.packets() == []


IMPOSSIBLE = {
    "acknowledges what was not sent": header(STATUS, expected=2),
    "opens more than was taken": header(STATUS, expected=1, credit=LIMIT + HEADER_BYTES + 2),
    "opens less than at first": header(STATUS, credit=LIMIT - 1),
    "is far ahead": header(2, number=LIMIT // HEADER_BYTES + 2),
    "is more than the window": header(2) + bytes(WINDOW + 1),
}


@requirement("hub/conduit:nonsense")
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_peer_that_breaks_the_rules_fails_the_conduit(near, name):
    near.send(b"a")
    near.packets()
    near.receive(IMPOSSIBLE[name])
    assert near.has_failed
    assert near.malformed == 0
    assert near.messages() == []
    assert near.packets() == []


@requirement("hub/conduit:nonsense")
@pytest.mark.parametrize(
    "packet",
    [
        header(STATUS, expected=1, credit=LIMIT + HEADER_BYTES + 1),
        header(2, number=LIMIT // HEADER_BYTES + 1),
        header(2) + bytes(WINDOW),
    ],
    ids=["all was taken", "just possible", "a whole window"],
)
def test_a_peer_may_go_to_the_limits(near, packet):
    near.send(b"a")
    near.packets()
    near.receive(packet)
    assert not near.has_failed


@requirement("hub/conduit:nonsense")
@pytest.mark.parametrize("kind", [2, END])
def test_nothing_may_come_after_the_end(near, kind):
    near.receive(header(END) + b"\x03\xe8")
    near.receive(header(kind, number=1) + b"\x03\xe8")
    assert near.has_failed
    assert near.messages() == []


@requirement("hub/conduit:nonsense")
def test_an_end_amid_a_message_fails(near):
    near.receive(header(1) + b"half")
    near.receive(header(END, number=1) + b"\x03\xe8")
    assert near.has_failed
    assert near.messages() == []


@requirement("hub/conduit:nonsense")
def test_a_message_beyond_the_longest_fails():
    near, far = conduit(), Conduit(window=WINDOW, fragment=FRAGMENT, patience=9, longest=WINDOW)
    near.send(bytes(WINDOW))
    assert settle(near, far)[1] == [bytes(WINDOW)]
    near.send(bytes(WINDOW + 1))
    while near.needs_ticks and not far.has_failed:
        assert bring(near.packets(), far) == []
        bring(far.packets(), near)
        near.tick()
    assert far.has_failed


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


@requirement("hub/conduit:nonsense")
@given(st.lists(likely | st.binary(max_size=60), max_size=30))
def test_no_packet_raises(garbage):
    near = conduit()
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
    """One end under test, and what it should and did say."""

    def __init__(self) -> None:
        self.conduit = conduit(patience=10_000)
        self.wanted: list[bytes] = []
        self.got: list[bytes] = []
        self.taken = 0
        self.end: tuple[int, str] | None = None
        # By number, what was published; and the most that was told to the other side.
        self.published: dict[int, bytes] = {}
        self.told = LIMIT

    def publish(self) -> list[bytes]:
        packets = self.conduit.packets()
        for packet in packets:
            _, number, _, credit = HEAD.unpack_from(packet)
            assert credit >= self.told
            self.told = credit
            if kind_of(packet) != STATUS:
                # A number never stands for two things.
                body = bytes([kind_of(packet)]) + packet[HEADER_BYTES:]
                assert self.published.setdefault(number, body) == body
        return packets

    def look(self) -> None:
        self.got += self.conduit.messages()
        self.taken += self.conduit.taken()

    def untaken_bytes(self, told: int) -> int:
        """The payload that was published, and was not taken as far as the peer has *told*."""
        sent, untaken = LIMIT, 0
        for _, body in sorted(self.published.items()):
            if body[0] != END:
                sent += HEADER_BYTES + len(body) - 1
                untaken += len(body) - 1 if sent > told else 0
        return untaken


SIDES = st.sampled_from([0, 1])
SIZES = st.sampled_from([0, 0, 1, 20, FRAGMENT, FRAGMENT + 1, 250, WINDOW, 3 * WINDOW])


class BadBus(RuleBasedStateMachine):
    """Two ends, and packets that lie between them until somebody has an idea."""

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
            sender.conduit.send(data)
            if sender.end is None:
                sender.wanted.append(data)

    @rule(side=SIDES)
    def discard(self, side):
        discarded = self.sides[side].conduit.discard()
        if discarded:
            del self.sides[side].wanted[-discarded:]

    @rule(side=SIDES, code=st.integers(1000, 1013), luck=st.integers(0, 4))
    def end(self, side, code, luck):
        if luck:
            return
        self.sides[side].conduit.end(code, f"by {side}")
        self.sides[side].end = self.sides[side].end or (code, f"by {side}")

    @rule(side=SIDES, is_paused=st.booleans())
    def pause_or_resume(self, side, is_paused):
        end = self.sides[side].conduit
        end.pause() if is_paused else end.resume()

    @rule(side=SIDES)
    def tick(self, side):
        if self.sides[side].conduit.needs_ticks:
            self.sides[side].conduit.tick()

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
            assert not side.conduit.has_failed
            assert side.conduit.malformed == 0
            if side.conduit.ended is not None:
                assert side.conduit.ended == other.end
                assert side.got == other.wanted

    def teardown(self):
        """The bus behaves again, with what it still has in any order; then all arrives."""
        for to, packet in reversed(self.flying):
            self._deliver(to, packet)
        for side in self.sides:
            side.conduit.resume()
            side.look()
        late = settle(*(side.conduit for side in self.sides))
        for side, other, messages in zip(self.sides, self.sides[::-1], late, strict=True):
            side.got += messages
            assert side.got == other.wanted
            assert other.taken + other.conduit.taken() == len(side.got)
            assert side.conduit.ended == other.end
            assert side.conduit.is_finished == (side.end is not None)
            assert not side.conduit.has_failed

    def _deliver(self, side: int, packet: bytes) -> None:
        self.sides[side].conduit.receive(packet)
        self.sides[side].look()


@requirement("hub/conduit:exact", "hub/conduit:window", "hub/conduit:taken", "hub/conduit:end")
class TestBadBus(BadBus.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(stateful_step_count=60, deadline=None)


@requirement("hub/conduit:exact", "hub/conduit:again", "hub/conduit:reopened")
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    doubled=st.sampled_from([0.0, 0.3]),
    late=st.sampled_from([0.0, 0.3]),
)
def test_a_long_stream_over_a_bad_bus_arrives_exactly(seed, loss, doubled, late):
    """Two busy ends that are ticked while they need it, and no end of trouble for 60 rounds."""
    chance = random.Random(seed)
    ends = [conduit(patience=200) for _ in range(2)]
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

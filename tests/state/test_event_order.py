"""Events come out by number, each once, whatever order they come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import ProcessFailed
from exec_server.limits import Limits
from exec_server.protocol.base64 import Blob
from exec_server.protocol.process import ClosedEvent, ExitedEvent, OutputEvent
from exec_server.state.event_order import EventOrder, ProcessEvent
from tests.requirements import requirement


def output(seq: int, size: int = 1) -> OutputEvent:
    return OutputEvent("p", seq, "stdout", Blob(b"x" * size))


def exited(seq: int) -> ExitedEvent:
    return ExitedEvent("p", seq, 0)


def closed(seq: int | None) -> ClosedEvent:
    return ClosedEvent("p", seq)


def seqs(order: EventOrder, *events: ProcessEvent) -> list[int | None]:
    return [ready.seq for event in events for ready in order.receive(event)]


def test_events_in_order_pass_at_once():
    order = EventOrder()
    assert seqs(order, output(1), exited(2), closed(3)) == [1, 2, 3]
    assert order.is_closed


@requirement("client/order:by-number")
def test_an_early_event_waits_for_its_turn():
    order = EventOrder()
    assert seqs(order, closed(3)) == []
    assert order.missing == range(1, 3)
    assert seqs(order, exited(2)) == []
    assert order.missing == range(1, 2)
    assert order.heard == 3 and order.released == 0
    assert seqs(order, output(1)) == [1, 2, 3]
    assert order.is_closed and not order.missing


@requirement("client/order:duplicates")
def test_repeats_are_dropped():
    order = EventOrder()
    assert seqs(order, output(1), output(1), output(3), output(3), output(0), output(2)) == [
        1,
        2,
        3,
    ]


def test_what_was_seen_before_is_not_wanted_again():
    order = EventOrder(after=5)
    assert seqs(order, output(4), output(5), output(7), output(6)) == [6, 7]


@requirement("client/order:after-close")
def test_nothing_follows_the_close():
    order = EventOrder()
    assert seqs(order, output(3), closed(2), output(1), output(4), closed(None)) == [1, 2]


@requirement("client/order:unnumbered-close")
def test_a_close_without_number_comes_last():
    order = EventOrder()
    assert seqs(order, output(1), closed(None), output(2)) == [1, None]
    assert order.is_closed


@requirement("client/order:unnumbered-close")
def test_a_close_without_number_waits_for_what_is_missing():
    order = EventOrder()
    assert seqs(order, output(1), output(3), closed(None)) == [1]
    assert not order.is_closed
    assert seqs(order, exited(2)) == [2, 3, None]
    assert order.is_closed


@requirement("client/order:bounds", "client/order:gap-closer")
def test_at_most_256_events_wait():
    order = EventOrder()
    assert seqs(order, *map(output, range(2, 258))) == []
    with pytest.raises(ProcessFailed, match="event 1 is missing"):
        order.receive(output(258))
    assert seqs(order, output(1)) == list(range(1, 258))


@requirement("client/order:bounds", "client/order:gap-closer")
def test_at_most_a_mebibyte_waits():
    order = EventOrder()
    half = 512 * 1024
    assert seqs(order, output(2, half), output(3, half), exited(4)) == []
    with pytest.raises(ProcessFailed, match="event 1 is missing"):
        order.receive(output(5))
    assert seqs(order, output(1, 2 * half)) == [1, 2, 3, 4]


@requirement("client/order:event-size")
def test_one_event_has_at_most_a_mebibyte():
    order = EventOrder()
    assert seqs(order, output(1, 1 << 20)) == [1]
    with pytest.raises(ProcessFailed, match="over the limit"):
        order.receive(output(2, (1 << 20) + 1))


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[list[ProcessEvent], list[ProcessEvent]]:
    """A process's events, and the same in another order with repeats."""
    count = draw(st.integers(0, 40))
    exit_at = draw(st.integers(1, count + 1))
    events: list[ProcessEvent] = [
        exited(seq) if seq == exit_at else output(seq) for seq in range(1, count + 2)
    ]
    events.append(closed(count + 2))
    repeats = draw(st.lists(st.sampled_from(events), max_size=20))
    return events, draw(st.permutations(events + repeats))


@requirement("client/order:by-number", "client/order:duplicates")
@given(shuffled())
def test_any_order_inside_the_window_delivers_the_sequence(case):
    events, arrived = case
    order = EventOrder()
    released = [ready for event in arrived for ready in order.receive(event)]
    assert [event.seq for event in released] == [event.seq for event in events]
    assert order.is_closed and order.heard == order.released == len(events)


@requirement("client/order:bounds", "client/order:gap-closer")
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=200),
    st.integers(1, 8),
    st.integers(1, 40),
)
def test_what_waits_is_bounded_and_nothing_is_skipped(arrivals, max_events, max_bytes):
    limits = Limits(reorder_events=max_events, reorder_bytes=max_bytes, event_bytes=10)
    order = EventOrder(limits=limits)
    released: list[int] = []
    for seq, size in arrivals:
        was_next = seq == order.released + 1
        try:
            ready = order.receive(output(seq, size))
        except ProcessFailed:
            assert size > 10 or not was_next
            continue
        released += [event.seq for event in ready if event.seq is not None]
        waiting = [size for event in order._held.values() if isinstance(event, OutputEvent)
                   for size in [len(event.chunk.data)]]  # fmt: skip
        assert len(waiting) <= max_events and sum(waiting) == order._held_bytes <= max_bytes
        assert bool(order.missing) == bool(waiting)
    assert released == list(range(1, len(released) + 1))

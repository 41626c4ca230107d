"""Merge the answer to a recovery read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import ProcessFailed
from exec_server.protocol.base64 import Blob
from exec_server.protocol.process import (
    ClosedEvent,
    ExitedEvent,
    OutputEvent,
    ReadChunk,
    ReadResult,
)
from exec_server.state.event_order import EventOrder, ProcessEvent
from exec_server.state.recovery import merge
from tests.requirements import requirement


def output(seq: int) -> OutputEvent:
    return OutputEvent("p", seq, "stdout", Blob(b"%d" % seq))


def chunk(seq: int) -> ReadChunk:
    return ReadChunk(seq, "stdout", Blob(b"%d" % seq))


def answer(*seqs: int, next_seq: int, exit_code: int | None = None, **fields) -> ReadResult:
    fields = {"exited": exit_code is not None, "closed": False, **fields}
    return ReadResult([chunk(seq) for seq in seqs], next_seq, exit_code=exit_code, **fields)


def numbers(events) -> list[int]:
    return [event.seq for event in events]


@st.composite
def histories(draw):
    """All events of a process, in order, and which of them is the exit."""
    count = draw(st.integers(1, 12))
    exit_at = draw(st.none() | st.integers(1, count))
    is_closed = exit_at is not None and exit_at < count and draw(st.booleans())
    events: list[ProcessEvent] = [output(seq) for seq in range(1, count + 1)]
    if exit_at is not None:
        events[exit_at - 1] = ExitedEvent("p", exit_at, 3)
    if is_closed:
        events[-1] = ClosedEvent("p", count)
    return events


@requirement("recovery/merge:all")
@given(events=histories(), data=st.data())
def test_whatever_was_pushed_before_every_event_comes_once(events, data):
    order = EventOrder()
    got: list[ProcessEvent] = []
    for event in data.draw(st.lists(st.sampled_from(events), max_size=20)):
        got += order.receive(event)
    # The read may be older than what is pushed over the same connection.
    target = data.draw(st.integers(1, len(events)))
    past = events[:target]
    exits = [event for event in past if isinstance(event, ExitedEvent)]
    result = ReadResult(
        [chunk(e.seq) for e in past if isinstance(e, OutputEvent) and e.seq > order.released],
        target + 1,
        exited=bool(exits),
        exit_code=3 if exits else None,
        closed=isinstance(past[-1], ClosedEvent),
    )
    got += merge(order, "p", result).events
    for event in events:
        got += order.receive(event)
    assert got == events
    assert order.has_exit == any(isinstance(event, ExitedEvent) for event in events)


@requirement("recovery/merge:exit")
def test_the_exit_goes_where_a_number_is_missing():
    order = EventOrder()
    events, gone = merge(order, "p", answer(1, 3, next_seq=5, exit_code=7, closed=True))
    assert events == [output(1), ExitedEvent("p", 2, 7), output(3), ClosedEvent("p", 4)]
    assert not gone and order.is_closed


@requirement("recovery/merge:exit")
def test_an_exit_that_waits_learns_of_a_denial():
    order = EventOrder()
    order.receive(ExitedEvent("p", 2, 1))
    events, _ = merge(order, "p", answer(1, next_seq=3, exit_code=1, sandbox_denied=True))
    assert events == [output(1), ExitedEvent("p", 2, 1, True)]


@requirement("recovery/merge:exit")
def test_an_exit_before_the_cursor_needs_no_number():
    order = EventOrder(after=2)
    assert numbers(merge(order, "p", answer(3, next_seq=4, exit_code=1)).events) == [3]


@requirement("recovery/merge:all")
@pytest.mark.parametrize("next_seq", [1, 2, 3])
def test_an_answer_without_news_changes_nothing(next_seq):
    order = EventOrder(after=2)
    assert merge(order, "p", answer(next_seq=next_seq)).events == ()
    assert order.released == 2


@requirement("recovery/merge:contradictions")
@pytest.mark.parametrize(
    ("result", "match"),
    [
        (answer(1, next_seq=2, failure="no memory"), "no memory"),
        (answer(1, 2, next_seq=2), "beyond the last number"),
        (answer(1, 2, next_seq=3, closed=True), "number of the close"),
        (answer(1, next_seq=3, exited=True), "without a status"),
    ],
)
def test_what_contradicts_itself_is_refused(result, match):
    order = EventOrder()
    with pytest.raises(ProcessFailed, match=match):
        merge(order, "p", result)
    assert order.released == 0


@requirement("recovery/merge:gone")
@pytest.mark.parametrize(
    "result",
    [
        answer(next_seq=3),
        answer(1, 3, next_seq=4),
        answer(3, next_seq=5, exit_code=0),
        answer(3, 4, next_seq=6, exit_code=0, closed=True, dropped_bytes=9),
    ],
)
def test_what_is_not_retained_is_told(result):
    order = EventOrder()
    with pytest.raises(ProcessFailed, match="process events are no longer retained"):
        merge(order, "p", result)
    assert order.released == 0


@requirement("recovery/merge:gone")
def test_what_is_not_retained_can_be_left_out():
    order = EventOrder()
    order.receive(output(5))
    events, gone = merge(order, "p", answer(3, next_seq=5), may_skip=True)
    assert numbers(events) == [3, 5] and gone == 3
    assert order.released == order.heard == 5


@requirement("recovery/merge:all")
def test_much_may_wait_for_an_answer_that_was_asked_for():
    order = EventOrder()
    order.is_in_repair = True
    for seq in range(2, 1000):
        assert order.receive(output(seq)) == ()
    assert len(merge(order, "p", answer(1, next_seq=2)).events) == 999

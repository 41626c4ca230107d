"""Windows of output: nothing is lost, memory is bounded, and no process waits for ever."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.limits import DEFAULT_LIMITS
from exec_server.state.output_log import Chunk, OutputLog
from exec_server.state.window import CHUNK_COST, Credit, WindowBudget, cost
from tests.requirements import requirement

RETAINED = 3000
LARGEST = 2000


def windowed_log(window: int) -> OutputLog:
    log = OutputLog(max_bytes=RETAINED, max_chunks=50)
    log.window = window
    return log


class Conversation:
    """A process with a window, a client that takes its output, and the link between the two."""

    def __init__(self, window: int) -> None:
        self.log = windowed_log(window)
        self.credit = Credit(window)
        self.said = self.taken = b""
        # Messages that are on the way; they are lost with the link.
        self._pushed: deque[Chunk] = deque()
        self._acks: deque[int] = deque()
        self._untaken: deque[Chunk] = deque()

    def say(self, data: bytes) -> None:
        if not self.log.is_full:
            seq = self.log.append("stdout", data)
            self.said += data
            self._pushed.append(Chunk(seq, "stdout", data))

    def arrive(self) -> None:
        """One thing arrives at each end."""
        if self._pushed:
            self._receive(self._pushed.popleft())
        if self._acks:
            self.log.acknowledge(self._acks.popleft())

    def take(self) -> None:
        if self._untaken:
            self.taken += self._untaken.popleft().data
        settled = self._untaken[0].seq - 1 if self._untaken else self.credit.received
        if self.credit.take(settled):
            self._acks.append(settled)
            self.credit.acknowledge(settled)

    def cut(self) -> None:
        """The link is lost and replaced: the client says what it took and reads what it missed."""
        self._pushed.clear()
        self._acks.clear()
        self.log.acknowledge(self._untaken[0].seq - 1 if self._untaken else self.credit.received)
        page = self.log.after(self.credit.received)
        assert page.dropped_bytes is None
        for chunk in page.chunks:
            self._receive(chunk)

    def _receive(self, chunk: Chunk) -> None:
        assert chunk.seq == self.credit.received + 1
        self.credit.receive(chunk.seq, chunk.data)
        self._untaken.append(chunk)

    def finish(self) -> None:
        """Everything arrives and is taken."""
        while self._pushed or self._acks or self._untaken:
            self.arrive()
            self.take()


moves = st.lists(
    st.one_of(
        st.integers(1, LARGEST).map(lambda size: ("say", bytes(i % 251 for i in range(size)))),
        st.sampled_from([("arrive",), ("arrive",), ("take",), ("cut",)]),
    ),
    max_size=80,
)


@given(moves, st.integers(1, 20_000))
@requirement("window/lossless", "window/bounded", "window/acknowledged-in-time")
def test_whatever_happens_every_byte_is_taken_once_and_no_process_waits_for_ever(moves, window):
    talk = Conversation(window)
    for name, *arguments in moves:
        getattr(talk, name)(*arguments)
        held = talk.log.after(0).chunks
        assert sum(len(chunk.data) for chunk in held) <= max(RETAINED, window + LARGEST)
        assert talk.log._unacknowledged_cost < window + LARGEST + CHUNK_COST
        unacknowledged = [chunk for chunk in held if chunk.seq > talk.log.acknowledged]
        assert sum(cost(chunk.data) for chunk in unacknowledged) == talk.log._unacknowledged_cost
    talk.finish()
    assert talk.taken == talk.said
    # When everything is taken there is room again.
    assert not talk.log.is_full and not talk.credit.is_withheld


@requirement("window/bounded")
def test_a_flood_of_tiny_chunks_fills_a_window_too():
    log = OutputLog(max_bytes=1 << 20, max_chunks=50_000)
    log.window = DEFAULT_LIMITS.max_flow_window
    while not log.is_full:
        log.append("stdout", b"x")
    # All of them fit into one answer.
    assert log.next_seq < DEFAULT_LIMITS.retained_chunks
    assert len(log.after(0).chunks) == log.next_seq - 1


@requirement("window/odd-acknowledgements")
@pytest.mark.parametrize("seq", [0, 1, 4, 99, 1 << 63])
def test_acknowledgements_that_cannot_be_are_ignored(seq):
    log = windowed_log(10_000)
    for _ in range(3):
        log.append("stdout", b"x")
    log.acknowledge(2)
    log.acknowledge(seq)
    assert log.acknowledged == 2 and log._unacknowledged == 1
    assert not log.is_settled
    log.acknowledge(3)
    assert log.is_settled


@requirement("window/released")
def test_a_released_log_keeps_the_newest_output_only():
    log = windowed_log(10_000)
    for _ in range(9):
        log.append("stdout", bytes(1000))
    assert log.is_full and not log.is_within_retention
    log.release()
    assert not log.is_full and log.is_within_retention and log.is_settled
    assert [chunk.seq for chunk in log.after(0).chunks] == [7, 8, 9]
    assert log.after(0).dropped_bytes == 6000
    log.append("stdout", bytes(1000))
    log.acknowledge(10)
    assert [chunk.seq for chunk in log.after(0).chunks] == [8, 9, 10]


@requirement("window/bounds")
@given(st.lists(st.integers(1, 30), max_size=40))
def test_windows_share_a_budget_and_no_request_is_refused(asked):
    budget = WindowBudget(total_bytes=50, max_window=20, free_bytes=8)
    granted = [budget.take(window) for window in asked]
    assert budget.left >= 0
    assert sum(max(0, window - 8) for window in granted) == 50 - budget.left
    for wanted, got in zip(asked, granted, strict=True):
        assert got in (min(wanted, 20), min(wanted, 8))
    for window in granted:
        budget.give_back(window)
    assert budget.left == 50

"""How much a peer keeps for the other side before that has to wait."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from exec_server.limits import Limits
from tests.rpc.both_ends import ECHO, HOLD, STOP, Ends, settle

LARGE = "x" * 300 * 1024

# Messages that wait behind a request.


async def test_no_more_messages_are_read_than_may_wait_behind_a_request():
    ends = Ends(limits=Limits(backlog_messages=2))
    sizes = [ends.far.ask(number, HOLD if number == 1 else ECHO) for number in range(1, 6)]
    await settle()
    # One runs, two wait; the others are still on their way.
    assert ends.far.connection.unsent_bytes == sum(sizes[3:])
    ends.service.release(1)
    await settle()
    assert ends.far.answered == [1, 2, 3, 4, 5]
    assert ends.far.connection.unsent_bytes == 0


async def test_no_more_bytes_are_read_than_may_wait_behind_a_request():
    ends = Ends(limits=Limits(backlog_bytes=1000))
    ends.far.ask(1, HOLD)
    ends.far.ask(2, ECHO, "x" * 900)
    ends.far.ask(3, ECHO, "x" * 900)
    size = ends.far.ask(4, ECHO)
    await settle()
    # The one that goes beyond the bound is kept, and nothing after it.
    assert ends.far.connection.unsent_bytes == size
    ends.service.release(1)
    await settle()
    assert ends.far.answered == [1, 2, 3, 4]


# Requests in lanes.


async def test_no_more_requests_are_read_than_may_wait_for_a_lane():
    ends = Ends(limits=Limits(waiting_requests=2))
    ends.peer.allow_concurrency(2)
    sizes = [ends.far.ask(number, HOLD) for number in range(1, 7)]
    await settle()
    assert ends.far.connection.unsent_bytes == sum(sizes[4:])
    for number in range(1, 7):
        ends.service.release(number)
        await settle()
    assert ends.far.answered == [1, 2, 3, 4, 5, 6]


async def test_the_bytes_of_requests_in_lanes_count_whether_they_run_or_wait():
    ends = Ends(limits=Limits(backlog_bytes=1000))
    ends.peer.allow_concurrency(2)
    for number in (1, 2):
        ends.far.ask(number, HOLD, "x" * 600)
    size = ends.far.ask(3, ECHO)
    await settle()
    assert ends.far.connection.unsent_bytes == size
    ends.service.release(2)
    await settle()
    assert ends.far.answered == [2, 3]
    ends.service.release(1)
    await settle()


@given(
    st.lists(st.sampled_from([ECHO, HOLD, STOP]), min_size=1, max_size=25),
    st.integers(1, 3),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_within_any_limits_everything_is_answered_in_the_end(methods, width, waiting, chance):
    async def converse() -> None:
        limits = Limits(waiting_requests=waiting, backlog_messages=waiting, backlog_bytes=200)
        ends = Ends(limits=limits)
        ends.peer.allow_concurrency(width)
        for number, method in enumerate(methods):
            ends.far.ask(number, method, "x" * chance.randrange(150))
        await settle()
        while running := [n for n, held in ends.service.held.items() if not held.done()]:
            ends.service.release(chance.choice(running))
            await settle()
        assert sorted(ends.far.answered) == list(range(len(methods)))

    asyncio.run(converse())


# Answers that the other side does not read.


async def test_a_peer_that_does_not_read_its_answers_gets_no_more_of_them():
    ends = Ends(limits=Limits(unread_answer_bytes=1000))
    ends.far.connection.pause_reading()
    ends.far.ask(1, ECHO, LARGE)
    ends.far.ask(2, ECHO)
    await settle()
    assert ends.service.seen == [1]
    assert ends.service.paused == [True]
    ends.far.connection.resume_reading()
    await settle()
    assert ends.far.answered == [1, 2]
    assert ends.service.paused == [True, False]


async def test_a_request_that_waited_in_a_lane_waits_for_the_reader_as_well():
    ends = Ends(limits=Limits(unread_answer_bytes=1000))
    ends.peer.allow_concurrency(2)
    for number in (1, 2, 3, 4):
        ends.far.ask(number, HOLD)
    await settle()
    ends.far.connection.pause_reading()
    ends.far.ask(5, STOP, LARGE)
    await settle()
    ends.service.release(1)
    await settle()
    # Its place is free, and yet it does not run.
    assert ends.service.seen == [1, 2, 5]
    ends.far.connection.resume_reading()
    await settle()
    assert ends.service.seen == [1, 2, 5, 3]
    for number in (2, 3, 4):
        ends.service.release(number)
        await settle()
    assert ends.far.answered == [5, 1, 2, 3, 4]


async def test_a_client_answers_however_little_is_read():
    ends = Ends(is_strict=False, limits=Limits(unread_answer_bytes=1000))
    ends.far.connection.pause_reading()
    ends.far.ask(1, ECHO, LARGE)
    ends.far.ask(2, ECHO)
    await settle()
    assert ends.service.seen == [1, 2]

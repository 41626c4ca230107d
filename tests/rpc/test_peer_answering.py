"""A peer that answers: in order, in lanes, with errors at the boundary, and when all is lost."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import NotFound
from tests.requirements import requirement
from tests.rpc.both_ends import (
    ECHO,
    HOLD,
    HOLD_STOP,
    NEWS,
    PIECES,
    RAISE,
    STOP,
    Ends,
    Numbered,
    settle,
)

# One request at a time.


async def test_a_request_is_answered_under_its_own_id():
    ends = Ends()
    ends.far.ask(7, ECHO, "hello")
    ends.far.send({"id": "x", "method": ECHO.name, "params": {"number": 8}})
    await settle()
    assert ends.far.received == [
        {"id": 7, "result": {"number": 7, "text": "hello"}},
        {"id": "x", "result": {"number": 8, "text": ""}},
    ]


async def test_nothing_is_looked_at_while_a_request_waits():
    ends = Ends()
    ends.far.ask(1, HOLD)
    ends.far.ask(2, ECHO)
    ends.far.send({"method": "some/news", "params": 3})
    await settle()
    assert ends.service.seen == [1]
    assert not ends.far.received
    ends.service.release(1)
    await settle()
    assert ends.service.seen == [1, 2, ("some/news", 3)]
    assert ends.far.answered == [1, 2]


@given(st.lists(st.booleans(), max_size=20), st.randoms(use_true_random=False))
def test_answers_come_in_the_order_of_their_requests(holds, chance):
    async def converse() -> None:
        ends = Ends()
        for number, is_held in enumerate(holds):
            ends.far.ask(number, HOLD if is_held else ECHO)
            if chance.random() < 0.5:
                await settle()
        for _ in range(len(holds) + 1):
            await settle()
            for number, future in ends.service.held.items():
                if not future.done():
                    ends.service.release(number)
        await settle()
        assert ends.service.seen == ends.far.answered == list(range(len(holds)))

    asyncio.run(converse())


async def test_a_result_in_pieces_is_one_message():
    ends = Ends()
    ends.far.ask(5, PIECES)
    await settle()
    assert ends.far.received == [{"id": 5, "result": {"number": 5}}]


async def test_the_answer_leaves_before_whatever_its_handler_schedules_two_turns_later():
    """process_table relies on it: no event of a process overtakes the answer to its start."""
    ends = Ends()
    ends.far.ask(1, HOLD)
    await settle()
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, ends.peer.notify, NEWS, Numbered(1))
    ends.service.release(1)
    await settle()
    assert [message.get("method", "answer") for message in ends.far.received] == [
        "answer",
        NEWS.name,
    ]


async def test_the_same_holds_in_a_lane():
    ends = Ends()
    ends.peer.allow_concurrency(2)
    for number in (1, 2, 3):
        ends.far.ask(number, HOLD)
    await settle()
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, ends.peer.notify, NEWS, Numbered(1))
    ends.service.release(2)
    await settle()
    assert [message.get("method", "answer") for message in ends.far.received] == [
        "answer",
        NEWS.name,
    ]


# Errors.


@pytest.mark.parametrize(("is_strict", "who"), [(True, "stub"), (False, "client")])
async def test_an_unknown_method_is_an_error_and_no_end(is_strict, who):
    ends = Ends(is_strict=is_strict)
    ends.far.send({"id": 1, "method": "no/such", "params": {}})
    ends.far.ask(2, ECHO)
    await settle()
    text = f"exec-server {who} does not implement `no/such` yet"
    assert ends.far.received[0] == {"id": 1, "error": {"code": -32601, "message": text}}
    assert ends.far.answered == [1, 2]


async def test_what_a_handler_raises_is_told_by_the_boundary(caplog):
    ends = Ends()
    with caplog.at_level(logging.ERROR):
        ends.far.ask(1, RAISE)
        await settle()
    ends.service.error = NotFound("gone")
    ends.far.ask(2, RAISE)
    ends.far.send({"id": 3, "method": ECHO.name, "params": {"number": "x"}})
    ends.far.ask(4, ECHO)
    await settle()
    errors = [message.get("error", {}).get("code") for message in ends.far.received]
    assert errors == [-32603, NotFound.code, -32602, None]
    assert ends.far.received[0]["error"]["message"] == "internal error"
    assert ends.far.received[1]["error"]["message"] == "gone"


async def test_what_a_waiting_handler_raises_is_told_too():
    ends = Ends()
    ends.far.ask(1, HOLD)
    ends.far.ask(2, ECHO)
    await settle()
    ends.service.held[1].set_exception(NotFound("gone"))
    await settle()
    assert ends.far.received[0]["error"] == {"code": NotFound.code, "message": "gone"}
    assert ends.far.answered == [1, 2]


# Lanes.


async def test_requests_of_a_lane_overtake_each_other_up_to_its_width():
    ends = Ends()
    ends.peer.allow_concurrency(2)
    for number in (1, 2, 3):
        ends.far.ask(number, HOLD)
    await settle()
    assert ends.service.seen == [1, 2]
    ends.service.release(2)
    await settle()
    assert ends.service.seen == [1, 2, 3]
    ends.service.release(3)
    ends.service.release(1)
    await settle()
    assert ends.far.answered == [2, 3, 1]


async def test_control_methods_have_a_lane_of_their_own():
    ends = Ends()
    ends.peer.allow_concurrency(2)
    for number in (1, 2, 3):
        ends.far.ask(number, HOLD)
    ends.far.ask(4, STOP)
    await settle()
    assert ends.far.answered == [4]


async def test_a_width_of_one_keeps_the_order():
    ends = Ends()
    ends.peer.allow_concurrency(1)
    ends.far.ask(1, HOLD)
    ends.far.ask(2, STOP)
    await settle()
    assert not ends.far.received


@given(
    st.integers(2, 4),
    st.lists(st.sampled_from([ECHO, HOLD, STOP, HOLD_STOP]), max_size=20),
    st.randoms(use_true_random=False),
)
def test_in_lanes_everything_is_answered_once_and_never_too_much_runs(width, methods, chance):
    async def converse() -> None:
        ends = Ends()
        ends.peer.allow_concurrency(width)
        for number, method in enumerate(methods):
            ends.far.ask(number, method)
        await settle()
        while running := [n for n, held in ends.service.held.items() if not held.done()]:
            for lane in (HOLD, HOLD_STOP):
                assert sum(methods[number] is lane for number in running) <= width
            ends.service.release(chance.choice(running))
            await settle()
        assert sorted(ends.far.answered) == list(range(len(methods)))
        for is_control in (False, True):
            began = [n for n in ends.service.seen if methods[n].is_control is is_control]
            assert began == sorted(began)

    asyncio.run(converse())


# The end.


async def test_a_loss_cancels_what_runs_and_forgets_what_waits():
    ends = Ends()
    ends.far.ask(1, HOLD)
    ends.far.ask(2, ECHO)
    await settle()
    ends.far.connection.abort()
    await settle()
    assert ends.service.held[1].cancelled()
    assert ends.service.seen == [1]
    assert (ends.peer.is_lost, ends.service.times_lost) == (True, 1)


async def test_a_loss_cancels_what_runs_in_lanes_and_what_waits_for_them():
    ends = Ends()
    ends.peer.allow_concurrency(2)
    for number in (1, 2, 3):
        ends.far.ask(number, HOLD)
    await settle()
    ends.far.connection.abort()
    await settle()
    assert all(held.cancelled() for held in ends.service.held.values())
    assert ends.service.seen == [1, 2]


async def test_a_handler_that_ends_after_the_loss_sends_no_answer():
    ends = Ends()
    ends.far.ask(1, HOLD)
    ends.far.ask(2, ECHO)
    await settle()
    # In one turn: the handler is done, and so is the connection.
    ends.service.release(1)
    ends.peer.connection_lost()
    await settle()
    assert not ends.far.received
    assert ends.service.seen == [1]


@requirement("fair:own-faults")
async def test_a_fault_of_our_own_closes_this_connection_alone(caplog, monkeypatch):
    ends, others = Ends(), Ends()
    monkeypatch.setattr(ends.service, "notification_received", lambda *_: 1 / 0)
    with caplog.at_level(logging.ERROR):
        ends.far.send({"method": "test/news", "params": {}})
        ends.far.ask(1, ECHO)
        others.far.ask(2, ECHO)
        await settle()
    assert ends.far.is_lost and not ends.service.seen
    assert others.far.answered == [2]
    assert "could not be handled" in caplog.text

"""A peer that calls the other side, and what it makes of anything else that arrives."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import ConnectionClosed, InvalidRequest, NotFound, RpcError
from exec_server.limits import Limits
from tests.rpc.both_ends import ECHO, HOLD, NEWS, Ends, Numbered, settle

MALFORMED = "failed to parse JSON-RPC message from exec-server memory: "

# Calls.


async def test_a_call_has_the_result_of_the_answer_with_its_id():
    ends = Ends()
    one, two = (ends.peer.call(ECHO, Numbered(number)) for number in (1, 2))
    await settle()
    assert [message["id"] for message in ends.far.received] == [1, 2]
    assert ends.far.received[1] == {
        "id": 2,
        "method": ECHO.name,
        "params": {"number": 2, "text": ""},
    }
    ends.far.send({"id": 2, "result": "second"})
    ends.far.send({"id": 1, "result": "first"})
    assert (await one, await two) == ("first", "second")
    assert ends.peer.calls_under_way == 0


async def test_an_error_is_raised_as_the_exception_of_its_code():
    ends = Ends()
    one, two = (ends.peer.call(ECHO, Numbered(number)) for number in (1, 2))
    ends.far.send({"id": 1, "error": {"code": NotFound.code, "message": "gone"}})
    ends.far.send({"id": 2, "error": {"code": -7, "message": "odd"}})
    with pytest.raises(NotFound, match="gone"):
        await one
    with pytest.raises(RpcError, match="odd") as raised:
        await two
    assert raised.value.code == -7


async def test_a_notification_is_sent_without_an_id():
    ends = Ends()
    ends.peer.notify(NEWS, Numbered(3))
    await settle()
    assert ends.far.received == [{"method": NEWS.name, "params": {"number": 3, "text": ""}}]


async def test_the_answer_to_a_call_does_not_wait_behind_a_request():
    ends = Ends()
    ends.far.ask(1, HOLD)
    await settle()
    call = ends.peer.call(ECHO, Numbered(1))
    ends.far.send({"id": 1, "result": "now"})
    assert await call == "now"
    assert not ends.service.held[1].done()


async def test_a_large_answer_waits_in_line():
    ends = Ends()
    ends.far.ask(1, HOLD)
    await settle()
    call = ends.peer.call(ECHO, Numbered(1))
    ends.far.send({"id": 1, "result": "x" * 64 * 1024})
    await settle()
    assert not call.done()
    ends.service.release(1)
    assert len(await call) == 64 * 1024


async def test_calls_in_flight_are_bounded_but_for_cleanups():
    ends = Ends(limits=Limits(calls_in_flight=1))
    first = ends.peer.call(ECHO, Numbered(1))
    with pytest.raises(InvalidRequest, match="more than 1 calls in flight"):
        await ends.peer.call(ECHO, Numbered(2))
    ends.peer.call(ECHO, Numbered(3), is_cleanup=True).cancel()
    # A call that is given up makes room for another.
    first.cancel()
    await settle()
    ends.peer.call(ECHO, Numbered(4)).cancel()
    await settle()
    assert [message["params"]["number"] for message in ends.far.received] == [1, 3, 4]


# Loss.


async def test_a_loss_fails_every_call_before_the_service_hears_of_it(monkeypatch):
    ends = Ends()
    call = ends.peer.call(ECHO, Numbered(1))
    settled: list[bool] = []
    monkeypatch.setattr(ends.service, "connection_lost", lambda: settled.append(call.done()))
    ends.far.connection.abort()
    with pytest.raises(ConnectionClosed, match="the connection was lost"):
        await call
    assert settled == [True]


async def test_a_call_after_the_loss_fails_at_once():
    ends = Ends()
    ends.peer.close("enough")
    await settle()
    assert ends.peer.is_lost
    call = ends.peer.call(ECHO, Numbered(1))
    assert call.done()
    with pytest.raises(ConnectionClosed, match="the connection is closed"):
        await call


@given(st.lists(st.sampled_from(["call", "answer", "hold", "release", "give up"]), max_size=30))
def test_whenever_it_is_lost_nothing_is_left_waiting(steps):
    async def converse() -> None:
        ends = Ends()
        calls: list[asyncio.Future[object]] = []
        for number, step in enumerate(steps, start=1):
            open_calls = [call for call in calls if not call.done()]
            held = [n for n, future in ends.service.held.items() if not future.done()]
            if step == "call":
                calls.append(ends.peer.call(ECHO, Numbered(number)))
            elif step == "answer" and open_calls:
                ends.far.send({"id": calls.index(open_calls[0]) + 1, "result": None})
            elif step == "give up" and open_calls:
                open_calls[-1].cancel()
            elif step == "hold":
                ends.far.ask(number, HOLD)
            elif step == "release" and held:
                ends.service.release(held[0])
            await settle()
        ends.far.connection.abort()
        await settle()
        assert all(call.done() for call in calls)
        assert all(future.done() for future in ends.service.held.values())
        assert ends.peer.calls_under_way == 0
        assert ends.service.times_lost == 1
        for call in calls:
            # Those that failed say why; reading the error also keeps the loop from complaining.
            if not call.cancelled() and call.exception() is not None:
                assert isinstance(call.exception(), ConnectionClosed)

    asyncio.run(converse())


# Answers to no call.

NEVER_ASKED = [{"id": 1}, {"id": 0}, {"id": -1}, {"id": "x"}]


@pytest.mark.parametrize("answer", NEVER_ASKED)
async def test_a_strict_peer_closes_on_an_answer_it_never_asked_for(answer):
    ends = Ends()
    ends.far.send({**answer, "result": None})
    ends.far.ask(2, ECHO)
    await settle()
    text = f"{MALFORMED}answer to a request that was never made: {answer['id']}"
    assert ends.far.received == [{"id": -1, "error": {"code": -32600, "message": text}}]
    assert ends.far.is_lost
    assert not ends.service.seen


@pytest.mark.parametrize("answer", NEVER_ASKED)
async def test_a_client_ignores_an_answer_it_never_asked_for(answer):
    ends = Ends(is_strict=False)
    ends.far.send({**answer, "result": None})
    ends.far.ask(2, ECHO)
    await settle()
    assert ends.far.answered == [2]


async def test_an_answer_to_a_call_that_was_given_up_or_answered_is_ignored():
    ends = Ends()
    given_up, answered = (ends.peer.call(ECHO, Numbered(number)) for number in (1, 2))
    given_up.cancel()
    for request_id in (1, 2, 2):
        ends.far.send({"id": request_id, "result": request_id})
    assert await answered == 2
    await settle()
    assert not ends.far.is_lost


# Requests to a client.


@pytest.mark.parametrize("request_id", ["x", -1])
async def test_a_client_closes_on_an_id_that_is_no_number(request_id):
    ends = Ends(is_strict=False)
    ends.far.send({"id": request_id, "method": ECHO.name, "params": {"number": 1}})
    await settle()
    assert ends.far.is_lost
    assert not ends.service.seen


async def test_a_client_closes_on_an_id_that_is_still_open():
    ends = Ends(is_strict=False)
    ends.peer.allow_concurrency(4)
    ends.far.ask(1, HOLD)
    ends.far.ask(1, ECHO)
    await settle()
    assert ends.far.is_lost
    assert ends.service.seen == [1]


async def test_an_id_that_was_answered_may_be_used_again():
    ends = Ends(is_strict=False)
    ends.far.ask(1, ECHO)
    ends.far.ask(1, ECHO)
    await settle()
    assert ends.far.answered == [1, 1]


# Notifications and nonsense.


async def test_a_notification_reaches_the_service():
    ends = Ends()
    ends.far.send({"method": "some/news", "params": {"x": 1}})
    ends.far.send({"method": "more/news"})
    await settle()
    assert ends.service.seen == [("some/news", {"x": 1}), ("more/news", None)]


async def test_a_notification_that_the_service_refuses_ends_the_connection():
    ends = Ends()
    ends.service.refuses_notifications = True
    ends.far.send({"method": "no/such"})
    ends.far.ask(1, ECHO)
    await settle()
    [told] = ends.far.received
    assert told["error"]["message"] == f"{MALFORMED}no such notification: no/such"
    assert ends.far.is_lost
    assert not ends.service.seen


async def test_nothing_that_waits_behind_a_violation_is_looked_at():
    ends = Ends()
    ends.service.refuses_notifications = True
    ends.far.ask(1, HOLD)
    ends.far.send({"method": "no/such"})
    ends.far.ask(2, ECHO)
    await settle()
    ends.service.release(1)
    await settle()
    assert ends.far.answered == [1, -1]
    assert ends.service.seen == [1]


async def test_a_strict_peer_answers_what_is_no_message_and_goes_on():
    ends = Ends()
    ends.far.send("nonsense")
    ends.far.ask(1, ECHO)
    await settle()
    assert ends.far.answered == [-1, 1]
    assert ends.far.received[0]["error"]["message"].startswith(MALFORMED)


async def test_a_client_closes_on_what_is_no_message():
    ends = Ends(is_strict=False)
    ends.far.send("nonsense")
    await settle()
    assert ends.far.is_lost
    assert not ends.far.received

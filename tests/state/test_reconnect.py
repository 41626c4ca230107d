"""When a lost connection is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import (
    CallTimeout,
    ConfigurationError,
    ConnectError,
    ConnectionClosed,
    ConnectionRejected,
    InvalidRequest,
    MethodNotFound,
    ProtocolError,
    RpcError,
    SessionAttached,
)
from exec_server.limits import Limits
from exec_server.state.reconnect import Reconnect, is_retryable
from tests.requirements import requirement

RETRYABLE = [
    ConnectionClosed("closed"),
    ConnectError("refused"),
    ConnectionRejected("HTTP 404", status=404),
    CallTimeout("late"),
    SessionAttached("attached"),
    RpcError("JSON-RPC transport closed", code=-32000),
]
FINAL = [
    InvalidRequest("unknown session id x"),
    MethodNotFound("?"),
    ProtocolError("another session"),
    ConfigurationError("no such thing"),
]


@requirement("reconnect/plan:retryable")
@pytest.mark.parametrize("error", RETRYABLE, ids=lambda error: type(error).__name__)
def test_what_may_end_better_is_tried_again(error):
    plan = Reconnect("lost", now=5.0)
    plan.failed(error, now=5.0)
    assert is_retryable(error) and plan.retry_at == 5.1


@requirement("reconnect/plan:retryable")
@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
def test_what_would_end_the_same_is_given_up(error):
    plan = Reconnect("lost", now=5.0)
    plan.failed(error, now=5.0)
    assert not is_retryable(error) and plan.retry_at is None
    assert plan.message.startswith("lost; failed to resume exec-server session: ")


def test_a_refusal_is_told_with_its_code():
    plan = Reconnect("lost", now=0.0)
    plan.failed(InvalidRequest("unknown session id x"), now=0.0)
    assert plan.message.endswith("exec-server rejected request (-32600): unknown session id x")


@requirement("reconnect/plan:immediate")
def test_the_first_attempt_is_immediate():
    assert Reconnect("lost", now=7.0).retry_at == 7.0
    assert Reconnect("lost", now=7.0, connected_at=3.0).retry_at == 7.0


@requirement("reconnect/plan:short-connections")
def test_after_a_very_short_connection_there_is_a_pause():
    assert Reconnect("lost", now=7.0, connected_at=7.0).retry_at == 7.1


@requirement("reconnect/plan:window")
@given(
    begin=st.floats(0, 1e6),
    lasting=st.lists(st.floats(0, 12), max_size=300),
    errors=st.lists(st.sampled_from(RETRYABLE), min_size=300, max_size=300),
)
def test_no_retry_outlives_the_window(begin, lasting, errors):
    plan = Reconnect("lost", now=begin, limits=Limits())
    attempts = 0
    for seconds, error in zip([*lasting, *[0.0] * 300], errors, strict=False):
        if plan.retry_at is None:
            break
        assert plan.retry_at < plan.deadline == begin + 25
        attempts += 1
        ended = plan.retry_at + seconds
        if ended > plan.deadline:
            plan.ran_out()
        else:
            plan.failed(error, now=ended)
    assert plan.retry_at is None and 1 <= attempts <= 251
    assert plan.message.endswith("recovery timed out after 25s")


@requirement("reconnect/plan:window")
def test_a_plan_that_has_run_out_tells_the_last_failure():
    plan = Reconnect("lost", now=0.0, limits=Limits())
    plan.failed(ConnectionClosed("HTTP 401 Unauthorized"), now=1.0)
    plan.ran_out()
    assert plan.message.endswith(": HTTP 401 Unauthorized; recovery timed out after 25s")


@requirement("reconnect/recover-for")
@given(lasting=st.lists(st.floats(0, 12), min_size=200, max_size=200))
def test_a_long_window_is_tried_to_its_end_with_growing_pauses(lasting):
    plan = Reconnect("lost", now=100.0, window=3600.0, limits=Limits())
    now, pauses = 100.0, []
    for seconds in lasting:
        if plan.retry_at is None:
            break
        now = plan.retry_at + seconds
        plan.failed(ConnectionClosed("lost"), now=now)
        if plan.retry_at is not None:
            pauses.append((now - 100.0, plan.retry_at - now))
    assert plan.deadline == 3700.0
    for elapsed, pause in pauses:
        if elapsed <= 25.0:
            assert pause == pytest.approx(0.1)
        else:
            assert 2.5 <= pause + 1e-9 <= 5.0 + 2e-9
    plan.ran_out()
    assert plan.message.endswith("recovery timed out after 3600s")


@requirement("reconnect/plan:dials")
def test_dials_have_short_deadlines_that_grow_and_several_fit_into_the_window():
    plan, dials, now = Reconnect("lost", now=0.0), [], 0.0
    while plan.retry_at is not None:
        # In a network that swallows everything, every dial takes all of its time.
        now = min(plan.retry_at + plan.dial_seconds, plan.deadline)
        dials.append(now - plan.retry_at)
        if now == plan.deadline:
            plan.ran_out()
        else:
            plan.failed(ConnectError("nothing"), now=now)
    assert len(dials) >= 3
    assert dials[0] <= 4
    assert now == 25.0


@requirement("reconnect/taken-over")
def test_a_session_that_another_client_has_is_not_waited_for_long():
    plan = Reconnect("lost", now=0.0, takes_over=True, window=3600.0)
    plan.failed(SessionAttached("held"), now=1.0)
    assert plan.retry_at is not None
    plan.failed(SessionAttached("held"), now=6.0)
    assert plan.retry_at is None
    assert "another client has taken the session over" in plan.message

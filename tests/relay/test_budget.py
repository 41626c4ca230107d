"""Which handshakes count as failed, and the pause after too many of them."""

from __future__ import annotations

import pytest

from exec_server.limits import Limits
from exec_server.relay.effects import Send, StreamOpened, Validate
from exec_server.relay.frame import Data, Handshake, Reset
from exec_server.relay.mux import RESET_REASON, Mux
from tests.relay.ends import (
    STREAM,
    asked,
    connect,
    frame,
    handshake,
    is_alive,
    new_harness,
    new_mux,
    only,
    pair,
    sent,
)
from tests.requirements import requirement

RESET = Send(frame(Reset(RESET_REASON)))
BAD_HANDSHAKE = frame(Handshake(b"x" * 4000), "bad")
DATA = frame(Data(0, b"x" * 40))


def fail(mux: Mux, times: int, *, now: float = 0) -> None:
    for _ in range(times):
        (answer,) = sent(mux.receive(BAD_HANDSHAKE, now=now))
        assert answer.body == Reset(RESET_REASON)


def is_paused(mux: Mux, *, now: float) -> bool:
    """True if a good handshake is refused unread. The state of the mux stays as it is."""
    effects = mux.receive(handshake("probe"), now=now)
    if only(effects, Validate):
        assert mux.receive(frame(Reset("never mind"), "probe"), now=now)
        return False
    return True


@requirement("relay/mux:budget")
def test_the_eighth_failure_starts_a_pause_of_ten_seconds():
    mux, harness = pair()
    fail(mux, 7)
    assert not is_paused(mux, now=0)
    fail(mux, 1, now=62)
    assert is_paused(mux, now=62) and is_paused(mux, now=71.9)
    assert is_alive(mux, harness)
    assert not is_paused(mux, now=72)
    fail(mux, 7, now=72)
    assert not is_paused(mux, now=72)
    fail(mux, 1, now=72)
    assert is_paused(mux, now=72)


def rejected(mux: Mux) -> None:
    mux.settle(asked(mux, new_harness()).ticket, is_valid=False, now=0)


def timed_out(mux: Mux) -> None:
    asked(mux, new_harness(), now=-10)
    mux.expire(now=0)


def knocks_again(mux: Mux) -> None:
    asked(mux, new_harness())
    mux.receive(handshake(), now=0)


def sends_too_early(mux: Mux) -> None:
    asked(mux, new_harness())
    mux.receive(DATA, now=0)


def cannot_be_read(mux: Mux) -> None:
    mux.receive(BAD_HANDSHAKE, now=0)


def is_short(mux: Mux) -> None:
    mux.receive(frame(Handshake(b"x")), now=0)


def talks_too_long(mux: Mux) -> None:
    mux.receive(handshake(authorization="x" * 4097), now=0)


@requirement("relay/mux:budget")
@pytest.mark.parametrize(
    "failure",
    [
        rejected,
        timed_out,
        knocks_again,
        sends_too_early,
        cannot_be_read,
        is_short,
        talks_too_long,
    ],
)
def test_each_kind_of_failure_counts(failure):
    mux = new_mux()
    fail(mux, 7)
    failure(mux)
    assert is_paused(mux, now=0)


def was_called_off(mux: Mux) -> None:
    asked(mux, new_harness())
    mux.receive(frame(Reset("x")), now=0)


def knocks_inside(mux: Mux) -> None:
    connect(mux, new_harness())
    mux.receive(handshake(), now=0)
    mux.close(STREAM)


def is_unknown(mux: Mux) -> None:
    mux.receive(DATA, now=0)


def comes_in(mux: Mux) -> None:
    connect(mux, new_harness())
    mux.close(STREAM)


@requirement("relay/mux:budget")
@pytest.mark.parametrize("harmless", [was_called_off, knocks_inside, is_unknown, comes_in])
def test_nothing_else_counts_or_lowers_the_count(harmless):
    mux = new_mux()
    fail(mux, 7)
    harmless(mux)
    assert not is_paused(mux, now=0)
    fail(mux, 1)
    assert is_paused(mux, now=0)


@requirement("relay/mux:budget")
def test_refusals_for_a_limit_do_not_count():
    mux = new_mux(Limits(relay_validations=1))
    asked(mux, new_harness("a"))
    for _ in range(20):
        mux.receive(handshake("b"), now=0)
    mux.receive(frame(Reset("x"), "a"), now=0)
    assert not is_paused(mux, now=0)


@requirement("relay/mux:budget")
def test_who_waits_during_the_pause_may_still_come_in():
    mux, harness = new_mux(), new_harness()
    question = asked(mux, harness)
    fail(mux, 8)
    # The frame is answered without any work, so the question is not abandoned either.
    assert mux.receive(handshake(), now=0) == [RESET]
    assert only(mux.settle(question.ticket, is_valid=True, now=0), StreamOpened)

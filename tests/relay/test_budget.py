"""Which handshakes count as failed, and the pause of their harness after too many of them."""

from __future__ import annotations

import pytest

from exec_server.limits import Limits
from exec_server.relay.budget import FailureBudgets
from exec_server.relay.effects import StreamOpened, Validate
from exec_server.relay.frame import Data, Handshake, Reset
from exec_server.relay.keys import KeyPair
from exec_server.relay.mux import RESET_REASON, Mux
from tests.relay.ends import (
    HARNESS,
    STRANGER,
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

DATA = frame(Data(0, b"x" * 40))


def fail(mux: Mux, times: int, *, now: float = 0, stream_id: str = STREAM) -> None:
    bad = frame(Handshake(b"x" * 4000), stream_id)
    for _ in range(times):
        (answer,) = sent(mux.receive(bad, now=now))
        assert answer.body == Reset(RESET_REASON)


def is_paused(mux: Mux, *, now: float, stream_id: str = STREAM, key: KeyPair = HARNESS) -> bool:
    """True if a good handshake is refused. The state of the mux stays as it is."""
    effects = mux.receive(handshake(stream_id, key=key), now=now)
    if only(effects, Validate):
        assert mux.receive(frame(Reset("never mind"), stream_id), now=now)
        return False
    return True


@requirement("relay/mux:budget")
def test_the_eighth_failure_starts_a_pause_of_ten_seconds():
    mux, harness = pair(stream_id="open")
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
    mux.receive(frame(Handshake(b"x" * 4000)), now=0)


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
    assert not is_paused(mux, now=0, stream_id="b")


@requirement("relay/mux:budget")
def test_who_waits_during_the_pause_may_still_come_in():
    mux, harness = new_mux(), new_harness()
    question = asked(mux, harness)
    for number in range(8):
        refused = asked(mux, new_harness(f"refused-{number}"))
        mux.settle(refused.ticket, is_valid=False, now=0)
    assert is_paused(mux, now=0, stream_id="another")
    assert only(mux.settle(question.ticket, is_valid=True, now=0), StreamOpened)


# One harness and another.


@requirement("relay/mux:budget-per-harness")
def test_the_failures_of_one_stream_do_not_refuse_another():
    mux = new_mux()
    fail(mux, 20, stream_id="bad")
    assert is_paused(mux, now=0, stream_id="bad", key=STRANGER)
    assert not is_paused(mux, now=0, stream_id="good")


@requirement("relay/mux:budget-per-harness")
def test_a_key_that_is_refused_eight_times_is_paused_on_every_stream():
    mux = new_mux()
    for number in range(8):
        question = asked(mux, new_harness(f"stream-{number}", key=STRANGER))
        mux.settle(question.ticket, is_valid=False, now=0)
    assert is_paused(mux, now=0, stream_id="another", key=STRANGER)
    assert not is_paused(mux, now=0, stream_id="another", key=HARNESS)
    assert not is_paused(mux, now=10, stream_id="another", key=STRANGER)


@requirement("relay/mux:budget-per-harness")
def test_a_flood_of_invented_ids_is_thinned_out_and_is_over_at_once():
    limits = Limits(relay_all_failures=20, relay_all_failures_per_second=10)
    mux, harness = pair(limits, stream_id="open")
    for number in range(1000):
        fail(mux, 1, stream_id=f"flood-{number}")
    assert is_paused(mux, now=0)
    assert is_alive(mux, harness)
    # The next handshake after a tenth of a second is read again.
    assert not is_paused(mux, now=0.11)


@requirement("relay/mux:budget-per-harness")
def test_the_shipped_bound_for_all_is_far_above_that_of_one():
    mux = new_mux()
    for number in range(500):
        fail(mux, 1, stream_id=f"bad-{number}")
    assert not is_paused(mux, now=0)


@requirement("relay/mux:budget-per-harness")
def test_the_memory_for_failures_is_bounded():
    budgets = FailureBudgets(limits=Limits(relay_failing_harnesses=10))
    for number in range(100):
        budgets.fail(f"{number}" * 1000, now=0)
    assert len(budgets._harnesses) == 10

"""Keys that are forgotten a fixed time after they were added."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exec_server.state.expiry import Expiry

# Moments at which a key is added (again) or removed, in the order of a clock.
moves = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcd"), st.booleans()), max_size=30)


@given(moves, st.integers(0, 200))
def test_a_key_goes_one_window_after_it_was_last_put_in(moves, wait):
    expiry: Expiry[str] = Expiry(window=10)
    deadlines: dict[str, float] = {}
    now = 0
    for step, key, is_added in moves:
        now += step
        if is_added:
            expiry.add(key, now=now)
            deadlines[key] = now + 10
        else:
            expiry.discard(key)
            deadlines.pop(key, None)
        assert expiry.next_deadline() == min(deadlines.values(), default=None)
    later = now + wait
    gone = list(expiry.expire(now=later))
    assert set(gone) == {key for key, deadline in deadlines.items() if deadline <= later}
    assert gone == sorted(gone, key=lambda key: deadlines[key])
    assert {key for key in "abcd" if key in expiry} == deadlines.keys() - set(gone)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=30))
def test_windows_may_differ(additions):
    expiry: Expiry[int] = Expiry(window=10)
    deadlines: dict[int, float] = {}
    for key, window in additions:
        expiry.add(key, now=0, window=window)
        deadlines[key] = window
    assert len(expiry) == len(deadlines)
    gone = list(expiry.expire(now=25))
    assert [deadlines[key] for key in gone] == sorted(d for d in deadlines.values() if d <= 25)
    assert expiry.next_deadline() == min((d for d in deadlines.values() if d > 25), default=None)


def test_what_comes_and_goes_leaves_nothing_behind():
    expiry: Expiry[str] = Expiry(window=10)
    for now in range(1000):
        expiry.add("a", now=now)
    assert len(expiry._queue) < 100 and expiry.next_deadline() == 1009


def test_a_deadline_has_come_at_its_very_moment():
    expiry: Expiry[str] = Expiry(window=0.5)
    expiry.add("a", now=1.0)
    assert list(expiry.expire(now=1.4)) == []
    assert expiry.deadline("a") == 1.5
    assert list(expiry.expire(now=1.5)) == ["a"]
    assert expiry.deadline("a") is None
    assert expiry.next_deadline() is None


def test_what_was_taken_out_does_not_expire():
    expiry: Expiry[str] = Expiry(window=1)
    expiry.add("a", now=0)
    expiry.discard("a")
    expiry.discard("never put in")
    assert list(expiry.expire(now=100)) == []

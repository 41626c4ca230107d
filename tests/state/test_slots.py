"""Slots and rates: no sequence of requests gets beyond a limit, and waiting is fair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.state.slots import Slots
from exec_server.state.token_bucket import TokenBucket
from tests.requirements import requirement

NAMES = ("a", "b", "c")


@requirement("floors/quotas:exact")
@given(
    st.integers(1, 6) | st.none(),
    st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3)),
    st.lists(st.tuples(st.sampled_from(("take", "give")), st.sampled_from(NAMES)), max_size=60),
)
def test_no_limit_is_exceeded_and_no_waiter_is_forgotten(total, limits, steps):
    slots: Slots[int] = Slots(total=total)
    held = dict.fromkeys(NAMES, 0)
    waiting: dict[str, list[int]] = {name: [] for name in NAMES}
    for number, (step, name) in enumerate(steps):
        limit = limits.get(name)
        if step == "take":
            if slots.take(name, limit):
                held[name] += 1
                assert not waiting[name]
            else:
                slots.wait(name, limit, number)
                waiting[name].append(number)
        elif held[name]:
            held[name] -= 1
            slots.give_back(name)
            while (found := slots.next_waiter()) is not None:
                whose, waiter = found
                assert waiting[whose].pop(0) == waiter
                held[whose] += 1
        assert {each: slots.taken(each) for each in NAMES} == held
        assert all(held[each] <= limits.get(each, 99) for each in NAMES)
        assert total is None or sum(held.values()) <= total
    for name in NAMES:
        # If something waits, there is a reason.
        assert not waiting[name] or slots.obstacle(name, limits.get(name)) is not None


def test_principals_get_slots_in_turn():
    slots: Slots[str] = Slots(total=1)
    assert slots.take("a", None)
    for waiter in ("a1", "a2"):
        slots.wait("a", None, waiter)
    slots.wait("b", None, "b1")
    order = []
    holder = "a"
    for _ in range(3):
        slots.give_back(holder)
        found = slots.next_waiter()
        assert found is not None
        holder, waiter = found
        order.append(waiter)
    assert order == ["a1", "b1", "a2"]


@requirement("floors/quotas:rate")
@given(
    st.floats(0.1, 100),
    st.lists(st.floats(0, 2), min_size=1, max_size=60),
)
def test_no_time_sees_more_than_its_rate(rate, pauses):
    now, passed = 0.0, []
    bucket = TokenBucket(rate, now=now)
    for pause in pauses:
        now += pause
        wait = bucket.take(now)
        if wait:
            assert bucket.take(now + wait * 0.5) > 0
        else:
            passed.append(now)
    for first, start in enumerate(passed):
        for last in range(first, len(passed)):
            allowed = max(1.0, rate) + (passed[last] - start) * rate
            assert last - first + 1 <= allowed + 1e-6


def test_a_refused_request_may_come_after_the_time_it_is_told():
    bucket = TokenBucket(2.0, now=10.0)
    assert [bucket.take(10.0) for _ in range(2)] == [0.0, 0.0]
    wait = bucket.take(10.0)
    assert wait == pytest.approx(0.5)
    assert bucket.take(10.0 + wait) == 0.0
    # A clock that goes back gives nothing.
    assert bucket.take(5.0) > 0
    with pytest.raises(ValueError, match="rate"):
        TokenBucket(0.0, now=0.0)

"""A lane: a bound on what runs, and first come, first served."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exec_server.rpc.lanes import Lane


def test_what_does_not_fit_waits_in_order():
    lane: Lane[str] = Lane(1)
    assert lane.enter("a")
    assert not lane.enter("b")
    assert not lane.enter("c")
    assert lane.waiting == 2
    assert (lane.leave(), lane.leave(), lane.leave()) == ("b", "c", None)
    assert lane.enter("d")


@given(width=st.integers(1, 5), entering=st.lists(st.booleans(), max_size=60))
def test_never_more_than_the_width_run_and_all_run_in_order(width, entering):
    lane: Lane[int] = Lane(width)
    began: list[int] = []
    running = entered = 0
    for enters in entering:
        if enters:
            if lane.enter(entered):
                began.append(entered)
                running += 1
            entered += 1
        elif running:
            job = lane.leave()
            if job is None:
                running -= 1
            else:
                began.append(job)
        assert running <= width
        assert len(began) + lane.waiting == entered
        # Nothing waits while there is room.
        assert not lane.waiting or running == width
    assert began == list(range(len(began)))

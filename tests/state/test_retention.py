"""One bound over the output of all processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.state.output_log import OutputLog
from exec_server.state.retention import RetentionBudget
from exec_server.state.window import CHUNK_COST
from tests.requirements import requirement

TOTAL = 80_000
CHUNK = b"x" * (1000 - CHUNK_COST)


def logs_of(budget: RetentionBudget, count: int, *, chunks: int = 0) -> list[OutputLog]:
    logs = [OutputLog(max_bytes=1 << 20, max_chunks=1000, budget=budget) for _ in range(count)]
    for log in logs:
        log.begin()
        for _ in range(chunks):
            log.append("stdout", CHUNK)
    return logs


@requirement("memory:plateau")
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["write", "write", "write", "end", "clear"])),
        max_size=200,
    )
)
def test_all_logs_together_stay_within_the_bound(happened):
    budget = RetentionBudget(total_bytes=9000, min_share=1000)
    logs = logs_of(budget, 6)
    gone = set()
    for number, what in happened:
        log = logs[number]
        if number in gone:
            continue
        if what == "write":
            log.append("stdout", CHUNK)
        elif what == "end":
            log.end()
        else:
            log.clear()
            gone.add(number)
        assert budget.used == sum(each.retained_cost for each in logs) <= 9000


@requirement("memory:fair")
def test_every_process_keeps_a_share_and_ended_ones_give_way_first():
    budget = RetentionBudget(total_bytes=TOTAL)
    old, young, running = logs_of(budget, 3, chunks=25)
    old.end()
    young.end()
    assert [log.retained_cost for log in (old, young, running)] == [25_000] * 3
    for _ in range(6):
        running.append("stdout", CHUNK)
    # A share is a third of seven eighths.
    assert [log.retained_cost for log in (old, young, running)] == [23_000] * 3
    page = old.after(0)
    assert page.dropped_bytes == 2 * len(CHUNK) and page.chunks[-1].seq == 25


@requirement("memory:fair")
def test_the_processes_that_ended_first_lose_everything_when_shares_are_too_small():
    budget = RetentionBudget(total_bytes=TOTAL, min_share=1000)
    ended = logs_of(budget, 79, chunks=1)
    for log in ended:
        log.end()
    (running,) = logs_of(budget, 1, chunks=2)
    assert [log.retained_cost for log in ended[:9]] == [0] * 9
    assert ended[-1].retained_cost == 1000 and running.retained_cost >= 1000


@requirement("memory:plateau")
def test_output_that_is_not_acknowledged_is_kept_and_not_looked_for_at_every_chunk():
    budget = RetentionBudget(total_bytes=TOTAL)
    (log,) = logs_of(budget, 1)
    log.window = 1 << 20
    for _ in range(100):
        log.append("stdout", CHUNK)
    assert log.retained_cost == 100_000 and budget.limit > budget.used
    log.acknowledge(100)
    log.end()
    (other,) = logs_of(budget, 1, chunks=1)
    budget.make_room()
    assert budget.used <= TOTAL == budget.limit and other.retained_cost == 1000


@requirement("memory:acknowledged")
@pytest.mark.parametrize("acknowledged", [0, 3, 5])
def test_what_was_acknowledged_can_be_forgotten(acknowledged):
    budget = RetentionBudget(total_bytes=TOTAL)
    (log,) = logs_of(budget, 1)
    log.window = 1 << 20
    for _ in range(5):
        log.append("stdout", CHUNK)
    log.acknowledge(acknowledged)
    log.forget_acknowledged()
    page = log.after(acknowledged)
    assert len(page.chunks) == 5 - acknowledged and page.dropped_bytes is None
    assert budget.used == log.retained_cost == 1000 * (5 - acknowledged)

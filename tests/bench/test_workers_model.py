"""What workers would bring, computed from costs."""

from __future__ import annotations

import pytest

from bench.workers_model import Machine, lines, throughput, wait

MACHINE = Machine(
    cores=16,
    clients=64,
    call=(4e-6, 6e-6),
    megabyte=(0.001, 0.001),
    alone=100e-6,
    beside_one=350e-6,
    worker_bytes=20_000_000,
)


@pytest.mark.parametrize(
    ("workers", "remote", "calls"),
    [
        (1, False, 250_000),
        # The clients take the rest of the cores.
        (8, False, 1_600_000),
        (16, False, 1_600_000),
        (8, True, 2_000_000),
        (16, True, 4_000_000),
    ],
)
def test_workers_and_cores_bound_the_throughput(workers, remote, calls):
    assert throughput(MACHINE, MACHINE.call, workers, remote=remote) == pytest.approx(calls)


def test_clients_bound_the_throughput():
    few = MACHINE._replace(clients=2)
    assert throughput(few, few.call, 16, remote=True) == pytest.approx(2 / 6e-6)


def test_a_call_waits_for_each_flood_in_its_loop():
    assert wait(MACHINE, 1) == pytest.approx(100e-6 + 64 * 250e-6)
    assert wait(MACHINE, 16) == pytest.approx(100e-6 + 4 * 250e-6)
    assert wait(MACHINE._replace(beside_one=50e-6), 1) == MACHINE.alone


def test_there_is_a_line_for_each_number_of_workers_that_has_its_cores():
    head, titles, *rows = lines(MACHINE._replace(cores=4))
    assert "4 cores" in head
    assert "memory" in titles
    assert [int(row.split()[0]) for row in rows] == [1, 2, 4]

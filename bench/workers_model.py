"""What several workers would bring on a machine that is not here, computed from measured costs.

A worker is one event loop, so it has at most one core. Clients that flood keep a core each if they
run on the same machine, and none if they run elsewhere. Nothing is taken off for what workers
would have to share, so every number is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_WORKERS = (1, 2, 4, 8, 16)


class Machine(NamedTuple):
    """A machine, and what was measured; costs are seconds of one core, of server and client."""

    cores: int
    clients: int
    call: tuple[float, float]
    megabyte: tuple[float, float]
    # The p99 of a small call without a flood in its loop, and with one.
    alone: float
    beside_one: float
    # Private memory of a worker with its keeper.
    worker_bytes: int


def throughput(machine: Machine, cost: tuple[float, float], workers: int, *, remote: bool) -> float:
    """How much a second: bound by the workers, by the cores, and by what clients can take."""
    server, client = cost
    shared = server if remote else server + client
    return min(workers / server, machine.cores / shared, machine.clients / client)


def wait(machine: Machine, workers: int) -> float:
    """The p99 of a small call if the floods are spread evenly: one turn for each in its loop."""
    turn = max(0.0, machine.beside_one - machine.alone)
    return machine.alone + turn * machine.clients / workers


def lines(machine: Machine) -> Iterator[str]:
    """The table as text."""
    yield f"computed: {machine.cores} cores, {machine.clients} flooding clients; upper bounds"
    yield (
        f"{'workers':>8}{'calls/s':>12}{'MB/s':>9}{'clients elsewhere':>20}{'MB/s':>9}"
        f"{'a call, p99':>14}{'memory':>10}"
    )
    for workers in (count for count in _WORKERS if count <= machine.cores):
        here, there = (
            [
                throughput(machine, cost, workers, remote=remote)
                for cost in (machine.call, machine.megabyte)
            ]
            for remote in (False, True)
        )
        yield (
            f"{workers:8}{here[0]:12,.0f}{here[1]:9,.0f}{there[0]:18,.0f}/s{there[1]:9,.0f}"
            f"{wait(machine, workers) * 1e3:11.2f} ms{machine.worker_bytes * workers / 1e6:7.0f} MB"
        )

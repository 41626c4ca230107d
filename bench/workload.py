"""What a workload is: a function from a server and a scale to figures in base units."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from bench.servers import Server

# By the metric's name: seconds, bytes, or how many a second. `catalogue` says which.
Figures = dict[str, float]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class Scale(NamedTuple):
    """How much of each workload's full size to do, and where to put files."""

    factor: float
    scratch: Path

    def count(self, full: int, *, least: int = 5) -> int:
        return max(least, int(full * self.factor))

    def seconds(self, full: float) -> float:
        return max(0.05, full * self.factor)

    def bytes(self, full: int) -> int:
        return self.count(full, least=64 * KIB)


Run = Callable[[Server, Scale], Figures]


class Workload(NamedTuple):
    name: str
    run: Run
    # shared: with other workloads; fresh: its own each time, which has run one command; cold:
    # its own, as it has started; durable: its own with a state directory, if it can have one.
    server: Literal["shared", "fresh", "cold", "durable"]
    # Memory hardly differs from round to round, and some of these take long.
    most_rounds: int | None
    # Without it the other figures mean nothing.
    is_vital: bool


def workload(
    *,
    server: Literal["shared", "fresh", "cold", "durable"] = "shared",
    most_rounds: int | None = None,
    is_vital: bool = False,
) -> Callable[[Run], Workload]:
    """Make a workload of a function, under the function's name."""

    def make(run: Run) -> Workload:
        return Workload(run.__name__, run, server, most_rounds, is_vital)

    return make

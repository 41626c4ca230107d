"""What a run found, as it is kept in JSON, and the comparisons that follow from it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from bench.catalogue import Row, Target
from bench.floors import FLOOR, FLOORS, KERNEL

# One figure a round; None where the round failed.
Series = list[float | None]
# By workload, metric and server.
Section = dict[str, dict[str, dict[str, Series]]]


class Results(msgspec.Struct, kw_only=True):
    baseline: str
    subject: str
    # What is known of each server, by its name.
    servers: dict[str, str]
    command: str
    rounds: int
    scale: float
    machine: dict[str, str]
    sections: dict[str, Section] = {}
    # The load average at the beginning of each single measurement.
    loads: list[float] = []
    errors: list[str] = []

    def series(self, section: str, row: Row, server: str) -> Series:
        found = self.sections.get(section, {}).get(row.workload, {}).get(row.metric, {})
        return found.get(server, [])

    def add(
        self, section: str, workload: str, server: str, figures: dict[str, float], *, at: int
    ) -> None:
        """Note the figures of round *at*, counted from 0; rounds left out have failed."""
        by_metric = self.sections.setdefault(section, {}).setdefault(workload, {})
        for metric, figure in figures.items():
            series = by_metric.setdefault(metric, {}).setdefault(server, [])
            series.extend([None] * (at - len(series)))
            series.append(figure)


class Comparison(NamedTuple):
    """How many times better one server is: by medians, and in its worst and best round."""

    ratio: float
    lowest: float
    highest: float


def median(series: Sequence[float | None]) -> float | None:
    figures = [figure for figure in series if figure is not None]
    return statistics.median(figures) if figures else None


def compare(
    baseline: Series, subject: Series, *, higher_is_better: bool | None
) -> Comparison | None:
    """Above 1 means that *subject* is better; None when the two cannot be compared."""
    if higher_is_better is None:
        return None
    base, ours = median(baseline), median(subject)
    if not base or not ours:
        return None
    better, worse = (subject, baseline) if higher_is_better else (baseline, subject)
    rounds = [a / b for a, b in zip(better, worse, strict=False) if a and b]
    ratio = ours / base if higher_is_better else base / ours
    return Comparison(ratio, min(rounds, default=ratio), max(rounds, default=ratio))


class Finding(NamedTuple):
    """One row of one section: what was measured, and how it compares."""

    row: Row
    figures: dict[str, float | None]
    comparison: Comparison | None
    target: Target | None
    # None when there is no target, or nothing to hold against it.
    is_met: bool | None
    # The floors that were measured, and how many times better than the baseline each of them is.
    floors: dict[str, float]
    # How many times the floor our figure is; above 1 is worse.
    above: float | None = None
    # The floor that misses the target as well: the kernel's if both do. Empty if none does.
    beyond: str = ""

    @property
    def floor(self) -> float | None:
        """How many times better than the baseline the floor is: with our libraries if known."""
        return self.floors.get(FLOOR, self.floors.get(KERNEL))


def find(results: Results, section: str, row: Row) -> Finding | None:
    """What the run says of *row*; None when it was not measured."""
    series = {name: results.series(section, row, name) for name in results.servers}
    figures = {name: median(values) for name, values in series.items()}
    if all(figure is None for figure in figures.values()):
        return None
    target, ours = row.targets.get(section), figures[results.subject]

    def against(name: str, server: str) -> Comparison | None:
        better = row.unit.higher_is_better
        return compare(series.get(name, []), series.get(server, []), higher_is_better=better)

    comparison = None
    if results.baseline != results.subject:
        comparison = against(results.baseline, results.subject)
    floors = {name: found.ratio for name in FLOORS if (found := against(results.baseline, name))}
    nearest = against(results.subject, FLOOR) or against(results.subject, KERNEL)
    above = nearest and nearest.ratio
    is_met = _is_met(target, comparison, ours, above)
    beyond = ""
    if is_met is False and target is not None:
        beyond = next((name for name in FLOORS if _misses(target, floors, figures, name)), "")
    return Finding(row, figures, comparison, target, is_met, floors, above, beyond)


def _is_met(
    target: Target | None,
    comparison: Comparison | None,
    figure: float | None,
    above: float | None,
) -> bool | None:
    if target is None:
        return None
    if target.ratio is not None:
        if above is not None and target.above_floor is not None and above <= target.above_floor:
            return True
        return None if comparison is None else comparison.ratio >= target.ratio
    assert target.figure is not None
    return None if figure is None else figure <= target.figure


def _misses(
    target: Target, floors: dict[str, float], figures: dict[str, float | None], name: str
) -> bool:
    """True if the floor of that name was measured and misses *target*, too."""
    if target.ratio is not None:
        return target.above_floor is None and name in floors and floors[name] < target.ratio
    assert target.figure is not None
    figure = figures.get(name)
    return figure is not None and figure > target.figure

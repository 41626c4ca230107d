"""What a run found, as it is kept in JSON, and the comparisons that follow from it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from bench.catalogue import Row, Target
from bench.floors import FLOOR

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
    # How many times better than the baseline the floor is, if it was measured.
    floor: float | None = None


def find(results: Results, section: str, row: Row) -> Finding | None:
    """What the run says of *row*; None when it was not measured."""
    series = {name: results.series(section, row, name) for name in results.servers}
    figures = {name: median(values) for name, values in series.items()}
    if all(figure is None for figure in figures.values()):
        return None
    comparison = compare(
        series[results.baseline],
        series[results.subject],
        higher_is_better=row.unit.higher_is_better,
    )
    if results.baseline == results.subject:
        comparison = None
    target = row.targets.get(section)
    is_met = _is_met(target, comparison, figures[results.subject])
    floor = compare(
        series[results.baseline],
        series.get(FLOOR, []),
        higher_is_better=row.unit.higher_is_better,
    )
    return Finding(row, figures, comparison, target, is_met, floor and floor.ratio)


def _is_met(
    target: Target | None, comparison: Comparison | None, figure: float | None
) -> bool | None:
    if target is None:
        return None
    if target.ratio is not None:
        return None if comparison is None else comparison.ratio >= target.ratio
    assert target.figure is not None
    return None if figure is None else figure <= target.figure

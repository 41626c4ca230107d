"""Metrics, and their text format for Prometheus. The server and the registry share them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The upper bounds in seconds that OpenTelemetry recommends for requests.
DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

Labels = tuple[tuple[str, str], ...]


class Metric(msgspec.Struct, frozen=True):
    """A number, or one number for each set of labels. An `info` has value 1 and only labels."""

    name: str
    kind: Literal["gauge", "counter", "info"]
    help: str
    value: float = 0.0
    # One value for each set of labels, instead of *value*.
    parts: Mapping[Labels, float] | None = None

    @property
    def points(self) -> Mapping[Labels, float]:
        return {(): self.value} if self.parts is None else self.parts


class Durations:
    """A histogram of durations for each value of one label."""

    def __init__(self, name: str, help: str, *, label: str) -> None:
        self._name = name
        self._help = help
        self._label = label
        self._histograms: dict[str, _DurationHistogram] = {}

    def add(self, value: str, seconds: float) -> None:
        """Count a duration under the *value* of the label."""
        self._histograms.setdefault(value, _DurationHistogram()).add(seconds)

    def lines(self, prefix: str) -> list[str]:
        name = prefix + self._name
        lines = _head(name, "histogram", self._help)
        for value, histogram in sorted(self._histograms.items()):
            lines += histogram.lines(name, (self._label, value))
        return lines


class _DurationHistogram:
    def __init__(self) -> None:
        self._counts = [0] * (len(DURATION_BOUNDS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(DURATION_BOUNDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, label: tuple[str, str]) -> Iterator[str]:
        so_far = 0
        bounds = [*(f"{bound:g}" for bound in DURATION_BOUNDS), "+Inf"]
        for bound, count in zip(bounds, self._counts, strict=True):
            so_far += count
            yield _sample(f"{name}_bucket", (label, ("le", bound)), so_far)
        yield _sample(f"{name}_sum", (label,), self._sum)
        yield _sample(f"{name}_count", (label,), so_far)


def exposition(found: Sequence[Metric], durations: Durations, *, prefix: str) -> str:
    """The text of a scrape. All names begin with *prefix*."""
    lines = []
    for each in found:
        name = prefix + each.name
        lines += _head(name, "gauge" if each.kind == "info" else each.kind, each.help)
        lines += [_sample(name, labels, value) for labels, value in sorted(each.points.items())]
    return "\n".join([*lines, *durations.lines(prefix), ""])


def _head(name: str, kind: str, text: str) -> list[str]:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return [f"# HELP {name} {escaped}", f"# TYPE {name} {kind}"]


def _sample(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    # All digits are shown, because a rounded counter would seem to stand still.
    number = repr(value) if value % 1 else str(int(value))
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

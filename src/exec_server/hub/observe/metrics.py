"""Metrics of a registry, and their text format for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The upper bounds in seconds that OpenTelemetry recommends for requests.
DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_PREFIX = "exec_server_registry_"

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


class Requests:
    """Counts requests: how many were answered, how fast, and why they were refused."""

    def __init__(self) -> None:
        self._answered: defaultdict[Labels, int] = defaultdict(int)
        self._refused: defaultdict[Labels, int] = defaultdict(int)
        self._durations: dict[str, _Histogram] = {}

    def answered(
        self, operation: str, status: int, *, seconds: float, role: str = "", reason: str = ""
    ) -> None:
        """Count a request. *role* is that of a socket, *reason* the code of a refusal."""
        what = ("operation", operation)
        self._answered[what, ("status", f"{status // 100}xx")] += 1
        if reason:
            self._refused[what, ("role", role), ("reason", reason)] += 1
        self._durations.setdefault(operation, _Histogram()).add(seconds)

    def metrics(self) -> list[Metric]:
        return [
            Metric(
                "requests_total",
                "counter",
                "Requests that were answered.",
                parts=dict(self._answered),
            ),
            Metric(
                "refusals_total",
                "counter",
                "Requests and sockets that were refused, by reason.",
                parts=dict(self._refused),
            ),
        ]

    def durations(self) -> list[str]:
        """The lines of the histogram of durations."""
        name = f"{_PREFIX}request_seconds"
        lines = _head(name, "histogram", "Time to the answer; of a socket, to its upgrade.")
        for operation, histogram in sorted(self._durations.items()):
            lines += histogram.lines(name, ("operation", operation))
        return lines


class _Histogram:
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


def exposition(found: Sequence[Metric], requests: Requests) -> str:
    lines = []
    for each in found:
        name = _PREFIX + each.name
        lines += _head(name, "gauge" if each.kind == "info" else each.kind, each.help)
        lines += [_sample(name, labels, value) for labels, value in sorted(each.points.items())]
    return "\n".join([*lines, *requests.durations(), ""])


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

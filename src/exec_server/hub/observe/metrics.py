"""Counts the requests of a registry, and the text of a scrape of its metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from exec_server import prometheus
from exec_server.prometheus import Durations, Labels, Metric

_PREFIX = "exec_server_registry_"


class Requests:
    """Counts requests: how many were answered, how fast, and why they were refused."""

    def __init__(self) -> None:
        self._answered: defaultdict[Labels, int] = defaultdict(int)
        self._refused: defaultdict[Labels, int] = defaultdict(int)
        self.durations = Durations(
            "request_seconds", "Time to the answer; of a socket, to its upgrade.", label="operation"
        )

    def answered(
        self, operation: str, status: int, *, seconds: float, role: str = "", reason: str = ""
    ) -> None:
        """Count a request. *role* is that of a socket, *reason* the code of a refusal."""
        what = ("operation", operation)
        self._answered[what, ("status", f"{status // 100}xx")] += 1
        if reason:
            self._refused[what, ("role", role), ("reason", reason)] += 1
        self.durations.add(operation, seconds)

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


def exposition(found: Sequence[Metric], requests: Requests) -> str:
    return prometheus.exposition(found, requests.durations, prefix=_PREFIX)

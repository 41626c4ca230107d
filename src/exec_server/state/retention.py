"""One bound over the output that all processes of a server retain together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

# While the bound cannot be kept, because clients have not acknowledged what fills it, the logs are
# looked at again only after this much more output.
_RETRY_BYTES = 16 << 20


class RetainedLog(Protocol):
    """The output of one process."""

    def trim(self, max_cost: int) -> None:
        """Discard the oldest output until *max_cost* is left, except what is unacknowledged."""


class RetentionBudget:
    """What the logs of all processes cost together, and which of them give way.

    If they cost more than *total_bytes*, every log is cut down to an equal share, which is at least
    *min_share*: first those of ended processes, the oldest first, and then those of running ones.
    If that is not enough, ended processes lose all of their output, the oldest first.
    """

    __slots__ = ("_ended", "_min_share", "_running", "_total", "limit", "used")

    def __init__(self, *, total_bytes: int, min_share: int = 0) -> None:
        self._total = total_bytes
        self._min_share = min_share
        # Both are in the order of arrival.
        self._running: dict[RetainedLog, None] = {}
        self._ended: dict[RetainedLog, None] = {}
        # The logs keep this number up to date, and call `make_room` when it exceeds `limit`.
        self.used = 0
        self.limit = total_bytes

    def __len__(self) -> int:
        """The number of logs."""
        return len(self._running) + len(self._ended)

    def join(self, log: RetainedLog) -> None:
        self._running[log] = None

    def end(self, log: RetainedLog) -> None:
        """The process of *log* has ended."""
        if log in self._running:
            del self._running[log]
            self._ended[log] = None

    def leave(self, log: RetainedLog) -> None:
        """*log* is empty and stays so."""
        self._running.pop(log, None)
        self._ended.pop(log, None)

    def make_room(self) -> None:
        """Cut the logs down until an eighth of the budget is free, if they can be."""
        goal = self._total - self._total // 8
        share = max(self._min_share, goal // max(1, len(self)))
        self._trim(self._ended, share, goal)
        self._trim(self._running, share, goal)
        self._trim(self._ended, 0, goal)
        self.limit = max(self._total, self.used + _RETRY_BYTES if self.used > self._total else 0)

    def _trim(self, logs: Iterable[RetainedLog], max_cost: int, goal: int) -> None:
        for log in logs:
            if self.used <= goal:
                return
            log.trim(max_cost)

"""Limits on failed handshakes: one for each harness, and one for all of them together."""

from __future__ import annotations

from collections.abc import Hashable

from exec_server.limits import DEFAULT_LIMITS, Limits


class FailureBudget:
    """The failed handshakes of one harness.

    The count is not lowered by time or by success, only at the end of the pause.
    """

    __slots__ = ("_failures", "_limits", "_paused_until")

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._failures = 0
        self._paused_until: float | None = None

    def is_spent(self, *, now: float) -> bool:
        """True while the pause lasts."""
        if self._paused_until is not None and now >= self._paused_until:
            self._paused_until = None
            self._failures = 0
        return self._paused_until is not None

    def fail(self, *, now: float) -> None:
        """Count one failed handshake; the last one that is allowed begins the pause."""
        if self.is_spent(now=now):
            return
        self._failures += 1
        if self._failures >= self._limits.relay_failures:
            self._paused_until = now + self._limits.relay_failure_pause


class FailureBudgets:
    """The failed handshakes of one physical connection, by the harness that sent them.

    A harness is known by its stream id until its handshake is decrypted, then also by its key. So
    the failures of one harness do not refuse another one. A harness can invent ids and keys, so
    there is also a bound for all together, which limits the computing time for a flood. It is
    refilled all the time and never becomes a pause for everyone.
    """

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        # The harness that failed last is the last one. The first one is forgotten first.
        # The keys are hashes, because a harness may choose a long stream id.
        self._harnesses: dict[int, FailureBudget] = {}
        self._allowed = float(limits.relay_all_failures)
        self._refilled_at: float | None = None

    def is_flooded(self, *, now: float) -> bool:
        """True if all harnesses together have failed too often just now."""
        self._refill(now)
        return self._allowed < 1

    def is_spent(self, harness: Hashable, *, now: float) -> bool:
        """True while the pause of *harness* lasts."""
        budget = self._harnesses.get(hash(harness))
        return budget is not None and budget.is_spent(now=now)

    def fail(self, *known_as: Hashable, now: float) -> None:
        """Count one failed handshake of a harness that is *known_as* a stream id or a key."""
        self._refill(now)
        self._allowed = max(self._allowed - 1, 0.0)
        for harness in map(hash, known_as):
            budget = self._harnesses.pop(harness, None) or FailureBudget(limits=self._limits)
            budget.fail(now=now)
            self._harnesses[harness] = budget
        while len(self._harnesses) > self._limits.relay_failing_harnesses:
            del self._harnesses[next(iter(self._harnesses))]

    def _refill(self, now: float) -> None:
        since = 0.0 if self._refilled_at is None else now - self._refilled_at
        self._refilled_at = now
        refilled = self._allowed + max(since, 0.0) * self._limits.relay_all_failures_per_second
        self._allowed = min(refilled, float(self._limits.relay_all_failures))

"""A limit on failed handshakes; once it is reached, none is read for a while."""

from __future__ import annotations

from exec_server.limits import DEFAULT_LIMITS, Limits


class FailureBudget:
    """The failed handshakes of one physical connection.

    The count is not lowered by time or by success, only at the end of the pause.
    """

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

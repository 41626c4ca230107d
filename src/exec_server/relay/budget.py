"""How many handshakes may fail before none is looked at for a while."""

from __future__ import annotations

from exec_server.limits import DEFAULT_LIMITS, Limits


class FailureBudget:
    """The failed handshakes of one physical connection.

    Neither time nor success lowers the count; only the pause that it leads to does.
    """

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._failures = 0
        self._paused_until: float | None = None

    def is_spent(self, *, now: float) -> bool:
        """Whether the pause after the last failure is still on."""
        if self._paused_until is not None and now >= self._paused_until:
            self._paused_until = None
            self._failures = 0
        return self._paused_until is not None

    def fail(self, *, now: float) -> None:
        if self.is_spent(now=now):
            return
        self._failures += 1
        if self._failures >= self._limits.relay_failures:
            self._paused_until = now + self._limits.relay_failure_pause

"""After a loss: retry at a time, or give up."""

from __future__ import annotations

from exec_server.errors import (
    CallTimeout,
    ConnectionClosed,
    ExecServerError,
    RegistryError,
    RpcError,
    SessionAttached,
)
from exec_server.limits import DEFAULT_LIMITS, Limits

# How a server tells that the connection behind it has gone.
_TRANSPORT_CLOSED = -32000


class Reconnect:
    """The attempts to resume one session after one loss.

    The first one is due at once, unless the connection was a very short one, and the next ones a
    pause after each failure: a constant one for the usual window, a growing one after it. No
    attempt begins after `deadline`, and none may run past it: the server forgets the session soon
    after.
    """

    def __init__(
        self,
        cause: str,
        *,
        now: float,
        connected_at: float = float("-inf"),
        window: float | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """The connection was lost *now*, because of *cause*; *window* is how long is tried."""
        self._window = limits.recovery_window if window is None else window
        self._begin = now
        self.deadline = now + self._window
        # When the next attempt is due; None when there will be none. A server that hangs up on
        # everybody is not asked again and again without a pause.
        self.retry_at: float | None = max(now, connected_at + limits.recovery_pause)
        self._cause = cause
        self._limits = limits
        self._last_error = ""

    def failed(self, error: ExecServerError, *, now: float) -> None:
        """An attempt has ended with *error*."""
        if not is_retryable(error):
            self.retry_at = None
            self._last_error = describe(error)
        elif now + (pause := self._pause(now)) < self.deadline:
            self.retry_at = now + pause
        else:
            self.ran_out()

    def _pause(self, now: float) -> float:
        elapsed = now - self._begin
        if elapsed <= self._limits.recovery_window:
            return self._limits.recovery_pause
        grown = min(elapsed / 10, self._limits.recovery_max_pause)
        return max(self._limits.recovery_pause, grown)

    def ran_out(self) -> None:
        """The deadline has come while an attempt was under way."""
        self.retry_at = None
        self._last_error = f"recovery timed out after {self._window:g}s"

    @property
    def message(self) -> str:
        """What everybody is told once it is given up."""
        return f"{self._cause}; failed to resume exec-server session: {self._last_error}"


def is_retryable(error: ExecServerError) -> bool:
    """Whether another attempt to resume may end better."""
    if isinstance(error, RpcError):
        return isinstance(error, SessionAttached) or error.code == _TRANSPORT_CLOSED
    if isinstance(error, RegistryError):
        # What may get better comes as a ConnectError.
        return False
    # A refusal by HTTP counts as no connection: what is in front of a server comes and goes, too.
    return isinstance(error, ConnectionClosed | CallTimeout)


def describe(error: ExecServerError) -> str:
    """An error of an attempt in words."""
    if isinstance(error, RpcError):
        return f"exec-server rejected request ({error.code}): {error.message}"
    return str(error)

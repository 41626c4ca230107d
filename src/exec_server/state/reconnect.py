"""When to try again after a lost connection, and when to give up."""

from __future__ import annotations

from exec_server.errors import (
    CallTimeout,
    ConnectionClosed,
    ExecServerError,
    InvalidRequest,
    RegistryError,
    RpcError,
    SessionAttached,
)
from exec_server.limits import DEFAULT_LIMITS, Limits

# The code by which a server says that the connection behind it has gone.
_TRANSPORT_CLOSED = -32000


class Reconnect:
    """The attempts to resume one session after one loss.

    The first attempt is due at once, unless the connection was a very short one. Each next attempt
    is due a pause after a failure: the pause is constant for the usual window and grows after it.
    No attempt begins after `deadline`, and none may run past it: the server forgets the session
    soon after.
    """

    def __init__(
        self,
        cause: str,
        *,
        now: float,
        connected_at: float = float("-inf"),
        window: float | None = None,
        takes_over: bool = False,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """The connection was lost *now* because of *cause*; attempts last *window* seconds.

        With *takes_over* the session cannot be attached to the lost connection any more: if it is
        attached, then another client has it.
        """
        self._window = limits.recovery_window if window is None else window
        self._begin = now
        self.deadline = now + self._window
        # The time of the next attempt; None when there will be none. After a very short connection
        # there is a pause, so that a server which closes every connection is not asked without end.
        self.retry_at: float | None = max(now, connected_at + limits.recovery_pause)
        # The deadline for the dial of the next attempt. A short one finds a network that works
        # again sooner; a slow network needs a longer one.
        self.dial_seconds = limits.recovery_dial
        self._cause = cause
        self._takes_over = takes_over
        self._refused_at: float | None = None
        self._limits = limits
        self._last_failure = self._last_error = ""
        # True if the server has answered that it does not know the session.
        self.is_forgotten = False

    def failed(self, error: ExecServerError, *, now: float) -> None:
        """An attempt has ended with *error*."""
        self._last_failure = describe(error)
        if self.retry_at is not None and now - self.retry_at >= self.dial_seconds:
            self.dial_seconds *= 2
        if self._takes_over and isinstance(error, SessionAttached) and self._is_taken(now):
            self.retry_at = None
            self._last_error = f"another client has taken the session over: {self._last_failure}"
        elif not is_retryable(error):
            self.is_forgotten = isinstance(error, InvalidRequest)
            self.retry_at = None
            self._last_error = self._last_failure
        elif now + (pause := self._pause(now)) < self.deadline:
            self.retry_at = now + pause
        else:
            self.ran_out()

    def _is_taken(self, now: float) -> bool:
        """True if another client has the session and does not leave it soon."""
        if self._refused_at is None:
            self._refused_at = now
        return now - self._refused_at >= self._limits.taken_over_patience

    def _pause(self, now: float) -> float:
        elapsed = now - self._begin
        if elapsed <= self._limits.recovery_window:
            return self._limits.recovery_pause
        grown = min(elapsed / 10, self._limits.recovery_max_pause)
        return max(self._limits.recovery_pause, grown)

    def ran_out(self) -> None:
        """The deadline has come while an attempt was under way."""
        self.retry_at = None
        before = f"{self._last_failure}; " if self._last_failure else ""
        self._last_error = f"{before}recovery timed out after {self._window:g}s"

    @property
    def message(self) -> str:
        """The error message for all callers once recovery is given up."""
        return f"{self._cause}; failed to resume exec-server session: {self._last_error}"


def is_retryable(error: ExecServerError) -> bool:
    """True if another attempt to resume may succeed."""
    if isinstance(error, RpcError):
        return isinstance(error, SessionAttached) or error.code == _TRANSPORT_CLOSED
    if isinstance(error, RegistryError):
        # A registry's error that may pass comes as a ConnectError instead.
        return False
    # A refusal by HTTP counts as no connection, because a proxy in front of a server may come and
    # go.
    return isinstance(error, ConnectionClosed | CallTimeout)


def describe(error: ExecServerError) -> str:
    """The text of an attempt's error."""
    if isinstance(error, RpcError):
        return f"exec-server rejected request ({error.code}): {error.message}"
    return str(error)

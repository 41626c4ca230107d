"""The pauses before another request to the registry, or another socket to the rendezvous."""

from __future__ import annotations

from collections.abc import Callable

from exec_server.limits import DEFAULT_LIMITS, Limits

# It returns numbers from 0 to 1, like `random.random`.
Random = Callable[[], float]

_DOUBLINGS = 4
# The same for a harness that has lost its connection: its session is kept for half a minute, and
# longer pauses would leave only a few attempts.
_RECOVERY_DOUBLINGS = 2
# So often in a row a harness asks soon whether its executor is back, and less often later.
_SOON = 20
_LATER_DOUBLINGS = 1


def registry_pause(attempt: int, *, random: Random, limits: Limits = DEFAULT_LIMITS) -> float:
    """Return the pause in seconds after the failure of *attempt*, which counts from 0."""
    base = min(limits.registry_pause * (1 << min(attempt, _DOUBLINGS)), limits.registry_max_pause)
    return base + random() * base / 2


class Recovery:
    """The pauses of a harness before it asks the registry for another connection.

    They grow with each failure. A registry that has answered that the executor is not connected
    works, and an executor that was restarted is back within a second: it is asked again soon.
    """

    def __init__(self, *, random: Random, limits: Limits = DEFAULT_LIMITS) -> None:
        self._random = random
        self._limits = limits
        self._failures = 0
        self._offline = 0

    def next_pause(self, *, lived: float) -> float:
        """The next pause in seconds; the last connection, if any followed, was open *lived*."""
        if not self._failures and lived >= self._limits.registry_pause:
            return 0.0
        attempt = min(self._failures, _RECOVERY_DOUBLINGS)
        if self._offline:
            attempt = 0 if self._offline <= _SOON else _LATER_DOUBLINGS
        return registry_pause(attempt, random=self._random, limits=self._limits)

    def failed(self, *, is_offline: bool) -> None:
        """An attempt has failed; *is_offline* if the registry says that there is no executor."""
        self._failures += 1
        self._offline = self._offline + 1 if is_offline else 0

    def succeeded(self) -> None:
        self._failures = self._offline = 0


class Redial:
    """The pauses between two sockets. They double until a socket has lasted long enough."""

    def __init__(self, *, random: Random, limits: Limits = DEFAULT_LIMITS) -> None:
        self._random = random
        self._limits = limits
        self._base = limits.rendezvous_pause

    def lived(self, seconds: float) -> None:
        """Record that a socket was open for *seconds* and has ended."""
        if seconds >= self._limits.rendezvous_lasting:
            self._base = self._limits.rendezvous_pause

    def next_pause(self, *, hurry: bool = False) -> float:
        """Return the next pause in seconds; with *hurry* it is never long."""
        base = self._base
        self._base = min(base * 2, self._limits.rendezvous_max_pause)
        if hurry:
            base = min(base, self._limits.rendezvous_hurried_pause)
        return base * (0.5 + self._random() / 2)

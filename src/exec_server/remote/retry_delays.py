"""The pauses before another request to the registry, or another socket to the rendezvous."""

from __future__ import annotations

from collections.abc import Callable

from exec_server.limits import DEFAULT_LIMITS, Limits

# It returns numbers from 0 to 1, like `random.random`.
Random = Callable[[], float]

_DOUBLINGS = 4


def registry_pause(attempt: int, *, random: Random, limits: Limits = DEFAULT_LIMITS) -> float:
    """Return the pause in seconds after the failure of *attempt*, which counts from 0."""
    base = min(limits.registry_pause * (1 << min(attempt, _DOUBLINGS)), limits.registry_max_pause)
    return base + random() * base / 2


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

"""How long to wait before the registry is asked, or the rendezvous dialled, once more."""

from __future__ import annotations

from collections.abc import Callable

from exec_server.limits import DEFAULT_LIMITS, Limits

# Numbers from 0 to 1, like `random.random`.
Random = Callable[[], float]

_DOUBLINGS = 4


def registry_pause(attempt: int, *, random: Random, limits: Limits = DEFAULT_LIMITS) -> float:
    """The pause after the failure of *attempt*, which counts from 0."""
    base = min(limits.registry_pause * (1 << min(attempt, _DOUBLINGS)), limits.registry_max_pause)
    return base + random() * base / 2


class Redial:
    """The pauses between two sockets: they grow until one has lasted."""

    def __init__(self, *, random: Random, limits: Limits = DEFAULT_LIMITS) -> None:
        self._random = random
        self._limits = limits
        self._base = limits.rendezvous_pause

    def lived(self, seconds: float) -> None:
        """A socket has ended that was open for so long."""
        if seconds >= self._limits.rendezvous_lasting:
            self._base = self._limits.rendezvous_pause

    def next_pause(self, *, hurry: bool = False) -> float:
        """However many there were, one of those who *hurry* is short."""
        base = self._base
        self._base = min(base * 2, self._limits.rendezvous_max_pause)
        if hurry:
            base = min(base, self._limits.rendezvous_hurried_pause)
        return base * (0.5 + self._random() / 2)

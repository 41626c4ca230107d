"""Groups that are ready for the next start, and those that are done with.

The keeper loads this file by its path; only the standard library is available there.

To make a group and to remove it takes 100 to 400 microseconds, so neither is done while a start or
an exit waits: the next group is made, and old ones are removed, when the keeper has had nothing to
do for a moment. A group whose command has ended is used again if nothing is left of that command.
"""

from __future__ import annotations

import time

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from exec_server.process.limiting.cgroups import Group

    Bounds = tuple[tuple[str, str, float], ...]

# The time without a start or an exit after which there is time for other things.
_IDLE_SECONDS = 0.003
# A group that cannot be removed is tried again after this time.
_RETRY_SECONDS = 1.0
# Spare groups are kept for so many different limits, one for each.
_MOST_KINDS = 4
# If so many groups have to be removed, they no longer wait.
_MOST_OLD = 64


class SpareGroups:
    """One group for the next start with the same bounds; *make* makes it, or returns None."""

    def __init__(self, make: Callable[[Bounds], Group | None]) -> None:
        self._make = make
        # None stands for a group that has to be made.
        self._spares: dict[Bounds, Group | None] = {}
        self._old: list[Group] = []
        # Groups that may be used again.
        self._used: list[Group] = []
        self._due = 0.0

    def take(self, bounds: Bounds) -> Group | None:
        """A group with *bounds*; None if there is none. A next one is made later."""
        self._due = time.monotonic() + _IDLE_SECONDS
        self._sort_used()
        group = self._spares.pop(bounds, None)
        # The ones that were asked for last are at the end.
        self._spares[bounds] = None
        while len(self._spares) > _MOST_KINDS:
            dropped = self._spares.pop(next(iter(self._spares)))
            if dropped is not None:
                self._old.append(dropped)
        return group

    def give_back(self, group: Group, *, is_reusable: bool) -> None:
        """*group* has no processes any more; only if *is_reusable* others may be put into it."""
        self._due = time.monotonic() + _IDLE_SECONDS
        (self._used if is_reusable else self._old).append(group)
        if len(self._old) > _MOST_OLD:
            self._remove_old()

    def _sort_used(self) -> None:
        while self._used:
            group = self._used.pop()
            is_wanted = group.bounds in self._spares and self._spares[group.bounds] is None
            if is_wanted and group.reset() and _is_opened(group):
                self._spares[group.bounds] = group
            else:
                self._old.append(group)

    @property
    def due(self) -> float | None:
        """When `work` has something to do."""
        if self._used:
            # As soon as the exit is told.
            return 0.0
        return self._due if self._old or None in self._spares.values() else None

    def work(self, now: float) -> None:
        """Do one thing, if there is time for it."""
        if self._used:
            self._sort_used()
            return
        if self.due is None or now < self._due:
            return
        for bounds, group in self._spares.items():
            if group is None:
                self._make_spare(bounds)
                return
        self._remove_old()

    def _make_spare(self, bounds: Bounds) -> None:
        group = self._make(bounds)
        if group is not None and not _is_opened(group):
            self._old.append(group)
            group = None
        if group is None:
            # The next start finds out why.
            del self._spares[bounds]
        else:
            self._spares[bounds] = group

    def _remove_old(self) -> None:
        group = self._old.pop(0)
        if not group.remove():
            self._old.append(group)
            self._due = time.monotonic() + _RETRY_SECONDS

    def close(self) -> None:
        """Remove all groups."""
        for group in (*self._old, *filter(None, self._spares.values())):
            group.remove()
        self._old.clear()
        self._spares.clear()


def _is_opened(group: Group) -> bool:
    """True if a start can enter *group* at once, which saves it 40 microseconds."""
    try:
        group.open_entrances()
    except OSError:
        return False
    return True

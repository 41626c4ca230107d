"""The lease on the input of a process: one holder at a time, and an epoch that only grows."""

from __future__ import annotations

from typing import Literal

Outcome = Literal["taken", "accepted", "held", "person drives", "changed"]


class Lease:
    """Who may type. Holders are ids; *owner* is the one that has the lease at first.

    A holder that loses the lease to another one gets it back when that one gives it back or leaves.
    """

    def __init__(self, owner: str, *, epoch: int = 1) -> None:
        self.holder = owner
        self.epoch = epoch
        # The id that may take it from anyone; "" is any id.
        self.offered: str | None = None
        self._owner = owner
        # Those that had it before, the last one last; the owner is below them all.
        self._before: list[str] = []

    def take(self, who: str, *, is_person: bool, holder_is_person: bool) -> Outcome:
        """Let *who* have the lease, unless it is a person's and *who* is not one."""
        if who == self.holder:
            self.offered = None
            return "held"
        is_offered = self.offered in ("", who)
        if holder_is_person and not is_person and not is_offered:
            return "person drives"
        if who in self._before:
            self._before.remove(who)
        self._before.append(self.holder)
        self._move(who)
        return "accepted" if is_offered else "taken"

    def offer(self, to: str) -> None:
        """Let *to*, or any id if it is empty, take the lease once."""
        self.offered = to

    def give_back(self) -> bool:
        """Let the last holder have it again; False if there was none besides the owner."""
        if self.holder == self._owner:
            return False
        self._move(self._before.pop() if self._before else self._owner)
        return True

    def leave(self, who: str) -> bool:
        """*who* is gone; True if it was the holder, so that another one is now."""
        if who in self._before:
            self._before.remove(who)
        if self.offered == who:
            self.offered = None
        return who == self.holder and self.give_back()

    def _move(self, who: str) -> None:
        self.holder = who
        self.epoch += 1
        self.offered = None

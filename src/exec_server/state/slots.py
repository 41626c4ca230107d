"""Slots that principals take and give back: each has its own limit, and all have one together."""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Slots(Generic[T]):
    """Counts what each principal has. Those that wait for a slot get it in turn."""

    def __init__(self, *, total: int | None = None) -> None:
        self._total = total
        self._taken: Counter[str] = Counter()
        self._limits: dict[str, int | None] = {}
        # The first principal is the next one to get a slot.
        self._waiting: dict[str, deque[T]] = {}

    def taken(self, name: str) -> int:
        return self._taken[name]

    @property
    def all_taken(self) -> int:
        return self._taken.total()

    @property
    def is_full(self) -> bool:
        """True if no principal can take another slot."""
        return self._total is not None and self.all_taken >= self._total

    def obstacle(self, name: str, limit: int | None) -> int | None:
        """The limit that keeps *name* from one more slot; None if there is room."""
        if self.is_full:
            return self._total
        return limit if limit is not None and self._taken[name] >= limit else None

    def take(self, name: str, limit: int | None) -> bool:
        """Take a slot, unless there is none, or others of the same principal wait for one."""
        if name in self._waiting or self.obstacle(name, limit) is not None:
            return False
        self._taken[name] += 1
        return True

    def hold(self, name: str) -> None:
        """Count a slot beyond all limits: what it stands for exists already."""
        self._taken[name] += 1

    def wait(self, name: str, limit: int | None, waiter: T) -> None:
        """Let *waiter* wait for a slot of *name*."""
        self._limits[name] = limit
        self._waiting.setdefault(name, deque()).append(waiter)

    def give_back(self, name: str) -> None:
        self._taken[name] -= 1
        if not self._taken[name]:
            del self._taken[name]

    def next_waiter(self) -> tuple[str, T] | None:
        """One that gets a slot now, which counts as taken; None if there is no room.

        A principal that has got one is the last to get the next.
        """
        for name in self._waiting:
            if self.obstacle(name, self._limits[name]) is None:
                break
        else:
            return None
        queue = self._waiting.pop(name)
        waiter = queue.popleft()
        if queue:
            self._waiting[name] = queue
        else:
            del self._limits[name]
        self._taken[name] += 1
        return name, waiter

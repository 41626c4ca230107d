"""Keys that are forgotten some time after they were added."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")

# With fewer outdated entries than this, cleaning up is not worth its cost.
_SLACK = 64


class Expiry(Generic[K]):
    """Keys with a deadline each: *window* seconds after they were put in, unless told otherwise."""

    def __init__(self, *, window: float) -> None:
        self._window = window
        self._deadlines: dict[K, tuple[float, int]] = {}
        # The entries in the order of their deadlines, then of their age. An entry that is not in
        # `_deadlines` is outdated.
        self._queue: list[tuple[float, int, K]] = []
        self._numbers = itertools.count()

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, key: K, *, now: float, window: float | None = None) -> None:
        due = (now + (self._window if window is None else window), next(self._numbers))
        self._deadlines[key] = due
        heappush(self._queue, (*due, key))
        if len(self._queue) > 2 * len(self._deadlines) + _SLACK:
            self._queue = [(*due, key) for key, due in self._deadlines.items()]
            heapify(self._queue)

    def discard(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def deadline(self, key: K) -> float | None:
        due = self._deadlines.get(key)
        return None if due is None else due[0]

    def next_deadline(self) -> float | None:
        queue = self._queue
        while queue and self._deadlines.get(queue[0][2]) != queue[0][:2]:
            heappop(queue)
        return queue[0][0] if queue else None

    def expire(self, *, now: float) -> Iterator[K]:
        """Take out every key whose deadline has come, the earliest first."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            key = heappop(self._queue)[2]
            del self._deadlines[key]
            yield key

"""Things that are forgotten a fixed time after something happened to them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")


class Expiry(Generic[K]):
    """Keys with a deadline each, *window* seconds after they were put in.

    One window for all keys makes the order of insertion the order of the deadlines.
    """

    def __init__(self, *, window: float) -> None:
        self._window = window
        self._deadlines: OrderedDict[K, float] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def add(self, key: K, *, now: float) -> None:
        self._deadlines[key] = now + self._window
        self._deadlines.move_to_end(key)

    def discard(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def deadline(self, key: K) -> float | None:
        return self._deadlines.get(key)

    def next_deadline(self) -> float | None:
        return next(iter(self._deadlines.values()), None)

    def expire(self, *, now: float) -> Iterator[K]:
        """Take out every key whose deadline has come, oldest first."""
        while self._deadlines:
            key, deadline = next(iter(self._deadlines.items()))
            if deadline > now:
                return
            del self._deadlines[key]
            yield key

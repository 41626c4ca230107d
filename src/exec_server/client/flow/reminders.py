"""Acknowledgements that are held back: each lets one process wait, and none for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary


class Withholder(Protocol):
    """Somebody who lets a process wait by not acknowledging what it has said."""

    def give_way(self, *, is_watched: bool) -> None:
        """Nothing was taken for long; *is_watched* says that somebody waits for some process."""


class Withheld:
    """Reminds those that withhold something whenever they have taken nothing for *patience*."""

    def __init__(self, *, patience: float, is_watched: Callable[[], bool]) -> None:
        self._patience = patience
        self._is_watched = is_watched
        # When they have last taken something. Weak: a handle that was dropped withholds nothing.
        self._progress: WeakKeyDictionary[Withholder, float] = WeakKeyDictionary()
        self._timer: asyncio.TimerHandle | None = None

    def by(self, consumer: Withholder) -> None:
        """*consumer* withholds; said again whenever it has taken something."""
        loop = asyncio.get_running_loop()
        self._progress[consumer] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._patience, self._remind)

    def no_longer_by(self, consumer: Withholder) -> None:
        self._progress.pop(consumer, None)
        if not self._progress and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _remind(self) -> None:
        loop = asyncio.get_running_loop()
        now, is_watched = loop.time(), self._is_watched()
        for consumer, progress in tuple(self._progress.items()):
            if now - progress >= self._patience:
                self._progress[consumer] = now
                consumer.give_way(is_watched=is_watched)
        self._timer = None
        if self._progress:
            due = min(self._progress.values()) + self._patience
            self._timer = loop.call_at(due, self._remind)

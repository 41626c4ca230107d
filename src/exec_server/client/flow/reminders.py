"""Reminders: the timer for processes that wait because their output is not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary


class Withholder(Protocol):
    """A consumer that makes a process wait by not acknowledging its output."""

    def give_way(self, *, is_watched: bool) -> None:
        """Nothing was taken for long; *is_watched*: a task waits for an event of some process."""


class Reminders:
    """Reminds each holder whenever it has taken nothing for *patience* seconds."""

    def __init__(self, *, patience: float, is_watched: Callable[[], bool]) -> None:
        self._patience = patience
        self._is_watched = is_watched
        # When each holder has last taken something. The references are weak: a handle that was
        # dropped holds nothing back.
        self._progress: WeakKeyDictionary[Withholder, float] = WeakKeyDictionary()
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, holder: Withholder) -> None:
        """*holder* makes its process wait; repeat it whenever it has taken something."""
        loop = asyncio.get_running_loop()
        self._progress[holder] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._patience, self._remind)

    def release(self, holder: Withholder) -> None:
        """*holder* no longer makes its process wait."""
        self._progress.pop(holder, None)
        if not self._progress and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _remind(self) -> None:
        loop = asyncio.get_running_loop()
        now, is_watched = loop.time(), self._is_watched()
        for holder, progress in tuple(self._progress.items()):
            if now - progress >= self._patience:
                self._progress[holder] = now
                holder.give_way(is_watched=is_watched)
        self._timer = None
        if self._progress:
            due = min(self._progress.values()) + self._patience
            self._timer = loop.call_at(due, self._remind)

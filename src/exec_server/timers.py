"""One timer for many deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls *expire* with the time whenever *next_deadline* has come; None means never."""

    def __init__(
        self, next_deadline: Callable[[], float | None], expire: Callable[[float], None]
    ) -> None:
        self._next_deadline = next_deadline
        self._expire = expire
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def set(self) -> None:
        """Look at the deadline again; to be called when it may have become earlier."""
        deadline = self._next_deadline()
        if self._timer is not None:
            if deadline is not None and self._due <= deadline:
                # The timer looks at the deadline again when it fires.
                return
            self._timer.cancel()
        self._timer = None
        if deadline is not None:
            self._due = deadline
            self._timer = self._loop.call_at(deadline, self._ring)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        # A timer may fire a tick early; the deadline that it was set for counts as reached.
        self._expire(max(self._loop.time(), self._due))
        self.set()

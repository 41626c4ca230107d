"""The sizes that drivers give to a terminal: a window that is dragged changes it 200 times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Size = tuple[int, int]

# At most so often a program is told of a new size; the last one always arrives.
_PAUSE_SECONDS = 0.1


class DriverSizes:
    """Passes sizes on to *resize*: the first at once, others after a pause, the last one always."""

    def __init__(self, resize: Callable[[int, int], None]) -> None:
        self._resize = resize
        self._next: Size | None = None
        self._timer: asyncio.TimerHandle | None = None

    def put(self, size: Size) -> None:
        self._next = size
        if self._timer is None:
            self._pass_on()

    def put_now(self, size: Size) -> None:
        """Another driver has its own size at once: its first key may depend on it."""
        self.close()
        self._next = size
        self._pass_on()

    def _pass_on(self) -> None:
        self._timer = None
        size, self._next = self._next, None
        if size is not None:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._pass_on)
            self._resize(*size)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

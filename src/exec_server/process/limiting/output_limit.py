"""The limit of a command's output, counted where it is read."""

from __future__ import annotations

from collections.abc import Callable


class OutputLimit:
    """Lets *most* bytes pass; *on_reached* is called once when there are more."""

    def __init__(self, most: int, on_reached: Callable[[], None]) -> None:
        self._left = most
        self._on_reached = on_reached
        self._is_reached = False

    def passed(self, data: bytes) -> bytes:
        """The part of *data* that is within the limit."""
        kept = data[: self._left]
        self._left -= len(kept)
        if len(kept) < len(data):
            self.reach()
        return kept

    def reach(self) -> None:
        if not self._is_reached:
            self._is_reached = True
            self._on_reached()

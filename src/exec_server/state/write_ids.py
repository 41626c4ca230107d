"""Write ids already accepted, so that a repeated `process/write` is done once."""

from __future__ import annotations

from collections import deque


class WriteIds:
    """Remembers the newest *capacity* ids."""

    __slots__ = ("_capacity", "_order", "known")

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        # The remembered ids; to ask this is faster than to ask the object.
        self.known: dict[str, None] = {}
        # To ask the dictionary for its oldest key would take longer and longer: it searches from
        # its beginning, where the keys are that were deleted.
        self._order: deque[str] = deque()

    def __contains__(self, write_id: str) -> bool:
        return write_id in self.known

    def add(self, write_id: str) -> None:
        """Remember an id that is not known."""
        order = self._order
        self.known[write_id] = None
        order.append(write_id)
        if len(order) > self._capacity:
            del self.known[order.popleft()]

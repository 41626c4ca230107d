"""Write ids already accepted, so that a repeated `process/write` is done once."""

from __future__ import annotations


class WriteIds:
    """Remembers the newest *capacity* ids."""

    __slots__ = ("_capacity", "_oldest", "_order", "known")

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        # The remembered ids; to ask this is faster than to ask the object.
        self.known: dict[str, None] = {}
        # The ids in a ring. To ask the dictionary for its oldest key would take longer and longer:
        # it searches from its beginning, where the keys are that were deleted.
        self._order: list[str] = []
        self._oldest = 0

    def __contains__(self, write_id: str) -> bool:
        return write_id in self.known

    def add(self, write_id: str) -> None:
        if write_id in self.known:
            return
        order = self._order
        self.known[write_id] = None
        if len(order) < self._capacity:
            order.append(write_id)
            return
        oldest = self._oldest
        del self.known[order[oldest]]
        order[oldest] = write_id
        self._oldest = oldest + 1 if oldest + 1 < self._capacity else 0

"""Write ids already accepted, so that a repeated `process/write` is done once."""

from __future__ import annotations


class WriteIds:
    """Remembers the newest *capacity* ids."""

    __slots__ = ("_capacity", "_ids", "_oldest", "_order")

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._ids: dict[str, None] = {}
        # The ids in a ring. To ask the dictionary for its oldest key would take longer and longer:
        # it searches from its beginning, where the keys are that were deleted.
        self._order: list[str] = []
        self._oldest = 0

    def __contains__(self, write_id: str) -> bool:
        return write_id in self._ids

    def add(self, write_id: str) -> None:
        if write_id in self._ids:
            return
        order = self._order
        self._ids[write_id] = None
        if len(order) < self._capacity:
            order.append(write_id)
            return
        oldest = self._oldest
        del self._ids[order[oldest]]
        order[oldest] = write_id
        self._oldest = oldest + 1 if oldest + 1 < self._capacity else 0

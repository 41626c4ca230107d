"""Write ids already accepted, so that a repeated `process/write` is done once."""

from __future__ import annotations


class WriteIds:
    """Remembers the newest *capacity* ids."""

    __slots__ = ("_capacity", "_ids")

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._ids: dict[str, None] = {}

    def __contains__(self, write_id: str) -> bool:
        return write_id in self._ids

    def add(self, write_id: str) -> None:
        self._ids[write_id] = None
        if len(self._ids) > self._capacity:
            del self._ids[next(iter(self._ids))]

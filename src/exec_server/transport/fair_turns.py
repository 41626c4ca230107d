"""Bounded work for one connection in a turn of the event loop, so that others have their turns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from exec_server.transport.picows_names import WSFrame

T = TypeVar("T")

# A message takes some 10 µs, so this is less than a millisecond.
MESSAGES_PER_TURN = 64


class HeldInput(Generic[T]):
    """Input that was read already and is delivered in later turns, in its order.

    *deliver* gets an item and whether another one follows in the same turn. *set_reading* is called
    with False when something is held, and with True when nothing is left.
    """

    __slots__ = ("_deliver", "_items", "_set_reading", "_timer")

    def __init__(
        self, deliver: Callable[[T, bool], None], set_reading: Callable[[bool], None]
    ) -> None:
        self._deliver = deliver
        self._set_reading = set_reading
        self._items: deque[T] = deque()
        self._timer: asyncio.Handle | None = None

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: T) -> None:
        self._items.append(item)
        if self._timer is None:
            self._set_reading(False)
            self._timer = asyncio.get_running_loop().call_soon(self._go_on)

    def clear(self) -> None:
        """Drop everything; the connection is gone."""
        self._items.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go_on(self) -> None:
        items = self._items
        for left in range(min(len(items), MESSAGES_PER_TURN) - 1, -1, -1):
            if not items:
                # A delivery has ended the connection.
                return
            self._deliver(items.popleft(), left > 0)
        if items:
            self._timer = asyncio.get_running_loop().call_soon(self._go_on)
        elif self._timer is not None:
            self._timer = None
            self._set_reading(True)


class HeldFrame:
    """A copy of a frame, since picows reuses its own."""

    __slots__ = (
        "_data",
        "fin",
        "last_in_buffer",
        "msg_type",
        "payload_size",
        "rsv1",
        "rsv2",
        "rsv3",
    )

    def __init__(self, frame: WSFrame) -> None:
        self.msg_type = frame.msg_type
        self.fin = frame.fin
        self.rsv1, self.rsv2, self.rsv3 = frame.rsv1, frame.rsv2, frame.rsv3
        self._data = frame.get_payload_as_bytes()
        self.payload_size = len(self._data)
        self.last_in_buffer = False

    def get_payload_as_bytes(self) -> bytes:
        return self._data

    def get_payload_as_memoryview(self) -> memoryview:
        return memoryview(self._data)

"""Put pushed events back in order, and notice gaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from exec_server.errors import ProcessFailed
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol.process import ClosedEvent, ExitedEvent, OutputEvent

ProcessEvent = OutputEvent | ExitedEvent | ClosedEvent


class EventOrder:
    """The events of one process, released strictly by their numbers.

    A number that was released before, or that waits already, is dropped. Events ahead of their turn
    wait, within bounds; the event that closes the gap is always admitted. A close without a number,
    which the oldest servers send, comes after everything that is known by then.
    """

    __slots__ = (
        "_close",
        "_held",
        "_held_bytes",
        "_limits",
        "has_exit",
        "heard",
        "is_closed",
        "is_in_repair",
        "released",
    )

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS, after: int = 0) -> None:
        """Events up to the number *after* are not wanted any more."""
        # The highest number that was released, and the highest that was seen.
        self.released = after
        self.heard = after
        self.is_closed = False
        # True if the exit was released or waits.
        self.has_exit = False
        # True while the missing events have been asked for; then many more may wait for them.
        self.is_in_repair = False
        self._limits = limits
        # None stands for an event that is gone for good.
        self._held: dict[int, ProcessEvent | None] = {}
        self._held_bytes = 0
        self._close: ClosedEvent | None = None

    @property
    def missing(self) -> range:
        """The numbers that hold up the waiting events; empty when nothing waits."""
        first = self.released + 1
        return range(first, min(self._held, default=first))

    @property
    def waiting(self) -> Mapping[int, ProcessEvent | None]:
        """The events ahead of their turn, by number."""
        return self._held

    def fill(
        self, events: Mapping[int, ProcessEvent], gone: Iterable[int] = ()
    ) -> Sequence[ProcessEvent]:
        """Put in the events that were read again, skip the *gone* ones; return what is due now.

        Numbers that were released or are waiting stay as they are, and no bound applies.
        """
        for seq, event in (*events.items(), *((seq, None) for seq in gone)):
            if seq > self.released and seq not in self._held:
                self._note(event)
                self._held[seq] = event
                self._held_bytes += _size(event)
                self.heard = max(self.heard, seq)
        return self._release()

    def receive(self, event: ProcessEvent) -> Sequence[ProcessEvent]:
        """Return the events whose turn has come, perhaps none.

        Raises ProcessFailed when an event, or all events that wait, exceed a limit; what was lost
        is unknown then, and this object cannot be used any more.
        """
        if self.is_closed:
            return ()
        size = _size(event)
        if size > self._limits.event_bytes:
            raise ProcessFailed(f"an event of {size} bytes is over the limit")
        if event.seq is not None:
            return self._receive_numbered(event, event.seq, size)
        assert isinstance(event, ClosedEvent)
        self._close = event
        return self._release()

    def _receive_numbered(self, event: ProcessEvent, seq: int, size: int) -> Sequence[ProcessEvent]:
        self.heard = max(self.heard, seq)
        if seq <= self.released or seq in self._held:
            return ()
        self._note(event)
        is_next = seq == self.released + 1
        if is_next and not self._held and self._close is None:
            self.released = seq
            self.is_closed = isinstance(event, ClosedEvent)
            return (event,)
        if not is_next:
            self._check_room(size)
        self._held[seq] = event
        self._held_bytes += size
        return self._release() if is_next else ()

    def _note(self, event: ProcessEvent | None) -> None:
        if isinstance(event, ExitedEvent):
            self.has_exit = True

    def _check_room(self, size: int) -> None:
        limits = self._limits
        if self.is_in_repair:
            if self._held_bytes + size > limits.untaken_max_bytes:
                raise ProcessFailed(f"{limits.untaken_max_bytes} bytes wait for a recovery")
        elif len(self._held) >= limits.reorder_events:
            self._overflow(f"{limits.reorder_events} events")
        elif self._held_bytes + size > limits.reorder_bytes:
            self._overflow(f"{limits.reorder_bytes} bytes")

    def _overflow(self, waiting: str) -> NoReturn:
        raise ProcessFailed(f"event {self.released + 1} is missing and {waiting} wait for it")

    def _release(self) -> list[ProcessEvent]:
        ready: list[ProcessEvent] = []
        while not self.is_closed and self.released + 1 in self._held:
            self.released += 1
            event = self._held.pop(self.released)
            self._held_bytes -= _size(event)
            if event is not None:
                self.is_closed = isinstance(event, ClosedEvent)
                ready.append(event)
        if self._close is not None and not self._held and not self.is_closed:
            self.is_closed = True
            ready.append(self._close)
        return ready


def _size(event: ProcessEvent | None) -> int:
    return len(event.chunk.data) if isinstance(event, OutputEvent) else 0

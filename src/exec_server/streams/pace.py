"""BulkPace: bulk makes way while small messages go to and fro.

A key and its echo take two turns of the event loop at each end. A saturated stream keeps both loops
busy, and the cores of the machine as well, so that a key waits in line at each of them. So while
small messages go to and fro, bulk is sent in turns with pauses between them, and it rests when one
of them passes. Without such messages nothing is held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

# Messages of up to this size are what a person types, or a small request and its answer.
SMALL_BYTES = 1024
# Bulk that is sent in one turn: one message of the largest size, which takes each end 0.2 ms.
TURN_BYTES = 192 * 1024
# The time between two turns. Event loops do not wait for less.
TURN_SECONDS = 0.001
# How long bulk rests when a small message passes: until it was answered, in most cases.
REST_SECONDS = 0.002
# How long after the last small message bulk is sent in turns: people think between two keys.
TALK_SECONDS = 1.0


class Clock(Protocol):
    """The part of an event loop that is needed."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Any: ...


class Paced(Protocol):
    """Has bulk to send."""

    def go_on(self) -> None:
        """Send what `BulkPace.is_free` allows."""


class BulkPace:
    """Says when bulk may be sent; one for all streams of a server, or of a client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Bulk is sent in turns until then; 0.0 if it is sent as it comes.
        self._talk_until = 0.0
        self._rest_until = 0.0
        # What is left of this turn, and what was sent since the last rest.
        self._left = self._since_rest = 0
        self._waiting: deque[Paced] = deque()
        self._has_timer = False

    def talked(self) -> None:
        """A small message passes, which answers another one or is likely to be answered."""
        now = self._clock.time()
        if not self._talk_until:
            self._left = TURN_BYTES
        self._talk_until = now + TALK_SECONDS
        # Bulk has a turn between two rests, so that it is never stopped for good.
        if self._since_rest >= TURN_BYTES:
            self._since_rest = 0
            self._rest_until = now + REST_SECONDS

    def is_talking(self) -> bool:
        """True while small messages go to and fro."""
        return self._talk_until > self._clock.time()

    def is_free(self) -> bool:
        """True if a message of bulk may be sent now."""
        if not self._talk_until:
            return True
        now = self._clock.time()
        if now >= self._talk_until:
            self._talk_until = 0.0
            return True
        return self._left > 0 and now >= self._rest_until

    def sent(self, count: int) -> None:
        """So many bytes of bulk were sent."""
        self._left -= count
        self._since_rest += count

    def wait(self, each: Paced) -> None:
        """Let *each* go on in one of the next turns."""
        if each not in self._waiting:
            self._waiting.append(each)
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._has_timer:
            self._has_timer = True
            rest = self._rest_until - self._clock.time()
            self._clock.call_later(max(TURN_SECONDS, rest), self._next_turn)

    def _next_turn(self) -> None:
        self._has_timer = False
        self._left = TURN_BYTES
        # Each goes on once, and waits behind the others if it has more.
        for _ in range(len(self._waiting)):
            if not self.is_free():
                break
            self._waiting.popleft().go_on()
        if self._waiting:
            self._set_timer()

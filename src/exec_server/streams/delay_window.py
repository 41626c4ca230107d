"""DelayWindow: how much of a stream may be under way without waiting in line.

Bytes beyond what a connection carries at once only wait, in the buffers of both systems, and
everything else that uses the connection waits behind them. So the delay of acknowledgements is
watched, as Vegas and LEDBAT do it: while it stays near the least one that was seen, the window
grows; when it has doubled, the window shrinks.
"""

from __future__ import annotations

from collections import deque

# How long the least delay counts: the way may change, and so may the load of its ends.
_BASE_SECONDS = 10.0
# Messages closer to one another are not timed, so that a flood of tiny ones costs nothing.
_TIMED_BYTES = 16 * 1024
# Differences below this are the noise of event loops.
_NOISE_SECONDS = 0.0005


class DelayWindow:
    """The size of the window of one direction, between *least* and *most* bytes."""

    def __init__(self, *, least: int, most: int) -> None:
        self.size = self._least = min(least, most)
        self._most = most
        # It doubles in each round until the delay grows for the first time.
        self._is_starting = True
        self._base = float("inf")
        self._base_until: float | None = None
        # What is under way: where messages end, and when they were sent.
        self._flying: deque[tuple[int, float]] = deque()
        # A round is over when what was sent at its beginning is acknowledged.
        self._round_end = 0
        self._round_delay = float("inf")
        self._was_full = False

    def sent(self, end: int, now: float, *, in_flight: int) -> None:
        """A message was sent whose last byte is before position *end*."""
        if not self._flying or end - self._flying[-1][0] >= _TIMED_BYTES:
            self._flying.append((end, now))
        self._was_full = self._was_full or in_flight >= self.size

    def acknowledged(self, position: int, now: float, *, sent: int) -> None:
        """Everything before *position* has arrived, and everything before *sent* was sent."""
        since = None
        while self._flying and self._flying[0][0] <= position:
            since = self._flying.popleft()[1]
        if since is None:
            return
        self._measure(now - since, now)
        if position >= self._round_end:
            self._end_round()
            self._round_end = sent

    def forget(self) -> None:
        """The connection was lost; what is under way is sent again."""
        self._flying.clear()
        self._round_end = 0
        self._round_delay = float("inf")

    def _measure(self, delay: float, now: float) -> None:
        if self._base_until is None:
            self._base_until = now + _BASE_SECONDS
        elif now >= self._base_until:
            # With less under way, the delay without a line can be seen again.
            self.size = max(self._least, self.size // 2)
            self._base, self._base_until = float("inf"), now + _BASE_SECONDS
        self._base = min(self._base, delay)
        self._round_delay = min(self._round_delay, delay)

    def _end_round(self) -> None:
        if self._round_delay > 2 * self._base + _NOISE_SECONDS:
            self._is_starting = False
            self.size = max(self._least, 3 * self.size // 4)
        elif self._was_full:
            more = self.size if self._is_starting else self._least // 2
            self.size = min(self._most, self.size + more)
        self._round_delay = float("inf")
        self._was_full = False

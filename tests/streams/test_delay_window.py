"""The window of a stream follows the delay of its connection."""

from __future__ import annotations

from collections import deque

import pytest

from exec_server.streams.delay_window import DelayWindow
from tests.requirements import requirement

CHUNK, LEAST, MOST = 100_000, 200_000, 4_000_000


class Link:
    """A connection with a rate and a delay, and a stream that always has more to send."""

    def __init__(self, window: DelayWindow, *, rate: float, delay: float) -> None:
        self.window = window
        self.rate, self.delay = rate, delay
        self.now = self._free_at = 0.0
        self.sent = self.acked = 0
        self._arrivals: deque[tuple[float, int]] = deque()

    def run(self, until: float) -> list[float]:
        """Send and acknowledge; how long each chunk was on its way."""
        delays = []
        while self.now < until:
            while self.sent - self.acked < self.window.size:
                self.sent += CHUNK
                self._free_at = max(self.now, self._free_at) + CHUNK / self.rate
                self._arrivals.append((self._free_at + self.delay, self.sent))
                delays.append(self._free_at + self.delay - self.now)
                self.window.sent(self.sent, self.now, in_flight=self.sent - self.acked)
            self.now, self.acked = self._arrivals.popleft()
            self.window.acknowledged(self.acked, self.now, sent=self.sent)
        return delays


@requirement("streams/wire:delay")
@pytest.mark.parametrize(("rate", "delay"), [(50e6, 0.01), (100e6, 0.001), (5e6, 0.05)])
def test_a_busy_link_is_kept_busy_and_no_long_line_is_in_front_of_it(rate, delay):
    link = Link(DelayWindow(least=LEAST, most=MOST), rate=rate, delay=delay)
    link.run(3.0)
    before = link.acked
    late = link.run(9.0)
    least = delay + CHUNK / rate
    # The window swings, so the worst is above twice the delay; a full window would be far above.
    assert max(late) < 4 * max(least, LEAST / rate)
    assert link.acked - before > 0.8 * rate * 6.0


@requirement("streams/wire:delay")
def test_a_long_link_without_a_line_gets_all_of_the_window():
    link = Link(DelayWindow(least=LEAST, most=MOST), rate=10e9, delay=0.1)
    link.run(1.0)
    assert link.window.size == MOST


@requirement("streams/wire:delay")
def test_a_link_that_becomes_slow_and_fast_again_is_followed():
    link = Link(DelayWindow(least=LEAST, most=MOST), rate=200e6, delay=0.01)
    link.run(4.0)
    fast = link.window.size
    link.rate = 5e6
    link.run(9.0)
    assert link.window.size < fast / 2
    link.rate = 200e6
    before = link.acked
    link.run(30.0)
    assert link.acked - before > 0.6 * 200e6 * 21.0


@requirement("streams/wire:delay")
def test_it_stays_within_its_bounds_and_survives_a_lost_connection():
    window = DelayWindow(least=LEAST, most=LEAST // 2)
    assert window.size == LEAST // 2
    window = DelayWindow(least=LEAST, most=MOST)
    window.sent(CHUNK, 0.0, in_flight=CHUNK)
    window.forget()
    window.acknowledged(CHUNK, 100.0, sent=CHUNK)
    assert window.size == LEAST
    # A flood of tiny messages is not remembered one by one.
    for position in range(1, 20_000):
        window.sent(position, 0.0, in_flight=position)
    assert len(window._flying) < 10

"""A rate: so many per second, and as many at once as come together in one second."""

from __future__ import annotations


class TokenBucket:
    """Lets through *rate* requests per second, after a pause up to a second's worth at once."""

    def __init__(self, rate: float, *, now: float) -> None:
        if not rate > 0:
            raise ValueError("a rate is more than nothing")
        self._rate = rate
        self._capacity = max(1.0, rate)
        self._tokens = self._capacity
        self._filled_at = now

    def take(self, now: float) -> float:
        """0.0 if a request may pass now; otherwise the seconds until the next one may."""
        # A clock that goes back fills nothing.
        passed = max(0.0, now - self._filled_at)
        self._filled_at = max(now, self._filled_at)
        self._tokens = min(self._capacity, self._tokens + passed * self._rate)
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate

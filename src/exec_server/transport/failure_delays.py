"""Slows down the addresses that send wrong tokens. Right tokens are never delayed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from exec_server.transport.refusal_log import network_of

# An address may fail this many times at once; then each failure is answered later than the last.
_FREE_FAILURES = 5
_FIRST_DELAY = 0.05
_LONGEST_DELAY = 1.0
# After this time one failure is forgotten.
_FORGET_SECONDS = 10.0
_ADDRESSES = 1024


class FailureDelays:
    """Counts the failures of each address, of a limited number of addresses."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # The failures that count, and when the last one was; the address that failed last is last.
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def failed(self, address: str) -> float:
        """Note a failure of *address*; return the seconds by which its answer is delayed."""
        now, address = self._clock(), network_of(address)
        count, last = self._failures.pop(address, (0.0, now))
        count = max(0.0, count - (now - last) / _FORGET_SECONDS) + 1
        self._failures[address] = count, now
        if len(self._failures) > _ADDRESSES:
            self._failures.popitem(last=False)
        if count <= _FREE_FAILURES:
            return 0.0
        # The exponent is bounded, since a large one does not fit into a float.
        return min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** min(count - _FREE_FAILURES - 1, 10.0))

"""How often somebody may fail."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

_EVERYBODY = "everybody"


class Throttle:
    """Failures of each address: a few at once, then one now and then.

    Time is an argument. Addresses that have not failed for long are forgotten, the oldest first.
    """

    def __init__(self, *, at_once: int, seconds_each: float, remembered: int) -> None:
        self._window = at_once * seconds_each
        self._each = seconds_each
        self._remembered = remembered
        # Until when the failures of an address are worked off.
        self._until: OrderedDict[str, float] = OrderedDict()

    def retry_after(self, address: str, *, now: float) -> float:
        """How long the address has to wait before it may fail again; mostly 0."""
        until = self._until.get(network_of(address), 0.0)
        return max(0.0, until - now - (self._window - self._each))

    def failed(self, address: str, *, now: float) -> None:
        key = network_of(address)
        until = max(now, self._until.pop(key, 0.0)) + self._each
        self._until[key] = min(until, now + self._window)
        while len(self._until) > self._remembered:
            self._until.popitem(last=False)


class SharedThrottle:
    """The same for each address and for everybody together; both are `at_once, seconds_each`."""

    def __init__(
        self, *, each: tuple[int, float], everybody: tuple[int, float], remembered: int
    ) -> None:
        self._each = Throttle(at_once=each[0], seconds_each=each[1], remembered=remembered)
        self._all = Throttle(at_once=everybody[0], seconds_each=everybody[1], remembered=1)

    def retry_after(self, address: str, *, now: float) -> float:
        return max(
            self._each.retry_after(address, now=now), self._all.retry_after(_EVERYBODY, now=now)
        )

    def failed(self, address: str, *, now: float) -> None:
        self._each.failed(address, now=now)
        self._all.failed(_EVERYBODY, now=now)


def network_of(address: str) -> str:
    """What belongs to one holder: an IPv4 address, or the upper half of an IPv6 one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, 64), strict=False))

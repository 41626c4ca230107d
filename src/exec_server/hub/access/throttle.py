"""How often an address may fail, and which address a request is from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from exec_server.transport.refusal_log import network_of, parsed_address

_ALL = "all addresses"


class Throttle:
    """Allows each address *at_once* failures, and then one every *seconds_each* seconds.

    Time is an argument. Only the *remembered* addresses that have failed last are kept.
    """

    def __init__(self, *, at_once: int, seconds_each: float, remembered: int) -> None:
        self._window = at_once * seconds_each
        self._each = seconds_each
        self._remembered = remembered
        # The time at which all failures of an address are paid off.
        self._until: OrderedDict[str, float] = OrderedDict()

    def retry_after(self, address: str, *, now: float) -> float:
        """The seconds until the address may fail again; usually 0."""
        until = self._until.get(network_of(address), 0.0)
        return max(0.0, until - now - (self._window - self._each))

    def failed(self, address: str, *, now: float) -> None:
        key = network_of(address)
        until = max(now, self._until.pop(key, 0.0)) + self._each
        self._until[key] = min(until, now + self._window)
        while len(self._until) > self._remembered:
            self._until.popitem(last=False)

    def take_back(self, address: str) -> None:
        """Take back a failure that was counted in advance."""
        key = network_of(address)
        if key in self._until:
            self._until[key] -= self._each


class SharedThrottle:
    """A limit for each address and one for all together, each as `(at_once, seconds_each)`."""

    def __init__(
        self, *, each: tuple[int, float], together: tuple[int, float], remembered: int
    ) -> None:
        self._each = Throttle(at_once=each[0], seconds_each=each[1], remembered=remembered)
        self._all = Throttle(at_once=together[0], seconds_each=together[1], remembered=1)

    def retry_after(self, address: str, *, now: float) -> float:
        return max(self._each.retry_after(address, now=now), self._all.retry_after(_ALL, now=now))

    def failed(self, address: str, *, now: float) -> None:
        self._each.failed(address, now=now)
        self._all.failed(_ALL, now=now)

    def take_back(self, address: str) -> None:
        self._each.take_back(address)
        self._all.take_back(_ALL)


def forwarded_address(lines: Sequence[str]) -> str | None:
    """The address that our own proxy has seen, from the `X-Forwarded-For` lines of a request.

    Several lines are one list. A proxy adds the address of its client at the end, and everything
    before it is the word of that client. None if the last entry is not an address.
    """
    last = ",".join(lines).rpartition(",")[2].strip().strip('"')
    # Some proxies add the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`.
    if last.startswith("["):
        last = last[1:].partition("]")[0]
    elif last.count(":") == 1:
        last = last.partition(":")[0]
    parsed = parsed_address(last)
    return None if parsed is None else str(parsed)

"""Which refusals of strangers are logged: a limited number for each address, of all in all.

All refusals are counted by their kind.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

# token: a wrong or missing token; origin: a request of a web page; malformed: no HTTP, or no
# upgrade; path: a path that is not served; peer: a local user or sandbox that may not connect;
# certificate: a client without an accepted one; tls: another failed handshake.
RefusalKind = Literal["token", "origin", "malformed", "path", "peer", "certificate", "tls"]

_INTERVAL = 60.0
# How many lines an address gets in an interval. Failed logins are slowed down, too.
_LINES: dict[RefusalKind, int] = {"token": 20, "certificate": 20, "peer": 20}
_ADDRESSES = 1024


class RefusalLog:
    """Decides about each refusal whether it is logged. Its memory is bounded."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.counts: Counter[RefusalKind] = Counter()
        # Called with the address, the kind and the reason of each refusal that is logged.
        self.on_logged: Callable[[str, RefusalKind, str], None] | None = None
        # For each address and kind: the end of the interval, the lines that are left, and how many
        # refusals were not logged. The one that was refused last is last.
        self._seen: OrderedDict[tuple[str, RefusalKind], tuple[float, int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def refused(self, address: str, kind: RefusalKind) -> str | None:
        """Count a refusal; None means that it is not logged. A text is added to the line."""
        self.counts[kind] += 1
        key, now = (network_of(address), kind), self._clock()
        until, left, unlogged = self._seen.pop(key, (0.0, 0, 0))
        if now >= until:
            until, left = now + _INTERVAL, _LINES.get(kind, 1)
        if not left:
            self._seen[key] = until, 0, unlogged + 1
            return None
        self._seen[key] = until, left - 1, 0
        if len(self._seen) > _ADDRESSES:
            self._seen.popitem(last=False)
        return f" ({unlogged} more like this were not logged)" if unlogged else ""

    def logged(self, address: str, kind: RefusalKind, reason: str) -> None:
        """A refusal was logged."""
        if self.on_logged is not None:
            self.on_logged(address, kind, reason)


def network_of(address: str) -> str:
    """The addresses that have one owner: an IPv4 address, or the /64 network of an IPv6 one."""
    parsed = parsed_address(address)
    if parsed is None:
        return address
    if parsed.version == 4:
        return str(parsed)
    import ipaddress

    return str(ipaddress.ip_network((parsed, 64), strict=False))


def parsed_address(text: str) -> IPv4Address | IPv6Address | None:
    """The address without its zone; None if *text* is none.

    A socket for both versions of IP tells an IPv4 address as an IPv6 one (`::ffff:192.0.2.1`). All
    of these are in one network, and each has another owner.
    """
    # A server that refuses no connection need not load it.
    import ipaddress

    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address):
        return parsed.ipv4_mapped or ipaddress.IPv6Address(int(parsed))
    return parsed

"""Which hosts a process may reach: patterns, the order of the rules, non-public addresses.

This is pure: names are resolved elsewhere, and the addresses are judged here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from enum import Enum
from fnmatch import translate

from exec_server.errors import InvalidParams
from exec_server.protocol.network import NetworkProxy, ProxyConfig

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

CALLBACK_ID_BYTES = 256
HOST_BYTES = 253

_PREFIX = "invalid network proxy config: "
_PATTERN = re.compile(r"[a-z0-9._:*?-]+")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_PORT = re.compile(r":[0-9]*$")
_EVERYTHING = ("*", "**.*")

# All networks that are not public (RFC 6890 and its updates).
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 "
        "192.0.0.0/24 192.0.2.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 "
        "224.0.0.0/4 240.0.0.0/4 "
        "::/128 ::1/128 100::/64 2001:db8::/32 fc00::/7 fe80::/10 fec0::/10 ff00::/8"
    ).split()
)
# IPv6 addresses that carry an IPv4 address: mapped, compatible, NAT64, 6to4.
_CARRIERS = tuple(
    (ipaddress.IPv6Network(text), shift)
    for text, shift in (("::ffff:0:0/96", 0), ("::/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))
)


class Ruling(Enum):
    """What the rules say about a host."""

    ALLOW = "allow"
    DENIED = "denied"
    LOCAL = "not_allowed_local"
    # No rule allows it, or it is to be reviewed: the client decides.
    ASK = "not_allowed"


class Rules:
    """The rules of one process. Raises InvalidParams for a configuration without meaning."""

    def __init__(self, config: ProxyConfig) -> None:
        if not config.enabled:
            raise _invalid("executor-local network proxy launch requires an enabled proxy")
        domains = config.domains or {}
        allowed = [name for name, rule in domains.items() if rule == "allow"]
        denied = [name for name, rule in domains.items() if rule == "deny"]
        for name in denied:
            if _normal_pattern(name) in _EVERYTHING:
                raise _invalid(
                    f"invalid value for network.denied_domains: {name} (allowed exact hosts or "
                    "scoped wildcards like *.example.com or **.example.com)"
                )
        self._allowed = _Patterns(allowed)
        self._denied = _Patterns(denied)
        self._reviewed = _Patterns(config.review_domains)
        self.allows_local = config.allow_local_binding
        self.is_limited = config.mode == "limited"
        _check_sockets(config)

    def judge(self, host: str) -> Ruling:
        """Judge *host*, which is in its normal form, before any name is resolved."""
        if self._denied.match(host):
            return Ruling.DENIED
        # A wildcard does not open local hosts; only an entry of their own does.
        if not self.allows_local and is_local(host) and host not in self._allowed.exact:
            return Ruling.LOCAL
        if not self._allowed.match(host) or self._reviewed.match(host):
            return Ruling.ASK
        return Ruling.ALLOW

    def accepts(self, host: str, addresses: Iterable[Address]) -> bool:
        """True if *host*, which may be reached, may also have all of *addresses*."""
        if self.allows_local or is_local(host):
            # A local name gets this far only if it has an entry of its own.
            return True
        return all(is_public(address) for address in addresses)


class _Patterns:
    def __init__(self, texts: Iterable[str]) -> None:
        self.exact: set[str] = set()
        self._globs: list[Callable[[str], object]] = []
        for text in texts:
            self._add(_normal_pattern(text))

    def _add(self, pattern: str) -> None:
        if "*" not in pattern and "?" not in pattern:
            self.exact.add(pattern)
            return
        if pattern.startswith("**."):
            apex = pattern[3:]
            self._globs.append(_glob(apex))
            pattern = f"*.{apex}"
        self._globs.append(_glob(pattern))

    def match(self, host: str) -> bool:
        return host in self.exact or any(glob(host) for glob in self._globs)


def _glob(pattern: str) -> Callable[[str], object]:
    # There are no brackets any more. The translated expression never backtracks over a star.
    return re.compile(translate(pattern)).match


def _normal_pattern(text: str) -> str:
    pattern = text.strip().lower()
    if pattern == "[*]":
        return "*"
    if "[" in pattern or "]" in pattern:
        return _bracketed(text, pattern)
    if pattern.count(":") == 1:
        pattern = _PORT.sub("", pattern)
    pattern = pattern.rstrip(".")
    if pattern in ("", "*") and text.strip() not in ("*",):
        raise _invalid("domain pattern is empty")
    body = pattern[1:] if pattern.startswith("**.") else pattern
    if "**" in body:
        if text.strip() == "**.":
            raise _invalid("domain pattern is empty")
        raise _invalid(f"unsupported repeated wildcard: {text}")
    if not _PATTERN.fullmatch(pattern):
        raise _invalid(f"unsupported domain pattern syntax: {text}")
    return normal_host(pattern) if ":" in pattern else pattern


def _bracketed(text: str, pattern: str) -> str:
    inner, closed, rest = pattern.removeprefix("[").partition("]")
    address = as_address(inner)
    if not pattern.startswith("[") or not closed or not isinstance(address, ipaddress.IPv6Address):
        raise _invalid(f"brackets are only supported for IPv6 literals or [*]: {text}")
    if rest and not _PORT.fullmatch(rest):
        raise _invalid(f"unsupported domain pattern syntax: {text}")
    return str(address)


def normal_host(host: str) -> str:
    """The form of *host* in rules, questions and reports: lower case, no brackets or last dot."""
    name = host.strip().lower()
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    name = name.rstrip(".")
    address = as_address(name)
    return name if address is None else str(address)


def is_host(host: str) -> bool:
    """True if *host*, in its normal form, is a valid name or an address."""
    if not 0 < len(host) <= HOST_BYTES:
        return False
    return as_address(host) is not None or all(_LABEL.fullmatch(part) for part in host.split("."))


def as_address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_local(host: str) -> bool:
    """True if *host* is local by its own name or address."""
    address = as_address(host)
    return host == "localhost" if address is None else not is_public(address)


def is_public(address: Address) -> bool:
    if any(address in network for network in _NOT_PUBLIC):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = _carried(address)
        return inner is None or is_public(inner)
    return True


def is_loopback(address: Address) -> bool:
    inner = _carried(address) if isinstance(address, ipaddress.IPv6Address) else None
    return (inner or address).is_loopback or (inner or address).is_unspecified


def _carried(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    for network, shift in _CARRIERS:
        if address in network:
            return ipaddress.IPv4Address((int(address) >> shift) & 0xFFFF_FFFF)
    return None


def check(process_id: str, wanted: NetworkProxy) -> Rules:
    """The rules that a start asks for; checks come in the reference's order."""
    timeout = wanted.policy_decision_timeout_ms
    if timeout == 0:
        raise InvalidParams("network policy decision callback timeout must be nonzero")
    if timeout is not None and not 1 <= len(process_id.encode()) <= CALLBACK_ID_BYTES:
        raise InvalidParams("callback-enabled process ID must be non-empty and at most 256 bytes")
    return Rules(wanted.proxy)


def _check_sockets(config: ProxyConfig) -> None:
    sockets = config.unix_sockets or {}
    allowed = sorted(path for path, rule in sockets.items() if rule == "allow")
    for index, path in enumerate(allowed):
        if not path.startswith("/") or "\0" in path:
            shown = path.replace("\0", "\\0")
            raise _invalid(
                f"invalid network.allow_unix_sockets[{index}]: expected a NUL-free absolute path "
                f'for Linux, got "{shown}"'
            )


def _invalid(text: str) -> InvalidParams:
    return InvalidParams(_PREFIX + text)

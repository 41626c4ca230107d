"""Which hosts a process may reach: patterns, and the order of the rules.

This is pure: hosts come in their normal form (hosts.py), names are resolved elsewhere, and the
addresses are judged here, too.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from enum import Enum
from fnmatch import translate

from exec_server.errors import InvalidParams
from exec_server.network.addresses import (
    Address,
    as_address,
    is_loopback,
    is_metadata,
    is_public,
    reached,
)
from exec_server.network.hosts import Host, HostRefusal, host_of, normalise_host
from exec_server.protocol.network import NetworkProxy, ProxyConfig

CALLBACK_ID_BYTES = 256

_PREFIX = "invalid network proxy config: "
_PATTERN = re.compile(r"[a-z0-9._:*?-]+")
_LOCALHOST = Host("localhost")
_PORT = re.compile(r":[0-9]*$")
_EVERYTHING = ("*", "**.*")


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
        self._allowed = HostPatterns(allowed)
        self._denied = HostPatterns(denied)
        self._reviewed = HostPatterns(config.review_domains)
        self.allows_local = config.allow_local_binding
        self.is_limited = config.mode == "limited"
        _check_sockets(config)

    def judge(self, host: Host) -> Ruling:
        """Judge *host* before any name is resolved."""
        address = as_address(host)
        if self._denied.match(host) or (address is not None and self._denies(address)):
            return Ruling.DENIED
        # A wildcard does not open local hosts; only an entry of their own does.
        if host not in self._allowed.exact and self._is_local(host, address):
            return Ruling.LOCAL
        if not self._allowed.match(host) or self._reviewed.match(host):
            return Ruling.ASK
        return Ruling.ALLOW

    def judge_addresses(self, host: Host, addresses: Iterable[Address]) -> Ruling:
        """Judge the *addresses* of *host*, which may itself be reached: one is enough to refuse."""
        rulings = {self._judge_address(host, address) for address in addresses}
        refusals = (Ruling.DENIED, Ruling.LOCAL)
        return next((ruling for ruling in refusals if ruling in rulings), Ruling.ALLOW)

    def _judge_address(self, host: Host, address: Address) -> Ruling:
        if self._denies(address):
            return Ruling.DENIED
        if host == host_of(address):
            # This is the address that `judge` has judged.
            return Ruling.ALLOW
        if host == _LOCALHOST and is_loopback(address):
            # This name gets here only if it has an entry of its own, or local hosts are allowed.
            return Ruling.ALLOW
        return Ruling.LOCAL if self._is_closed(address) else Ruling.ALLOW

    def _denies(self, address: Address) -> bool:
        """True if a rule denies *address*, or one that it leads to."""
        return any(self._denied.match(host_of(each)) for each in reached(address))

    def _is_local(self, host: Host, address: Address | None) -> bool:
        if address is None:
            return host == _LOCALHOST and not self.allows_local
        return self._is_closed(address)

    def _is_closed(self, address: Address) -> bool:
        """True if *address* may not be reached unless it has an entry of its own."""
        if is_metadata(address):
            # To allow local hosts is not to hand out the credentials of the machine.
            return host_of(address) not in self._allowed.exact or not self.allows_local
        return not self.allows_local and not is_public(address)


class HostPatterns:
    """Exact hosts, and patterns with ``*`` and ``?``. Raises InvalidParams for other texts."""

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

    def match(self, host: Host) -> bool:
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
    if "*" in pattern or "?" in pattern:
        return pattern
    # A pattern that no host can have is accepted, as in the reference. It matches nothing.
    host = normalise_host(pattern)
    return pattern if isinstance(host, HostRefusal) else host


def _bracketed(text: str, pattern: str) -> str:
    inner, closed, rest = pattern.removeprefix("[").partition("]")
    address = as_address(inner)
    if not pattern.startswith("[") or not closed or not isinstance(address, ipaddress.IPv6Address):
        raise _invalid(f"brackets are only supported for IPv6 literals or [*]: {text}")
    if rest and not _PORT.fullmatch(rest):
        raise _invalid(f"unsupported domain pattern syntax: {text}")
    return host_of(address)


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

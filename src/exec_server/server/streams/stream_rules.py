"""What streams may reach and where they may listen: the loopback, and what the operator allows."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from exec_server.errors import ConfigurationError, FloorRefused
from exec_server.network.addresses import Address, is_metadata, reached
from exec_server.network.hosts import HostRefusal, normalise_host

_NOTHING = "none"
_UNIX, _LISTEN = "unix:", "listen:"
_ALL_PORTS = (0, 65535)
_HINT = "the operator of the server can allow it with --stream-allow"


class _HostRule(NamedTuple):
    """A host, or a network, with a range of ports."""

    # A name, or a pattern such as `*.example.com`; empty for a network.
    name: str
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    first: int
    last: int

    def covers(self, port: int) -> bool:
        return self.first <= port <= self.last

    def has_name(self, host: str) -> bool:
        return bool(self.name) and fnmatchcase(host, self.name)

    def has_address(self, address: Address) -> bool:
        if self.network is not None:
            return address.version == self.network.version and address in self.network
        return self.name == "*"


class StreamRules:
    """The rules of `--stream-allow`. Raises ConfigurationError if one cannot be read.

    Without rules, streams reach the loopback and listen there. A rule adds to that: `HOST:PORT`,
    `NETWORK:PORT`, `unix:PATH` and `listen:HOST:PORT`, with `*` for all ports, `8000-8100` for
    some, and patterns in names and paths. `none` takes the loopback away. Link-local addresses and
    those of the metadata services of clouds are never reached, whatever the rules are.
    """

    def __init__(self, rules: Iterable[str] = ()) -> None:
        self._allows_loopback = True
        self._hosts: list[_HostRule] = []
        self._listening: list[_HostRule] = []
        self._paths: list[str] = []
        for rule in rules:
            self._add(rule.strip())

    def _add(self, rule: str) -> None:
        if rule == _NOTHING:
            self._allows_loopback = False
        elif rule.startswith(_UNIX):
            path = rule.removeprefix(_UNIX)
            if not path.startswith("/") and path != "*":
                raise ConfigurationError(f"`{rule}`: the path of a Unix socket begins with /")
            self._paths.append(path)
        elif rule.startswith(_LISTEN):
            self._listening.append(_host_rule(rule.removeprefix(_LISTEN), rule))
        else:
            self._hosts.append(_host_rule(rule, rule))

    def allows_name(self, host: str, port: int) -> bool:
        """True if a rule names *host*; its addresses need no rule of their own then."""
        return any(rule.has_name(host) and rule.covers(port) for rule in self._hosts)

    def allowed_address(self, address: Address, port: int) -> bool:
        """True if streams may connect to *address*, whatever its name is."""
        if self._allows_loopback and _is_here(address):
            return True
        plain = _plain(address)
        return any(rule.covers(port) and rule.has_address(plain) for rule in self._hosts)

    def check_path(self, path: str) -> None:
        """Raise FloorRefused unless the Unix socket *path* may be used."""
        if "\0" in path or ".." in path.split("/"):
            # A pattern would take it for a path below its own directory.
            raise FloorRefused(f"streams may not use the Unix socket {path!r}: it leads elsewhere")
        if not any(fnmatchcase(path, pattern) for pattern in self._paths):
            raise FloorRefused(f"streams may not use the Unix socket {path}; {_HINT} unix:{path}")

    def check_listening(self, address: Address, port: int) -> bool:
        """Raise FloorRefused unless a client may listen on *address* and *port*.

        True if a rule names the place: it is for all users of the machine then.
        """
        plain = _plain(address)
        if any(rule.covers(port) and rule.has_address(plain) for rule in self._listening):
            return True
        if not self._allows_loopback or not plain.is_loopback:
            place = joined(str(address), port)
            raise FloorRefused(f"streams may not listen on {place}; {_HINT} listen:{place}")
        return False


def is_forbidden(address: Address) -> bool:
    """True if no rule can allow *address*."""
    return is_metadata(address) or any(
        each.is_link_local or each.is_multicast for each in reached(address)
    )


def refused(host: str, port: int) -> FloorRefused:
    """The error for a host that no rule allows."""
    place = joined(host, port)
    return FloorRefused(f"streams may not reach {place}; {_HINT} {place}")


def forbidden(host: str, port: int) -> FloorRefused:
    """The error for a link-local address, or one of a metadata service."""
    place = joined(host, port)
    return FloorRefused(
        f"streams never reach {place}: it is a link-local address or a metadata service"
    )


def joined(host: str, port: int) -> str:
    """A host and a port in one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _plain(address: Address) -> Address:
    """An IPv4 address that is written as one of IPv6 as itself."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _is_here(address: Address) -> bool:
    """True if *address* leads to this machine: the kernel takes an unspecified one for it, too."""
    plain = _plain(address)
    return plain.is_loopback or plain.is_unspecified


def _host_rule(text: str, rule: str) -> _HostRule:
    host, _, ports = text.rpartition(":")
    if not host or not ports:
        raise ConfigurationError(f"`{rule}` is not HOST:PORT, unix:PATH, listen:HOST:PORT or none")
    first, last = _ports(ports, rule)
    host = host.removeprefix("[").removesuffix("]").lower()
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        if "/" in host:
            raise ConfigurationError(f"`{rule}`: {host} is not a network") from None
    else:
        return _HostRule("", network, first, last)
    if "*" not in host and isinstance(normalise_host(host), HostRefusal):
        raise ConfigurationError(f"`{rule}`: {host} is not the name of a host")
    return _HostRule(host, None, first, last)


def _ports(text: str, rule: str) -> tuple[int, int]:
    if text == "*":
        return _ALL_PORTS
    first, dash, last = text.partition("-")
    try:
        found = int(first), int(last if dash else first)
    except ValueError:
        found = (1, 0)
    if not 0 <= found[0] <= found[1] <= _ALL_PORTS[1]:
        raise ConfigurationError(f"`{rule}`: {text} is not a port or a range of ports")
    return found

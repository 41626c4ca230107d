"""IP addresses: which are public, and to which other addresses one may lead. This is pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# All networks that are not public (RFC 6890 and its updates).
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 "
        "192.0.0.0/24 192.0.2.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 "
        "224.0.0.0/4 240.0.0.0/4 "
        "::/128 ::1/128 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001:2::/48 2001:10::/28 "
        "2001:db8::/32 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8"
    ).split()
)
# Services of clouds that hand out credentials of the machine to every program that asks. The one of
# Azure lies in a public network.
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 168.63.129.16 "
        "fd00:ec2::254 fd00:ec2::23 fd20:ce::254"
    ).split()
)
# IPv6 networks whose addresses carry an IPv4 address, and how many bits follow after it:
# IPv4-mapped, IPv4-compatible, IPv4-translated, NAT64, 6to4, and the server of Teredo.
_CARRIERS = tuple(
    (ipaddress.IPv6Network(text), shift)
    for text, shift in (
        ("::ffff:0:0/96", 0),
        ("::/96", 0),
        ("::ffff:0:0:0/96", 0),
        ("64:ff9b::/96", 0),
        ("64:ff9b:1::/48", 0),
        ("2002::/16", 80),
        ("2001::/32", 64),
    )
)
_TEREDO = ipaddress.IPv6Network("2001::/32")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
# The two groups before the IPv4 address that ends an ISATAP address.
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
_WORD = 0xFFFF_FFFF


def as_address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """True if *address*, and every address that it may lead to, is one of the public Internet."""
    return not is_metadata(address) and not any(
        each in network for each in reached(address) for network in _NOT_PUBLIC
    )


def is_loopback(address: Address) -> bool:
    """True if a connection to *address* may end on this machine."""
    return any(each.is_loopback for each in reached(address))


def is_metadata(address: Address) -> bool:
    """True if *address* leads to a cloud's service that hands out credentials."""
    return not _METADATA.isdisjoint(reached(address))


def reached(address: Address) -> tuple[Address, ...]:
    """Return *address* without its zone, and each address at which its packets may arrive."""
    plain = ipaddress.IPv6Address(int(address)) if address.version == 6 else address
    found: list[Address] = [plain, *(_carried(plain) if plain.version == 6 else ())]
    # The kernel takes an unspecified destination for the loopback.
    found += [
        ipaddress.ip_address("127.0.0.1" if each.version == 4 else "::1")
        for each in found
        if each.is_unspecified
    ]
    return tuple(dict.fromkeys(found))


def _carried(address: Address) -> Iterator[ipaddress.IPv4Address]:
    number = int(address)
    for network, shift in _CARRIERS:
        if address in network:
            yield ipaddress.IPv4Address((number >> shift) & _WORD)
    if address in _TEREDO:
        # The address of the client is written with all its bits inverted.
        yield ipaddress.IPv4Address(~number & _WORD)
    if (number >> 32) & _WORD in _ISATAP:
        yield ipaddress.IPv4Address(number & _WORD)
    if address in _LOCAL_NAT64:
        yield from _translated(number)


def _translated(number: int) -> Iterator[ipaddress.IPv4Address]:
    """Read an address as RFC 6052 writes it after a prefix of 48, 56 or 64 bits."""
    # Eight zero bits, the 65th to the 72nd, interrupt the IPv4 address.
    joined = (number >> 64 << 56) | (number & ((1 << 56) - 1))
    for length in (48, 56, 64):
        inner = (joined >> (120 - length - 32)) & _WORD
        # A prefix of another length leaves zeros here.
        if inner:
            yield ipaddress.IPv4Address(inner)

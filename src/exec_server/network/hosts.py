"""The one form of a host name: what the rules judge is what the resolver is asked for.

A process may write a host in many ways: `BAD.test.`, `bad。test` with a Unicode dot, full-width
letters, soft hyphens, or `127.1` and `0x7f000001` for 127.0.0.1. Every text that a process sends is
read here, once, at the edge of the proxy. It becomes a `Host` or it is refused. This is pure.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NewType

import msgspec

from exec_server.network.addresses import Address
from exec_server.printable import printable

# An address in its canonical form, or a name in lower-case ASCII without a last dot.
Host = NewType("Host", str)

_NAME_CHARACTERS = 253
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
# A name whose last label looks like a number is an address, or it is refused: resolvers differ.
_LIKE_A_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NUMBER = re.compile(r"0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*")


class HostRefusal(msgspec.Struct, frozen=True):
    """A text that is not the name or the address of a host."""

    # The text as it may be logged and reported: without control characters, and not too long.
    shown: str
    problem: str


class _NotAHost(ValueError):
    """The message says why."""


def normalise_host(raw: str | bytes) -> Host | HostRefusal:
    """Read *raw*, the name or the address that a process sent, without brackets and port.

    Names that are not ASCII are read by UTS 46 and have to be valid in IDNA 2008. Addresses of IPv4
    are read in every form that the C library takes: in one to four decimal, octal or hexadecimal
    numbers. Refused are control characters, blanks, empty and over-long labels and names, percent
    signs, zones and brackets.
    """
    try:
        return _normalised(raw.decode() if isinstance(raw, bytes) else raw)
    except _NotAHost as exc:
        problem = str(exc)
    except ValueError:
        # This includes bytes that are not UTF-8 and all errors of `idna` and `ipaddress`.
        problem = "it is neither a valid name nor an address"
    return HostRefusal(printable(raw), problem)


def normalise_authority_host(raw: str | bytes) -> Host | HostRefusal:
    """Read the host of a URL or a Host header, where an IPv6 address is in brackets."""
    text = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    if not text.startswith("["):
        if ":" in text:
            return HostRefusal(printable(raw), "an IPv6 address has no brackets")
        return normalise_host(raw)
    inner = text[1:-1]
    if not text.endswith("]") or ":" not in inner:
        return HostRefusal(printable(raw), "brackets are only for IPv6 addresses")
    return normalise_host(inner)


def host_of(address: Address) -> Host:
    """Return *address* as a host."""
    return Host(str(address))


def _normalised(text: str) -> Host:
    # A longer text is not read at all. The last dot is not counted.
    if len(text) > _NAME_CHARACTERS + 1:
        raise _NotAHost("it is too long")
    if "%" in text:
        raise _NotAHost("it has a percent sign")
    if ":" in text:
        return host_of(ipaddress.IPv6Address(text))
    name = text.lower() if text.isascii() else _to_ascii(text)
    name = name.removesuffix(".")
    labels = name.split(".")
    if _LIKE_A_NUMBER.fullmatch(labels[-1]):
        return host_of(_ipv4(labels))
    if len(name) > _NAME_CHARACTERS:
        raise _NotAHost("it is too long")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise _NotAHost("it has an empty or over-long label, or a character that names do not have")
    return Host(name)


def _to_ascii(name: str) -> str:
    import idna  # Its tables are large, and most names are ASCII.

    mapped = idna.uts46_remap(name, std3_rules=True, transitional=False)
    return ".".join(
        label if label.isascii() else idna.alabel(label).decode("ascii")
        for label in mapped.split(".")
    )


def _ipv4(labels: list[str]) -> ipaddress.IPv4Address:
    """Read one to four numbers; the last one fills all bytes that are left."""
    if len(labels) > 4 or not all(_NUMBER.fullmatch(label) for label in labels):
        raise _NotAHost("it ends in a number and is not an address")
    *leading, last = map(_number, labels)
    if any(part > 255 for part in leading) or last >= 256 ** (4 - len(leading)):
        raise _NotAHost("it ends in a number and is not an address")
    high = sum(part << 8 * (3 - index) for index, part in enumerate(leading))
    return ipaddress.IPv4Address(high | last)


def _number(text: str) -> int:
    if text.startswith("0x"):
        return int(text, 16)
    return int(text, 8) if text.startswith("0") else int(text)

"""One HTTP head: where it is addressed, and which of its headers go on to the next hop.

h11 reads the heads and refuses any that could be read in two ways. The bytes of bodies never pass
through it unless they come in chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import formatdate
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from exec_server.network.hosts import Host, HostRefusal, normalise_authority_host

Headers = list[tuple[bytes, bytes]]

# These headers are for one hop only (RFC 9110, 7.6.1), whatever Connection says.
_HOP_BY_HOP = frozenset(
    b"connection proxy-connection keep-alive proxy-authenticate proxy-authorization te trailer "
    b"transfer-encoding upgrade expect".split()
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?:[^@]*@)?(?P<host>\[[^\]]*\]|[^:@]*)(?::(?P<port>[0-9]*))?")
UNIX_SOCKET_HEADER = b"x-unix-socket"


class BadTarget(Exception):
    """A request whose target is invalid; the text is for the process."""


class RequestTarget(NamedTuple):
    """The destination of a request."""

    scheme: str
    host: Host
    port: int
    # The path and the query, as the origin expects them.
    path: bytes


def target(request: h11.Request) -> RequestTarget:
    """The target of *request*. Raises BadTarget."""
    text = request.target.decode("ascii", "replace")
    named = header(request.headers, b"host") or None
    if request.method == b"CONNECT":
        host, port = _authority(text)
        return RequestTarget("connect", host, port if port is not None else 80, b"")
    if text.startswith("/") or text == "*":
        if named is None:
            raise BadTarget("missing host")
        host, port = _authority(named.decode("utf-8", "replace"))
        return RequestTarget("http", host, port or 80, request.target)
    return _absolute(text, named)


def _absolute(text: str, named: bytes | None) -> RequestTarget:
    try:
        parts = urlsplit(text)
    except ValueError:
        raise BadTarget("missing host") from None
    scheme = parts.scheme.lower()
    host, port = _authority(parts.netloc)
    default = _DEFAULT_PORTS.get(scheme, 0)
    if named is not None:
        other, other_port = _authority(named.decode("utf-8", "replace"))
        if (other, other_port or default) != (host, port or default) or not default:
            raise BadTarget("Host header does not match request target")
    if not default:
        raise BadTarget("unsupported scheme")
    path = text[len(parts.scheme) + len("://") + len(parts.netloc) :].partition("#")[0]
    if not path.startswith("/"):
        path = f"/{path}"
    return RequestTarget(scheme, host, port or default, path.encode())


def _authority(text: str) -> tuple[Host, int | None]:
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise BadTarget("missing host")
    host = normalise_authority_host(match["host"])
    if isinstance(host, HostRefusal):
        raise BadTarget("missing host")
    port = int(match["port"]) if match["port"] and len(match["port"]) < 6 else None
    if port is not None and port > 65535:
        raise BadTarget("missing host")
    return host, port


def authority(host: str, port: int, *, default: int) -> str:
    """*host* and *port* as a Host header has them."""
    shown = f"[{host}]" if ":" in host else host
    return shown if port == default else f"{shown}:{port}"


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


def onward(headers: h11._headers.Headers, *, drop: frozenset[bytes] = frozenset()) -> Headers:
    """Return *headers* without those of this hop; the spelling of names stays."""
    listed = {
        word.strip().lower()
        for name, value in headers
        if name == b"connection"
        for word in value.split(b",")
    }
    # Without its length a body would be taken for another request, or for another answer.
    gone = _HOP_BY_HOP | (listed - {b"content-length"}) | drop
    if header(headers, b"transfer-encoding") is not None:
        # A body with two lengths is how a request is smuggled past a server.
        gone |= {b"content-length"}
    return [(raw, value) for raw, value in headers.raw_items() if raw.lower() not in gone]


def head(first_line: bytes, headers: Headers) -> bytes:
    return b"".join([first_line, b"\r\n", *(b"%b: %b\r\n" % pair for pair in headers), b"\r\n"])


def date() -> bytes:
    """The current time as a Date header has it."""
    return formatdate(usegmt=True).encode()


class Framing(NamedTuple):
    """How a body ends: after *length* bytes, with its last chunk, or with the connection."""

    length: int | None = 0
    is_chunked: bool = False

    @property
    def is_empty(self) -> bool:
        return self.length == 0 and not self.is_chunked


def framing(message: h11.Request | h11.Response, *, method: bytes) -> Framing:
    """How the body of *message* ends; *method* is that of the request."""
    is_response = isinstance(message, h11.Response)
    if isinstance(message, h11.Response) and (
        method == b"HEAD" or message.status_code in (204, 304)
    ):
        return Framing()
    # h11 has normalised both, and lets nothing but `chunked` pass.
    if header(message.headers, b"transfer-encoding") is not None:
        return Framing(None, is_chunked=True)
    length = header(message.headers, b"content-length")
    if length is not None:
        return Framing(int(length))
    return Framing(None) if is_response else Framing()

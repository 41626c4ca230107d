"""Where a server listens: the values of ``--listen``."""

from __future__ import annotations

import msgspec

from exec_server.defaults import DEFAULT_LISTEN_URL as DEFAULT_LISTEN_URL
from exec_server.errors import ExecServerListenUrlParseError

_WEBSOCKET = "ws://"
_UNIX = "unix://"
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"


class TcpAddress(msgspec.Struct, frozen=True):
    """A WebSocket listener on a literal IP address; port 0 asks for any free one."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The URL for clients, with brackets around an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_WEBSOCKET}{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address; a host name is never loopback."""
        try:
            packed = _packed(self.host)
        except ValueError:
            return False
        if len(packed) == 16 and packed.startswith(_MAPPED_IPV4):
            packed = packed[12:]
        return packed[0] == 127 if len(packed) == 4 else packed == bytes(15) + b"\x01"


class StdioAddress(msgspec.Struct, frozen=True):
    """One connection on standard input and output."""


class SystemdAddress(msgspec.Struct, frozen=True):
    """The socket that systemd passes on: socket activation."""


class UnixAddress(msgspec.Struct, frozen=True):
    """A WebSocket listener on a socket in the file system; a relative path is kept as it is."""

    path: str

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"{_UNIX}{self.path}"


ListenAddress = TcpAddress | StdioAddress | UnixAddress | SystemdAddress


def parse_listen_url(url: str) -> ListenAddress:
    """Read a ``--listen`` value; nothing is trimmed and schemes are case-sensitive.

    The host of a TcpAddress is in its shortest usual spelling. Raises
    ExecServerListenUrlParseError for a value that names no transport.
    """
    if url in ("stdio", "stdio://"):
        return StdioAddress()
    if url == "systemd":
        return SystemdAddress()
    if url.startswith(_WEBSOCKET):
        return _parse_tcp(url)
    if url.startswith(_UNIX):
        return _parse_unix(url)
    raise ExecServerListenUrlParseError(
        # The words before the bracket are those of the reference, which has no Unix sockets.
        f"unsupported --listen URL `{url}`; expected `ws://IP:PORT` or `stdio` (or `unix://PATH`)"
    )


def _parse_tcp(url: str) -> TcpAddress:
    host, _, port = url.removeprefix(_WEBSOCKET).rpartition(":")
    try:
        return TcpAddress(_canonical_host(host), _port(port))
    except ValueError:
        raise ExecServerListenUrlParseError(
            f"invalid websocket --listen URL `{url}`; expected `ws://IP:PORT`"
        ) from None


def _parse_unix(url: str) -> UnixAddress:
    path = url.removeprefix(_UNIX)
    if not path or "\0" in path:
        raise ExecServerListenUrlParseError(
            f"invalid unix --listen URL `{url}`; expected `unix://PATH`"
        )
    return UnixAddress(path)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    port = int(text)
    if port > 65535:
        raise ValueError(text)
    return port


def _canonical_host(text: str) -> str:
    from socket import AF_INET6, inet_ntop

    if not text.startswith("["):
        _packed_ipv4(text)
        return text
    host, percent, scope = text[1:-1].partition("%")
    if not text.endswith("]") or (percent and not _is_scope_id(scope)):
        raise ValueError(text)
    return inet_ntop(AF_INET6, _packed_ipv6(host)) + percent + scope


def _is_scope_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < 2**32


def _packed(host: str) -> bytes:
    """Return the 4 or 16 bytes of a literal address, without its scope. Raises ValueError."""
    return _packed_ipv6(host.partition("%")[0]) if ":" in host else _packed_ipv4(host)


# `socket` is imported where it is used: it costs 6 ms, which `--help` and usage errors do not need.
def _packed_ipv4(host: str) -> bytes:
    from socket import AF_INET, inet_ntop, inet_pton

    try:
        packed = inet_pton(AF_INET, host)
    except OSError:
        raise ValueError(host) from None
    # Some platforms also read 127.1 or 0127.0.0.1, and they differ in what these mean.
    if inet_ntop(AF_INET, packed) != host:
        raise ValueError(host)
    return packed


def _packed_ipv6(host: str) -> bytes:
    from socket import AF_INET6, inet_pton

    try:
        return inet_pton(AF_INET6, host)
    except OSError:
        raise ValueError(host) from None

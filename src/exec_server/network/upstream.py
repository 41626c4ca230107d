"""Connect to an allowed host: to its addresses, or through the server's own proxy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import os
import socket
import weakref
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from exec_server.limits import Limits
from exec_server.network.addresses import Address, as_address, is_loopback, is_public

_HEAD_END = b"\r\n\r\n"


class Unreachable(Exception):
    """No connection could be made."""

    def __init__(self, errno: int | None = None) -> None:
        super().__init__(errno)
        self.errno = errno


class Resolution(NamedTuple):
    """What a resolver has found for a name."""

    addresses: list[Address]
    # The last name of a chain of aliases; a short name is completed in it.
    name: str = ""


class UpstreamProxy(NamedTuple):
    """An HTTP proxy that the server itself uses."""

    host: str
    port: int
    # The value of `Proxy-Authorization`; None without credentials.
    authorization: str | None

    def __repr__(self) -> str:
        return f"UpstreamProxy({self.host!r}, {self.port})"


class Upstreams:
    """The proxies that the server's environment names, and when they are used.

    With *reaches_private* they are also used for private addresses, but never for loopback.
    """

    def __init__(self, environ: Mapping[str, str], *, reaches_private: bool = False) -> None:
        self._environ = environ
        self._reaches_private = reaches_private
        self._excluded = [
            entry.strip().lower().lstrip(".")
            for entry in (environ.get("NO_PROXY") or environ.get("no_proxy") or "").split(",")
            if entry.strip()
        ]

    def choose(self, scheme: str, host: str, addresses: Sequence[Address]) -> UpstreamProxy | None:
        """The proxy for *host* at *addresses*; None connects directly. Raises Unreachable.

        *scheme* is `http`, or `https` for a tunnel.
        """
        if not all(self._may_have(address) for address in addresses) or self._is_excluded(host):
            return None
        names = [f"{scheme.upper()}_PROXY", "ALL_PROXY"]
        if scheme == "http" and "REQUEST_METHOD" in self._environ:
            # In a CGI program HTTP_PROXY comes from the Proxy header of the caller, so it is not
            # trusted.
            names = ["ALL_PROXY"]
        for name in names:
            value = self._environ.get(name) or self._environ.get(name.lower())
            if value:
                return _parse(value)
        return None

    def _may_have(self, address: Address) -> bool:
        if is_public(address):
            return True
        return self._reaches_private and not is_loopback(address)

    def _is_excluded(self, host: str) -> bool:
        address = as_address(host)
        for entry in self._excluded:
            if address is not None:
                with contextlib.suppress(ValueError):
                    if address in ipaddress.ip_network(entry, strict=False):
                        return True
            elif entry == "*" or host == entry or host.endswith(f".{entry}"):
                return True
        return False


def _parse(value: str) -> UpstreamProxy:
    """Raises Unreachable if the proxy cannot be used: going around it is not what was asked for."""
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise Unreachable from None
    if parts.scheme != "http" or not host:
        raise Unreachable
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return UpstreamProxy(host, port or 80, authorization)


async def resolve(host: str, *, seconds: float) -> Resolution:
    """What the system's resolver knows of *host*; no addresses when they are not known in time."""
    literal = as_address(host)
    if literal is not None:
        return Resolution([literal], host)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            found = await loop.getaddrinfo(
                host, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME
            )
    except (OSError, TimeoutError, UnicodeError):
        return Resolution([])
    addresses = [as_address(str(sockaddr[0])) for *_, sockaddr in found]
    known = dict.fromkeys(address for address in addresses if address is not None)
    return Resolution(list(known), next((name for *_, name, _ in found if name), host))


async def is_completed(host: str, *, seconds: float) -> bool:
    """True if *host*, which was found, is not a whole name: the search list was used for it."""
    return not (await resolve(f"{host}.", seconds=seconds)).addresses


def search_list() -> list[str]:
    """The domains with which the resolver completes short names (resolv.conf(5))."""
    given = os.environ.get("LOCALDOMAIN")
    if given is not None:
        return given.split()
    found: list[str] = []
    with contextlib.suppress(OSError), open("/etc/resolv.conf", errors="replace") as file:
        for words in map(str.split, file):
            # The last of these lines counts.
            if words and words[0] in ("search", "domain"):
                found = words[1:]
    return found or [socket.gethostname().partition(".")[2]]


async def connect(addresses: Sequence[Address], port: int, *, limits: Limits) -> socket.socket:
    """A connection to the first of *addresses* that accepts one. Raises Unreachable."""
    error: OSError | None = None
    try:
        async with asyncio.timeout(limits.proxy_connect_timeout):
            for address in addresses:
                try:
                    return await _connect_one(address, port)
                except OSError as exc:
                    error = exc
    except TimeoutError:
        pass
    raise Unreachable(error.errno if error is not None else None)


async def _connect_one(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM)
    _open_sockets[sock] = served_connection.get()
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except BaseException:
        sock.close()
        raise
    return sock


async def connect_proxy(proxy: UpstreamProxy, *, limits: Limits) -> socket.socket:
    """A connection to *proxy* itself, which may be anywhere. Raises Unreachable."""
    found = await resolve(proxy.host, seconds=limits.proxy_resolve_timeout)
    return await connect(found.addresses, proxy.port, limits=limits)


async def connect_through(proxy: UpstreamProxy, authority: str, *, limits: Limits) -> socket.socket:
    """A tunnel to *authority* through *proxy*. Raises Unreachable."""
    sock = await connect_proxy(proxy, limits=limits)
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    try:
        async with asyncio.timeout(limits.proxy_connect_timeout):
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode())
            status = await _read_status(sock, limits)
    except (OSError, TimeoutError) as exc:
        sock.close()
        raise Unreachable from exc
    except BaseException:
        sock.close()
        raise
    if not 200 <= status < 300:
        sock.close()
        raise Unreachable
    return sock


async def _read_status(sock: socket.socket, limits: Limits) -> int:
    """Read the head of an answer to its last byte and not beyond: the tunnel begins there."""
    loop = asyncio.get_running_loop()
    head = b""
    while _HEAD_END not in head and len(head) < limits.proxy_head_bytes:
        await readable(sock)
        peeked = sock.recv(4096, socket.MSG_PEEK)
        if not peeked:
            return 0
        end = (head + peeked).find(_HEAD_END)
        wanted = len(peeked) if end < 0 else end + len(_HEAD_END) - len(head)
        head += await loop.sock_recv(sock, wanted)
    words = head.split(b" ", 2)
    is_status = words[0].startswith(b"HTTP/1.") and len(words) > 1 and words[1][:3].isdigit()
    return int(words[1][:3]) if is_status else 0


async def readable(sock: socket.socket) -> None:
    """Wait until there is something to read, or the end of file."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(sock, on_readable)
    try:
        await ready
    finally:
        loop.remove_reader(sock)


# Our address and that of the process, of the connection to the proxy that a task serves.
ServedConnection = tuple[tuple[str, int], tuple[str, int]]
served_connection: ContextVar[ServedConnection | None] = ContextVar(
    "served_connection", default=None
)

# The connections that were made for commands and are still open, and for whom each was made.
_open_sockets: weakref.WeakKeyDictionary[socket.socket, ServedConnection | None] = (
    weakref.WeakKeyDictionary()
)


def made_for_a_command(inode: int) -> bool:
    """True if the socket *inode* is one that `connect` has opened, and that is still open."""
    return _opened(inode) is not None


def served_behind(inode: int) -> ServedConnection | None:
    """The connection to a proxy for which `connect` has opened the socket *inode*."""
    sock = _opened(inode)
    return None if sock is None else _open_sockets[sock]


def _opened(inode: int) -> socket.socket | None:
    for sock in tuple(_open_sockets):
        if sock.fileno() >= 0 and os.fstat(sock.fileno()).st_ino == inode:
            return sock
    return None

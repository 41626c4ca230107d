"""Connect for a stream: a name is resolved once, its addresses are checked, one of them is used."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from typing import TYPE_CHECKING

from exec_server.errors import InternalError, InvalidParams
from exec_server.network.addresses import Address, is_public
from exec_server.network.hosts import Host, HostRefusal, normalise_host
from exec_server.server.streams.stream_rules import (
    StreamRules,
    forbidden,
    is_forbidden,
    joined,
    refused,
)

if TYPE_CHECKING:
    from exec_server.server.floors.host_floor import HostFloor


def failed(
    what: str, exc: OSError | None, number: int | None = None, why: str | None = None
) -> InternalError:
    """The error for something that the system refuses, as clients understand it."""
    number = number or (exc.errno if exc is not None else None) or errno.EIO
    error = InternalError(f"{what}: {why or os.strerror(number)} (os error {number})")
    error.errno = number
    return error


def read_host(text: str) -> Host:
    """*text* in its normal form. Raises InvalidParams."""
    host = normalise_host(text)
    if isinstance(host, HostRefusal):
        raise InvalidParams(f"`{host.shown}` is not a host: {host.problem}")
    return host


async def dial_tcp(
    host: Host, port: int, *, rules: StreamRules, seconds: float, floor: HostFloor | None
) -> tuple[socket.socket, Address]:
    """A socket that is connected to *host*, if the rules and the principal's *floor* allow it.

    The second value is the address that it is connected to, which a socket that was reset has
    forgotten.
    """
    if floor is not None:
        floor.check(f"[{host}]" if ":" in host else host)
    addresses = await resolve(host, port, seconds=seconds)
    if any(is_forbidden(address) for address in addresses):
        raise forbidden(host, port)
    if not rules.allows_name(host, port):
        addresses = [each for each in addresses if rules.allowed_address(each, port)]
    if floor is not None and not floor.allows_local:
        # A name that a pattern lets through may lead to any address.
        addresses = [each for each in addresses if is_public(each)]
    if not addresses:
        raise refused(host, port)
    return await _first_connected(addresses, host, port, seconds)


async def resolve(host: Host, port: int, *, seconds: float) -> list[Address]:
    """The addresses of *host*, in the order in which they should be tried."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as exc:
        text = exc.strerror if isinstance(exc, socket.gaierror) else str(exc)
        raise failed(f"cannot resolve {host}", None, errno.EHOSTUNREACH, text) from exc
    except TimeoutError:
        raise failed(f"cannot resolve {host}", None, errno.ETIMEDOUT) from None
    return list(dict.fromkeys(ipaddress.ip_address(place[4][0]) for place in found))


async def _first_connected(
    addresses: list[Address], host: str, port: int, seconds: float
) -> tuple[socket.socket, Address]:
    what = f"cannot connect to {joined(host, port)}"
    last: OSError | None = None
    for address in addresses:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        try:
            return await _connected(family, (str(address), port), seconds), address
        except TimeoutError:
            last = OSError(errno.ETIMEDOUT, "")
        except OSError as exc:
            last = exc
    raise failed(what, last, None if last is not None else errno.EHOSTUNREACH)


async def dial_unix(path: str, *, seconds: float) -> socket.socket:
    """A socket that is connected to the Unix socket *path*."""
    try:
        return await _connected(socket.AF_UNIX, path, seconds)
    except TimeoutError:
        raise failed(f"cannot connect to {path}", None, errno.ETIMEDOUT) from None
    except OSError as exc:
        raise failed(f"cannot connect to {path}", exc, exc.errno or errno.EINVAL) from exc


async def _connected(
    family: socket.AddressFamily, address: tuple[str, int] | str, seconds: float
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setblocking(False)
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock

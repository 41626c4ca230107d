"""The greeting of SOCKS5 (RFC 1928): CONNECT alone, without passwords."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket

from exec_server.client.streams.stream_place import StreamPlace
from exec_server.errors import FloorRefused, RuleRefused

_VERSION = 5
_NO_PASSWORD, _NO_METHOD = 0, 0xFF
_CONNECT, _UDP = 1, 3
_IPV4, _NAME, _IPV6 = 1, 3, 4
_SUCCEEDED, _FAILED, _NOT_ALLOWED, _NO_SUCH_COMMAND, _NO_SUCH_ADDRESS = 0, 1, 2, 7, 8
_CODES = {
    errno.ENETUNREACH: 3,
    errno.EHOSTUNREACH: 4,
    errno.ETIMEDOUT: 4,
    errno.ECONNREFUSED: 5,
}
_SECONDS = 60.0
_LEFT = "a program has closed its connection before it said where to connect"


class NotSocks(Exception):
    """The program does not speak SOCKS5, or asks for what this proxy does not do."""


async def asked_place(sock: socket.socket) -> StreamPlace:
    """The place that the program wants. Raises NotSocks after a refusal, and without one."""
    try:
        async with asyncio.timeout(_SECONDS):
            await _greet(sock)
            return await _request(sock)
    except TimeoutError:
        raise NotSocks("a program has not said where it wants to connect") from None
    except OSError:
        raise NotSocks(_LEFT) from None


async def confirm(sock: socket.socket) -> None:
    await _reply(sock, _SUCCEEDED)


async def refuse(sock: socket.socket, exc: Exception) -> None:
    """Tell the program why there is no connection."""
    if isinstance(exc, FloorRefused | RuleRefused):
        code = _NOT_ALLOWED
    else:
        code = _CODES.get(getattr(exc, "errno", None) or 0, _FAILED)
    await _reply(sock, code)


async def _greet(sock: socket.socket) -> None:
    version, count = await _read(sock, 2)
    if version != _VERSION:
        raise NotSocks("a program does not speak SOCKS5; use socks5h://, not http:// or socks4://")
    is_welcome = _NO_PASSWORD in await _read(sock, count)
    method = _NO_PASSWORD if is_welcome else _NO_METHOD
    await asyncio.get_running_loop().sock_sendall(sock, bytes((_VERSION, method)))
    if not is_welcome:
        raise NotSocks("a program wants to give a password to the SOCKS5 proxy, which has none")


async def _request(sock: socket.socket) -> StreamPlace:
    version, command, _, kind = await _read(sock, 4)
    if version != _VERSION:
        raise NotSocks("a program has broken off its greeting of SOCKS5")
    if kind == _NAME:
        (size,) = await _read(sock, 1)
        host = (await _read(sock, size)).decode("utf-8", "replace")
    elif kind in (_IPV4, _IPV6):
        host = str(ipaddress.ip_address(await _read(sock, 4 if kind == _IPV4 else 16)))
    else:
        await _reply(sock, _NO_SUCH_ADDRESS)
        raise NotSocks("a program asks the SOCKS5 proxy for an address of an unknown kind")
    port = int.from_bytes(await _read(sock, 2), "big")
    if command != _CONNECT:
        await _reply(sock, _NO_SUCH_COMMAND)
        wish = "UDP" if command == _UDP else "BIND"
        raise NotSocks(f"a program asks the SOCKS5 proxy for {wish}; it does TCP's CONNECT alone")
    return StreamPlace.tcp(host, port)


async def _reply(sock: socket.socket, code: int) -> None:
    answer = bytes((_VERSION, code, 0, _IPV4)) + bytes(6)
    await asyncio.get_running_loop().sock_sendall(sock, answer)


async def _read(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = await asyncio.get_running_loop().sock_recv(sock, size - len(found))
        if not data:
            raise NotSocks(_LEFT)
        found += data
    return found

"""One connection of a process to its proxy that speaks SOCKS5 (RFC 1928), without passwords."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket

from exec_server.limits import Limits
from exec_server.network import relay, upstream
from exec_server.network.blocked import Attempt, Verdict
from exec_server.network.datagrams import Association
from exec_server.network.decider import Decider
from exec_server.network.hang_up import decide_unless_gone
from exec_server.network.hosts import Host, HostRefusal, host_of, normalise_host
from exec_server.network.upstream import Unreachable

_VERSION = 5
_NO_PASSWORD = 0
_CONNECT, _ASSOCIATE = 1, 3
_IPV4, _NAME, _IPV6 = 1, 3, 4

SUCCEEDED, _NOT_ALLOWED, _FAILED, _NO_SUCH_COMMAND = 0, 2, 1, 7
_CODES = {
    errno.ENETUNREACH: 3,
    errno.EHOSTUNREACH: 4,
    errno.ETIMEDOUT: 4,
    errno.ECONNREFUSED: 5,
}


class _Malformed(Exception):
    """The bytes are not SOCKS5."""


class SocksConnection:
    """Serves *sock* until the process or an error ends it; the caller closes the socket."""

    def __init__(
        self,
        sock: socket.socket,
        client: str,
        *,
        decider: Decider,
        with_datagrams: bool,
        limits: Limits,
    ) -> None:
        self._sock = sock
        self._client = client
        self._decider = decider
        self._with_datagrams = with_datagrams
        self._limits = limits
        self._loop = asyncio.get_running_loop()

    async def serve(self) -> None:
        with contextlib.suppress(_Malformed, OSError, TimeoutError, relay.Idle):
            async with asyncio.timeout(self._limits.proxy_head_timeout):
                if not await self._greet():
                    return
                command, host, port = await self._request()
            if command == _CONNECT:
                await self._connect(Attempt("socks5_tcp", host, port, None, self._client))
            elif command == _ASSOCIATE and self._with_datagrams:
                await self._associate()
            else:
                await self._reply(_NO_SUCH_COMMAND)

    async def _greet(self) -> bool:
        version, count = await self._read(2)
        if version != _VERSION:
            raise _Malformed
        is_welcome = _NO_PASSWORD in await self._read(count)
        await self._send(bytes((_VERSION, _NO_PASSWORD if is_welcome else 0xFF)))
        return is_welcome

    async def _request(self) -> tuple[int, Host | HostRefusal, int]:
        version, command, _, kind = await self._read(4)
        if version != _VERSION:
            raise _Malformed
        host: Host | HostRefusal
        if kind == _IPV4:
            host = host_of(ipaddress.IPv4Address(await self._read(4)))
        elif kind == _IPV6:
            host = host_of(ipaddress.IPv6Address(await self._read(16)))
        elif kind == _NAME:
            (length,) = await self._read(1)
            host = normalise_host(await self._read(length))
        else:
            raise _Malformed
        return command, host, int.from_bytes(await self._read(2), "big")

    async def _connect(self, attempt: Attempt) -> None:
        decided = await decide_unless_gone(self._decider, attempt, self._sock)
        if decided is None:
            return
        if isinstance(decided, Verdict):
            await self._reply(_NOT_ALLOWED)
            return
        try:
            other = await upstream.connect(decided.addresses, attempt.port, limits=self._limits)
        except Unreachable as exc:
            await self._reply(_CODES.get(exc.errno or 0, _FAILED))
            return
        with other:
            await self._reply(SUCCEEDED, other.getsockname())
            await relay.tunnel(self._sock, other, idle=self._limits.proxy_idle_timeout)

    async def _associate(self) -> None:
        """Relay datagrams for as long as this connection stays open."""
        host = self._sock.getsockname()[0]
        async with Association(
            host, self._client, decider=self._decider, limits=self._limits
        ) as association:
            await self._reply(SUCCEEDED, association.address)
            # No more data is expected here; the end of the connection ends the association.
            while await self._loop.sock_recv(self._sock, 512):
                pass

    async def _reply(self, code: int, bound: tuple[str, int] | None = None) -> None:
        address = ipaddress.ip_address(bound[0] if bound else "0.0.0.0")
        kind = _IPV4 if address.version == 4 else _IPV6
        port = bound[1] if bound else 0
        await self._send(
            bytes((_VERSION, code, 0, kind)) + address.packed + port.to_bytes(2, "big")
        )

    async def _send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def _read(self, count: int) -> bytes:
        """Read exactly *count* bytes: the bytes after them belong to the tunnel."""
        data = b""
        while len(data) < count:
            more = await self._loop.sock_recv(self._sock, count - len(data))
            if not more:
                raise _Malformed
            data += more
        return data

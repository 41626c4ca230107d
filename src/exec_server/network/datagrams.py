"""The datagrams of one SOCKS5 association: each destination is decided once, then relayed."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from types import TracebackType
from typing import Self

from exec_server.limits import Limits
from exec_server.network.blocked import Attempt, Verdict
from exec_server.network.decider import Decider
from exec_server.network.hosts import Host, HostRefusal, host_of, normalise_host

Endpoint = tuple[str, int]
# A destination as the process names it.
Named = tuple[Host | HostRefusal, int]

_IPV4, _NAME, _IPV6 = 1, 3, 4
_DATAGRAM_BYTES = 65535


class Association:
    """A UDP socket on *host* for one process; datagrams of other senders are dropped.

    Datagrams may be lost anyway. So a datagram is dropped if its destination is not decided yet or
    refused, or if there are too many destinations.
    """

    def __init__(self, host: str, client: str, *, decider: Decider, limits: Limits) -> None:
        self._client = client
        self._client_host = client.rpartition(":")[0]
        self._decider = decider
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._near = _datagram_socket(socket.AF_INET)
        self._near.bind((host, 0))
        self.address: Endpoint = self._near.getsockname()
        self._process: Endpoint | None = None
        # Destinations as the process names them, each with its address, or None while it is not
        # allowed.
        self._known: dict[Named, Endpoint | None] = {}
        # The sockets towards the network, by IP version.
        self._far: dict[int, socket.socket] = {}
        self._deciding: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._loop.add_reader(self._near, self._from_process)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._deciding:
            task.cancel()
        for sock in (self._near, *self._far.values()):
            self._loop.remove_reader(sock)
            sock.close()

    def _from_process(self) -> None:
        with contextlib.suppress(OSError):
            data, sender = self._near.recvfrom(_DATAGRAM_BYTES)
            self._process = self._process or sender
            if sender != self._process or sender[0] != self._client_host:
                return
            parsed = parse(data)
            if parsed is not None:
                self._send_on(*parsed)

    def _send_on(self, named: Named, payload: bytes) -> None:
        if named in self._known:
            place = self._known[named]
            if place is not None:
                with contextlib.suppress(OSError):
                    self._far_socket(place).sendto(payload, place)
        elif len(self._known) < self._limits.datagram_destinations:
            self._known[named] = None
            task = self._loop.create_task(self._decide(named, payload), name="decide a datagram")
            self._deciding.add(task)
            task.add_done_callback(self._deciding.discard)

    async def _decide(self, named: Named, payload: bytes) -> None:
        decided = await self._decider.decide(
            Attempt("socks5_udp", named[0], named[1], None, self._client)
        )
        if not isinstance(decided, Verdict) and decided.addresses:
            self._known[named] = (str(decided.addresses[0]), named[1])
            self._send_on(named, payload)

    def _far_socket(self, place: Endpoint) -> socket.socket:
        version = ipaddress.ip_address(place[0]).version
        sock = self._far.get(version)
        if sock is None:
            sock = _datagram_socket(socket.AF_INET if version == 4 else socket.AF_INET6)
            self._far[version] = sock
            self._loop.add_reader(sock, self._from_network, sock)
        return sock

    def _from_network(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            data, sender = sock.recvfrom(_DATAGRAM_BYTES)
            place = (sender[0], sender[1])
            # An answer is accepted only from an address to which the process has written.
            if self._process is not None and place in self._known.values():
                self._near.sendto(header(place) + data, self._process)


def _datagram_socket(family: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setblocking(False)
    return sock


def header(place: Endpoint) -> bytes:
    """The header that SOCKS5 puts before a datagram from *place*."""
    address = ipaddress.ip_address(place[0])
    kind = _IPV4 if address.version == 4 else _IPV6
    return bytes((0, 0, 0, kind)) + address.packed + place[1].to_bytes(2, "big")


def parse(data: bytes) -> tuple[Named, bytes] | None:
    """The destination and the payload of a datagram; None for fragments and nonsense."""
    if len(data) < 5 or data[:3] != b"\0\0\0":
        return None
    kind, body = data[3], data[4:]
    if kind == _NAME:
        size, body = body[0], body[1:]
    else:
        size = {_IPV4: 4, _IPV6: 16}.get(kind, 0)
    if size == 0 or len(body) < size + 2:
        return None
    raw, port = body[:size], int.from_bytes(body[size : size + 2], "big")
    host = normalise_host(raw) if kind == _NAME else host_of(ipaddress.ip_address(raw))
    return (host, port), body[size + 2 :]

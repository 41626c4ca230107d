"""Binds sockets, and turns every accepted one into a Connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

from exec_server.errors import ConfigurationError
from exec_server.limits import Limits
from exec_server.transport.accepting import Acceptor, WaitingConnections, bounded
from exec_server.transport.address import TcpAddress, UnixAddress
from exec_server.transport.connection import Connection
from exec_server.transport.failure_delays import FailureDelays
from exec_server.transport.http_front import CheckAuthorization, HttpFront, JudgePeer
from exec_server.transport.picows_internals import adopt
from exec_server.transport.refusal_log import RefusalLog
from exec_server.transport.unix import UnixFront
from exec_server.transport.websocket import WebSocketConnection

if TYPE_CHECKING:
    from exec_server.transport.certificate import Certificate

_BACKLOG = 1024
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV

OnConnection = Callable[[Connection], None]


class Listener:
    """A bound socket that accepts until it is closed."""

    def __init__(
        self, acceptor: Acceptor, url: str, refusals: RefusalLog, *, unlink: str | None = None
    ) -> None:
        self._acceptor = acceptor
        self.refusals = refusals
        self._unlink = unlink
        self.url = url

    def close(self) -> None:
        """Stop accepting; open connections go on."""
        self._acceptor.close()
        if self._unlink is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._unlink)
            self._unlink = None


async def listen_tcp(
    address: TcpAddress,
    on_connection: OnConnection,
    *,
    limits: Limits,
    judge_peer: JudgePeer,
    check: CheckAuthorization | None = None,
    certificate: Certificate | None = None,
) -> Listener:
    """Accept WebSockets on *address*, over TLS if there is a *certificate*.

    *judge_peer* judges each connection, and *check* the Authorization header of each.
    """
    # Handshakes and requests that are waited for share the connections that may wait.
    most = limits.waiting_connections // (1 if certificate is None else 2)
    waiting = WaitingConnections(most)
    refusals = _refusal_log()
    new_front = _front_factory(on_connection, limits, waiting, refusals, check)
    sock = _bind_tcp(address)
    host, port = sock.getsockname()[:2]
    handshakes = None
    if certificate is not None:
        from exec_server.transport.tls_accepting import TlsHandshakes

        handshakes = TlsHandshakes(certificate, refusals, limits=limits, limit=bounded(most))
    acceptor = Acceptor(sock, lambda: new_front(judge_peer), waiting, handshakes)
    url = TcpAddress(host, port).url
    if certificate is not None:
        url = url.replace("ws:", "wss:", 1)
    return Listener(acceptor, url, refusals)


def _bind_tcp(address: TcpAddress) -> socket.socket:
    """Return a bound socket. The event loop's own way uses a resolver, which starts threads."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(socket.getaddrinfo(address.host, address.port, family, flags=_NUMERIC)[0][4])
        sock.listen(_BACKLOG)
    except OSError as exc:
        sock.close()
        raise ConfigurationError(f"{_os_error(exc)}: {address.url}") from exc
    return sock


async def listen_unix(
    address: UnixAddress, on_connection: OnConnection, *, limits: Limits, judge_peer: JudgePeer
) -> Listener:
    """Accept WebSockets and plain lines on a socket that only its owner can use."""
    waiting = WaitingConnections(limits.waiting_connections)
    refusals = _refusal_log()
    new_front = _front_factory(on_connection, limits, waiting, refusals, None)
    sock, path = _bind_unix(address.path)
    acceptor = Acceptor(
        sock,
        lambda: UnixFront(
            new_front, on_connection, limits=limits, waiting=waiting, judge_peer=judge_peer
        ),
        waiting,
    )
    return Listener(acceptor, f"unix://{path}", refusals, unlink=path)


def _refusal_log() -> RefusalLog:
    return RefusalLog(asyncio.get_running_loop().time)


def _front_factory(
    on_connection: OnConnection,
    limits: Limits,
    waiting: WaitingConnections,
    refusals: RefusalLog,
    check: CheckAuthorization | None,
) -> Callable[[JudgePeer], HttpFront]:
    delays = FailureDelays(asyncio.get_running_loop().time)

    def connect() -> WebSocketConnection:
        return WebSocketConnection(limits=limits, on_open=on_connection)

    def upgrade(transport: asyncio.Transport, handshake: bytes) -> None:
        adopt(transport, connect, limits=limits, handshake=handshake)

    return lambda judge_peer: HttpFront(
        limits=limits,
        waiting=waiting,
        judge_peer=judge_peer,
        check=check,
        upgrade=upgrade,
        delays=delays,
        refusals=refusals,
    )


def _bind_unix(relative: str) -> tuple[socket.socket, str]:
    """Return a listening socket of mode 0600. A stale socket at its path is replaced."""
    path = os.path.abspath(relative)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o177)
    try:
        _remove_stale(path)
        sock.bind(path)
        sock.listen(_BACKLOG)
    except OSError as exc:
        sock.close()
        raise ConfigurationError(f"{_os_error(exc)}: {path}") from exc
    finally:
        os.umask(previous)
    return sock, path


def _remove_stale(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def _os_error(exc: OSError) -> str:
    if exc.errno is None:
        return str(exc)
    text = "Address in use" if exc.errno == 98 else os.strerror(exc.errno)
    return f"{text} (os error {exc.errno})"

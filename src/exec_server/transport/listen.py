"""Listens on a bound socket, and turns every accepted one into a Connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from exec_server.limits import Limits
from exec_server.transport.accepting import Acceptor, WaitingConnections, bounded
from exec_server.transport.address import UnixAddress
from exec_server.transport.binding import BoundSocket
from exec_server.transport.connection import Connection, introduce
from exec_server.transport.failure_delays import FailureDelays
from exec_server.transport.http_front import (
    CheckClient,
    HttpFront,
    Identify,
    JudgePeer,
    Pages,
)
from exec_server.transport.picows_internals import adopt
from exec_server.transport.refusal_log import RefusalLog
from exec_server.transport.websocket import WebSocketConnection

if TYPE_CHECKING:
    from exec_server.transport.certificate import Certificate
    from exec_server.transport.metered import Traffic
    from exec_server.transport.unix import LineConnection

OnConnection = Callable[[Connection], None]


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a listener treats connections."""

    on_connection: OnConnection
    limits: Limits
    # Judges each connection before anything is read.
    judge_peer: JudgePeer
    refusals: RefusalLog
    pages: Pages
    # Tells who is behind a connection that was let in.
    identify: Identify
    # Checks the client of each upgrade.
    check: CheckClient | None = None
    # With it there is TLS, on TCP.
    certificate: Certificate | None = None
    # Counts bytes, if they are wanted.
    traffic: Traffic | None = None


class Listener:
    """A bound socket that accepts until it is closed."""

    def __init__(self, acceptor: Acceptor, url: str, *, unlink: str | None = None) -> None:
        self._acceptor = acceptor
        self._unlink = unlink
        self.url = url

    def close(self) -> None:
        """Stop accepting; open connections go on."""
        self._acceptor.close()
        if self._unlink is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._unlink)
            self._unlink = None


def listen(bound: BoundSocket, settings: ListenSettings) -> Listener:
    """Accept WebSockets on *bound*; on a Unix socket also plain lines."""
    if isinstance(bound.address, UnixAddress):
        acceptor = _accept_unix(bound, settings)
    else:
        acceptor = _accept_tcp(bound, settings)
    url = bound.url(is_secure=settings.certificate is not None)
    return Listener(acceptor, url, unlink=bound.unlink)


def _accept_tcp(bound: BoundSocket, settings: ListenSettings) -> Acceptor:
    most, handshakes = bounded(settings.limits.waiting_connections), None
    if settings.certificate is not None:
        from exec_server.transport.tls_accepting import TlsHandshakes

        # Handshakes and requests that are waited for share the connections that may wait.
        most = max(most // 2, 1)
        handshakes = TlsHandshakes(
            settings.certificate, settings.refusals, limits=settings.limits, limit=most
        )
    waiting = WaitingConnections(most)
    new_front = _front_factory(settings, waiting)
    return Acceptor(bound.sock, lambda: new_front(settings.judge_peer), waiting, handshakes)


def _accept_unix(bound: BoundSocket, settings: ListenSettings) -> Acceptor:
    from exec_server.transport.unix import UnixFront

    limits = settings.limits
    waiting = WaitingConnections(limits.waiting_connections)
    new_front = _front_factory(settings, waiting)
    return Acceptor(
        bound.sock,
        lambda: UnixFront(
            new_front,
            lambda: _new_lines(settings),
            limits=limits,
            waiting=waiting,
            judge_peer=settings.judge_peer,
            identify=settings.identify,
            refusals=settings.refusals,
        ),
        waiting,
    )


def _front_factory(
    settings: ListenSettings, waiting: WaitingConnections
) -> Callable[[JudgePeer], HttpFront]:
    limits = settings.limits
    delays = FailureDelays(asyncio.get_running_loop().time)

    def upgrade(transport: asyncio.Transport, handshake: bytes, authorization: str | None) -> None:
        connection = _new_websocket(settings)
        try:
            introduce(connection, settings.identify(transport, authorization))
        except PermissionError:
            transport.abort()
            return
        adopt(transport, lambda: connection, limits=limits, handshake=handshake)

    return lambda judge_peer: HttpFront(
        limits=limits,
        waiting=waiting,
        judge_peer=judge_peer,
        check=settings.check,
        upgrade=upgrade,
        delays=delays,
        refusals=settings.refusals,
        pages=settings.pages,
    )


def _new_websocket(settings: ListenSettings) -> WebSocketConnection:
    limits, on_open = settings.limits, settings.on_connection
    if settings.traffic is None:
        return WebSocketConnection(limits=limits, on_open=on_open)
    from exec_server.transport.metered import MeteredWebSocket

    return MeteredWebSocket(settings.traffic, limits=limits, on_open=on_open)


def _new_lines(settings: ListenSettings) -> LineConnection:
    limits, on_open = settings.limits, settings.on_connection
    if settings.traffic is None:
        from exec_server.transport.unix import LineConnection

        return LineConnection(on_open, limits=limits)
    from exec_server.transport.metered import MeteredLines

    return MeteredLines(settings.traffic, on_open, limits=limits)

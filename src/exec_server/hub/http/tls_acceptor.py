"""Accepts TLS connections; those in their handshake count like other connections of strangers."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

from exec_server.hub.http.connection_guard import ConnectionGuard, NewProtocol
from exec_server.limits import Limits
from exec_server.transport.accepting import Acceptor, WaitingConnections
from exec_server.transport.certificate import Certificate


class TlsAcceptor(Acceptor):
    """Makes a protocol for each connection to *sock* whose handshake succeeds."""

    def __init__(
        self,
        sock: socket.socket,
        new_protocol: NewProtocol,
        certificate: Certificate,
        guard: ConnectionGuard,
        *,
        limits: Limits,
    ) -> None:
        super().__init__(sock, new_protocol, WaitingConnections(0))
        self._certificate = certificate
        self._guard = guard
        self._new_guarded = new_protocol
        self._seconds = limits.http_head_timeout

    async def connect(self, sock: socket.socket) -> None:
        handshake = _TlsHandshake()
        if not self._guard.admit(handshake, sock.getpeername()[0]):
            sock.close()
            return
        try:
            await self._loop.connect_accepted_socket(
                partial(self._new_guarded, handshake),
                sock,
                ssl=self._certificate.context,
                ssl_handshake_timeout=self._seconds,
            )
        except asyncio.CancelledError:
            if not handshake.is_aborted:
                raise
            sock.close()
        finally:
            self._guard.forget(handshake)


class _TlsHandshake:
    """A handshake under way, as the guard sees it: it can be aborted like a transport."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self.is_aborted = False

    @property
    def transport(self) -> _TlsHandshake:
        return self

    def abort(self) -> None:
        assert self._task is not None
        self.is_aborted = True
        self._task.cancel()

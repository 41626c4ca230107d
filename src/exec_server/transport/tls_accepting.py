"""TLS handshakes with accepted connections, bounded in time and in number."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from exec_server.limits import Limits
from exec_server.transport.certificate import Certificate
from exec_server.transport.refusal_log import RefusalKind, RefusalLog
from exec_server.transport.tls_handshake import is_about_certificate, on_failure, reason_of

logger = logging.getLogger(__name__)


class TlsHandshakes:
    """The handshakes of a listener that are under way, at most *limit*; the oldest gives way."""

    def __init__(
        self, certificate: Certificate, refusals: RefusalLog, *, limits: Limits, limit: int
    ) -> None:
        self._certificate = certificate
        self._refusals = refusals
        self._limits = limits
        self._limit = limit
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def abort_oldest(self) -> None:
        oldest = next(iter(self._tasks), None)
        if oldest is not None:
            logger.debug("a TLS handshake gives way to a new one")
            del self._tasks[oldest]
            oldest.cancel()

    async def connect(
        self, new_protocol: Callable[[], asyncio.Protocol], sock: socket.socket
    ) -> None:
        """Shake hands over *sock* and give it to a new protocol. Raises OSError."""
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= self._limit:
            self.abort_oldest()
        self._tasks[task] = None
        failure = _HandshakeFailure(task, _peer(sock), self._refusals, self._limits.close_timeout)
        on_failure.set(failure.happened)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                new_protocol,
                sock,
                ssl=self._certificate.context,
                ssl_handshake_timeout=self._limits.http_head_timeout,
                ssl_shutdown_timeout=self._limits.close_timeout,
            )
        finally:
            self._tasks.pop(task, None)
            failure.forget()


class _HandshakeFailure:
    """Ends a handshake that has failed, after a time in which the peer can read why."""

    def __init__(
        self, task: asyncio.Task[None], peer: tuple[str, int], refusals: RefusalLog, linger: float
    ) -> None:
        self._task = task
        self._peer = peer
        self._refusals = refusals
        self._linger = linger
        self._timer: asyncio.TimerHandle | None = None

    def happened(self, error: ssl.SSLError) -> None:
        host, port = self._peer
        kind: RefusalKind = "certificate" if is_about_certificate(error) else "tls"
        more = self._refusals.refused(host, kind)
        if more is not None:
            shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            reason = f"TLS: {reason_of(error)}{more}"
            logger.warning("refused %s: %s", shown, reason)
            self._refusals.logged(shown, kind, reason)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._linger, self._task.cancel)

    def forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _peer(sock: socket.socket) -> tuple[str, int]:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "a peer that has gone", 0
    return host, port

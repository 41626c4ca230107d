"""Accepts the connections of a listening socket, with a bound on those that wait for a request.

Strangers can open connections and send nothing. They must not take the descriptors that commands
of clients need, so the connection that has waited longest gives way to a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exec_server.transport.tls_accepting import TlsHandshakes

logger = logging.getLogger(__name__)

# Linux only.
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)

# The event loops themselves accept a whole backlog in one turn, before the first of those
# connections can be closed again.
_ACCEPTED_PER_TURN = 8
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 0.1
# The part of all descriptors that waiting connections may take.
_SHARE = 4


class WaitingConnections:
    """Connections whose request was not read yet, the oldest first; at most *limit* of them."""

    def __init__(self, limit: int) -> None:
        self._limit = bounded(limit)
        self._transports: dict[asyncio.Transport, None] = {}

    def __len__(self) -> int:
        return len(self._transports)

    def __iter__(self) -> Iterator[asyncio.Transport]:
        return iter(tuple(self._transports))

    def add(self, transport: asyncio.Transport) -> None:
        """Note *transport*; if there is no room for it, abort the one that has waited longest."""
        if len(self._transports) >= self._limit:
            self.abort_oldest()
        self._transports[transport] = None

    def abort_oldest(self) -> bool:
        """Abort the connection that has waited longest. False means that there is none."""
        oldest = next(iter(self._transports), None)
        if oldest is None:
            return False
        logger.debug("a connection that sent no request gives way to a new one")
        del self._transports[oldest]
        oldest.abort()
        return True

    def discard(self, transport: asyncio.Transport) -> None:
        self._transports.pop(transport, None)


class Acceptor:
    """Makes a protocol with *new_protocol* for each connection to *sock*, which listens."""

    def __init__(
        self,
        sock: socket.socket,
        new_protocol: Callable[[], asyncio.Protocol],
        waiting: WaitingConnections,
        tls: TlsHandshakes | None = None,
    ) -> None:
        self._sock = sock
        self._tls = tls
        self._new_protocol = new_protocol
        self._waiting = waiting
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_tcp = sock.family in (socket.AF_INET, socket.AF_INET6)
        sock.setblocking(False)
        self._loop.add_reader(sock, self._on_readable)

    def close(self) -> None:
        """Stop accepting, and end the connections that have sent no request."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        for task in self._connecting:
            task.cancel()
        for transport in self._waiting:
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait until no connection is under way, after `close`."""
        if self._connecting:
            await asyncio.wait(self._connecting)

    def _on_readable(self) -> None:
        for _ in range(_ACCEPTED_PER_TURN):
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                self._on_failure(exc)
                return
            task = self._loop.create_task(self._take(sock), name="accept a connection")
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def connect(self, sock: socket.socket) -> None:
        """Make a transport for an accepted connection."""
        if self._tls is None:
            await self._loop.connect_accepted_socket(self._new_protocol, sock)
        else:
            await self._tls.connect(self._new_protocol, sock)

    async def _take(self, sock: socket.socket) -> None:
        try:
            sock.setblocking(False)
            if self._is_tcp:
                # Small answers must not wait for an acknowledgement, nor small requests for ours.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if _QUICK_ACK is not None:
                    sock.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
            await self.connect(sock)
        except BaseException as exc:
            sock.close()
            # The peer may be gone already.
            if not isinstance(exc, OSError):
                raise

    def _on_failure(self, exc: OSError) -> None:
        if exc.errno not in _OUT_OF_RESOURCES:
            # accept(2) passes on errors of the network that belong to the new connection alone.
            logger.info("a connection could not be accepted: %s", exc)
            return
        logger.warning("a connection could not be accepted: %s", exc, extra={"notice": "accepting"})
        if not self._waiting.abort_oldest() and self._tls is not None:
            self._tls.abort_oldest()
        self._loop.remove_reader(self._sock)
        self._pause = self._loop.call_later(_PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._on_readable)


def bounded(limit: int) -> int:
    """At most *limit* connections, and no more than their share of all descriptors."""
    return min(limit, _descriptors() // _SHARE)


def _descriptors() -> int:
    """How many descriptors this process may have open."""
    with contextlib.suppress(ImportError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return soft if soft != resource.RLIM_INFINITY else sys.maxsize
    return sys.maxsize

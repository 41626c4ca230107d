"""Bounds the connections that are not authenticated sockets, so that strangers cannot use them up.

A connection has to send a whole request soon, and another one soon after its answer. If there are
too many connections, in all or from one address, the one that was idle for longest is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from exec_server.hub.access.refusals import RegistryRefusal
from exec_server.limits import Limits
from exec_server.prometheus import Metric
from exec_server.transport.refusal_log import network_of

logger = logging.getLogger(__name__)

# Descriptors that are not connections: listeners, the store, the bus, logs, and a few to spare.
_OTHER_DESCRIPTORS = 64


def fit_descriptors(limits: Limits) -> Limits:
    """Limits that the open files of this process allow: half of them for authenticated sockets."""
    import resource

    available = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if available == resource.RLIM_INFINITY:
        return limits
    half = max((available - _OTHER_DESCRIPTORS) // 2, 1)
    connections = min(limits.hub_connections, half)
    sockets = min(limits.hub_sockets, max(available - _OTHER_DESCRIPTORS - connections, 1))
    if sockets < limits.hub_sockets:
        logger.debug("%d open files allow %d rendezvous sockets", available, sockets)
    return msgspec.structs.replace(limits, hub_connections=connections, hub_sockets=sockets)


SERVER_NAME = "exec-server"


def malformed(status: int) -> web.Response:
    """The answer to a request that cannot be read. The connection is closed after it."""
    refusal = RegistryRefusal(status, "bad_request", "the request cannot be read")
    response = web.Response(
        status=status,
        body=refusal.body,
        content_type="application/json",
        headers={"Server": SERVER_NAME},
    )
    response.force_close()
    return response


class Abortable(Protocol):
    def abort(self) -> None: ...


class Guarded(Protocol):
    """A connection, or a TLS handshake that may become one."""

    @property
    def transport(self) -> Abortable | None: ...


class NewProtocol(Protocol):
    def __call__(self, handshake: Guarded | None = None) -> asyncio.Protocol:
        """The protocol of a connection, which takes the place of its *handshake*."""
        ...


class ConnectionGuard:
    """The connections of a listener that are not rendezvous sockets."""

    def __init__(self, *, limits: Limits, knows_addresses: bool) -> None:
        """*knows_addresses* is false if a proxy has opened all connections."""
        self._limits = limits
        self._knows_addresses = knows_addresses
        self._loop = asyncio.get_running_loop()
        self._idle_seconds = (
            limits.hub_idle_seconds if knows_addresses else limits.hub_proxy_idle_seconds
        )
        self._addresses: dict[Guarded, str] = {}
        self._counts: Counter[str] = Counter()
        # Those without a request, with the timers that drop them; in all, and of each address. The
        # first one is idle for longest.
        self._idle: OrderedDict[Guarded, asyncio.TimerHandle] = OrderedDict()
        self._idle_of: dict[str, OrderedDict[Guarded, None]] = {}
        self._dropped = 0

    def metrics(self) -> list[Metric]:
        return [
            Metric(
                "connections",
                "gauge",
                "HTTP connections that are not rendezvous sockets.",
                len(self._addresses),
            ),
            Metric(
                "dropped_connections_total",
                "counter",
                "HTTP connections that were dropped, because they were idle or too many.",
                self._dropped,
            ),
        ]

    def protocols(self, server: web.Server) -> NewProtocol:
        """The function that a listener calls for each connection."""

        def new_protocol(handshake: Guarded | None = None) -> asyncio.Protocol:
            return _GuardedProtocol(
                self,
                server,
                self._loop,
                seconds=self._idle_seconds,
                lingering=self._limits.http_head_timeout,
                handshake=handshake,
            )

        return new_protocol

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        protocol = request.protocol
        is_running = True

        def arrived() -> None:
            if is_running:
                self._stop_waiting(protocol)

        # Until its body is there, a request counts as unsent: any stranger can begin one.
        request.content.on_eof(arrived)
        try:
            return await handler(request)
        finally:
            is_running = False
            if protocol in self._addresses:
                self._wait(protocol, self._idle_seconds)

    async def upgraded(self, request: web.Request, response: web.StreamResponse) -> None:
        """Stop counting a connection that has become an authenticated socket."""
        if isinstance(response, web.WebSocketResponse):
            self.forget(request.protocol)

    def trust(self, request: web.Request) -> None:
        """Let an authenticated request take its time, until it is answered."""
        self._stop_waiting(request.protocol)

    # For the protocols.

    def admit(self, protocol: Guarded, address: str) -> bool:
        """Count a new connection; False if there are too many and none of them is idle."""
        key = network_of(address) if self._knows_addresses else ""
        most, count = self._limits.hub_connections, len(self._addresses)
        # An address may have as many as are free, so one address gets half of all.
        is_greedy = self._knows_addresses and self._counts[key] > max(most - count, 0)
        if is_greedy and not self._drop_first(self._idle_of.get(key)):
            return False
        if not is_greedy and count >= most and not self._drop_first(self._idle):
            return False
        self._addresses[protocol] = key
        self._counts[key] += 1
        self._wait(protocol, self._limits.http_head_timeout)
        return True

    def forget(self, protocol: Any) -> None:
        self._stop_waiting(protocol)
        key = self._addresses.pop(protocol, None)
        if key is not None:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    # Idle connections.

    def _wait(self, protocol: Any, seconds: float) -> None:
        self._stop_waiting(protocol)
        self._idle[protocol] = self._loop.call_later(seconds, self._drop, protocol)
        self._idle_of.setdefault(self._addresses[protocol], OrderedDict())[protocol] = None

    def _stop_waiting(self, protocol: Any) -> None:
        timer = self._idle.pop(protocol, None)
        if timer is None:
            return
        timer.cancel()
        key = self._addresses[protocol]
        del self._idle_of[key][protocol]
        if not self._idle_of[key]:
            del self._idle_of[key]

    def _drop_first(self, idle: OrderedDict[Guarded, Any] | None) -> bool:
        """Drop the connection that was idle for longest; False if there is none."""
        if not idle:
            return False
        self._drop(next(iter(idle)))
        return True

    def _drop(self, protocol: Guarded) -> None:
        self._dropped += 1
        self.forget(protocol)
        if protocol.transport is not None:
            protocol.transport.abort()


class _GuardedProtocol(RequestHandler):
    """One connection of a registry."""

    __slots__ = ("_guard", "_handshake", "_is_admitted")

    def __init__(
        self,
        guard: ConnectionGuard,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        *,
        seconds: float,
        lingering: float,
        handshake: Guarded | None,
    ) -> None:
        """*lingering* is how long a body may still come after its request was answered."""
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=seconds,
            lingering_time=lingering,
            access_log=None,  # type: ignore[arg-type]
        )
        self._guard = guard
        self._handshake = handshake
        self._is_admitted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        if self._handshake is not None:
            self._guard.forget(self._handshake)
            self._handshake = None
        self._is_admitted = self._guard.admit(self, peer[0] if peer else "")
        if self._is_admitted:
            super().connection_made(transport)
        else:
            transport.abort()  # type: ignore[attr-defined]

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._is_admitted:
            self._guard.forget(self)
            super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that aiohttp cannot read.

        Any stranger can send one. So there is one line in the log, for debugging, and the answer
        shows neither details nor the versions of our libraries.
        """
        if status < 500:
            logger.debug("a malformed request from %s: %s", request.remote, type(exc).__name__)
        else:
            logger.error("a request from %s failed", request.remote, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer was sent already")
        return malformed(status)

    def log_exception(self, *args: Any, **options: Any) -> None:
        """Log a failure of aiohttp, unless it is a body that nothing has read."""
        if isinstance(options.get("exc_info"), web.RequestPayloadError):
            logger.debug("a malformed body from %s", self.peername)
        else:
            super().log_exception(*args, **options)

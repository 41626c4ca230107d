"""One connection of a process to its proxy that speaks HTTP: requests in turn, and CONNECT."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from http import HTTPStatus

import h11

from exec_server.limits import Limits
from exec_server.network import blocked, exchange, http_heads, relay, upstream
from exec_server.network.blocked import Attempt, Verdict
from exec_server.network.decider import AllowedAttempt, Decider
from exec_server.network.hang_up import decide_unless_gone
from exec_server.network.hosts import Host
from exec_server.network.http_heads import BadTarget, Headers, RequestTarget
from exec_server.network.http_reader import HttpReader
from exec_server.network.upstream import Unreachable, UpstreamProxy, Upstreams

# A rejected request's body is read up to this size; a longer one ends the connection.
_DISCARD_BYTES = 1024 * 1024
# The host in the report about a refused Unix socket, as in the reference.
_UNIX_SOCKET = Host("unix-socket")


class HttpConnection:
    """Serves *sock* until the process or an error ends it; the caller closes the socket."""

    def __init__(
        self,
        sock: socket.socket,
        client: str,
        *,
        decider: Decider,
        upstreams: Upstreams | None,
        limits: Limits,
    ) -> None:
        self._sock = sock
        self._client = client
        self._decider = decider
        self._upstreams = upstreams
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._incoming = HttpReader(sock, limits=limits)

    async def serve(self) -> None:
        with contextlib.suppress(OSError, relay.Idle):
            while await self._serve_one():
                pass

    async def _serve_one(self) -> bool:
        """Answer one request; True if another may follow."""
        try:
            request = await self._incoming.request()
        except h11.RemoteProtocolError:
            head = http_heads.head(b"HTTP/1.1 400 Bad Request", [(b"connection", b"close")])
            await self._loop.sock_sendall(self._sock, head)
            return False
        if request is None:
            return False
        try:
            aim = http_heads.target(request)
        except BadTarget as exc:
            return await self._answer(request, HTTPStatus.BAD_REQUEST, str(exc).encode())
        attempt = self._attempt(request, aim)
        if http_heads.header(request.headers, http_heads.UNIX_SOCKET_HEADER) is not None:
            return await self._refuse_unix_socket(request, attempt)
        decided = await decide_unless_gone(self._decider, attempt, self._sock)
        if decided is None:
            return False
        if isinstance(decided, Verdict):
            kind, error, body = blocked.explain(attempt, decided)
            return await self._answer(request, HTTPStatus.FORBIDDEN, body, kind=kind, error=error)
        try:
            return await self._let_through(request, aim, decided)
        except Unreachable:
            return await self._answer(request, HTTPStatus.BAD_GATEWAY, b"upstream failure")

    def _attempt(self, request: h11.Request, aim: RequestTarget) -> Attempt:
        method = request.method.decode("ascii")
        if aim.scheme == "connect":
            return Attempt("https_connect", aim.host, aim.port, method, self._client)
        return Attempt("http", aim.host, aim.port, method, self._client)

    async def _refuse_unix_socket(self, request: h11.Request, attempt: Attempt) -> bool:
        shown = Attempt(attempt.protocol, _UNIX_SOCKET, 0, attempt.method, attempt.client)
        self._decider.report(shown, blocked.NO_UNIX_SOCKETS)
        return await self._answer(request, HTTPStatus.NOT_IMPLEMENTED, b"unix sockets unsupported")

    async def _let_through(
        self, request: h11.Request, aim: RequestTarget, route: AllowedAttempt
    ) -> bool:
        if aim.scheme == "connect":
            await self._tunnel(route)
            return False
        if aim.scheme != "http":
            # Clients use CONNECT for HTTPS; we cannot speak TLS in the name of the process.
            raise Unreachable
        proxy = self._proxy("http", route)
        if proxy is None:
            other = await upstream.connect(route.addresses, aim.port, limits=self._limits)
        else:
            other = await upstream.connect_proxy(proxy, limits=self._limits)
        with other:
            return await exchange.forward(
                request, self._incoming, other, aim, proxy, limits=self._limits
            )

    async def _tunnel(self, route: AllowedAttempt) -> None:
        port = route.attempt.port
        proxy = self._proxy("https", route)
        if proxy is None:
            other = await upstream.connect(route.addresses, port, limits=self._limits)
        else:
            authority = http_heads.authority(route.host, port, default=0)
            other = await upstream.connect_through(proxy, authority, limits=self._limits)
        with other:
            head = http_heads.head(b"HTTP/1.1 200 OK", [(b"date", http_heads.date())])
            await self._loop.sock_sendall(self._sock, head)
            self._incoming.keep_rest()
            if self._incoming.ahead:
                await self._loop.sock_sendall(other, self._incoming.ahead)
            await relay.tunnel(self._sock, other, idle=self._limits.proxy_idle_timeout)

    def _proxy(self, scheme: str, route: AllowedAttempt) -> UpstreamProxy | None:
        if self._upstreams is None or not route.addresses:
            return None
        return self._upstreams.choose(scheme, route.host, route.addresses)

    async def _answer(
        self,
        request: h11.Request,
        status: HTTPStatus,
        body: bytes,
        *,
        kind: str = "text/plain",
        error: str | None = None,
    ) -> bool:
        """Answer in place of the server; True if another request may follow."""
        version = request.http_version
        # A client that expects "100 Continue" may send the body or not; so the connection ends.
        is_next = version != b"1.0" and http_heads.header(request.headers, b"expect") is None
        headers: Headers = [(b"content-type", kind.encode())]
        if error is not None:
            headers.append((b"x-proxy-error", error.encode()))
        headers += [(b"content-length", b"%d" % len(body)), (b"date", http_heads.date())]
        line = f"HTTP/{version.decode()} {status.value} {status.phrase}".encode()
        shown = b"" if request.method == b"HEAD" else body
        await self._loop.sock_sendall(self._sock, http_heads.head(line, headers) + shown)
        framing = http_heads.framing(request, method=request.method)
        if framing.is_empty:
            self._incoming.keep_rest()
            return is_next
        if is_next and await self._incoming.discard(framing, at_most=_DISCARD_BYTES):
            return True
        # Unread bytes would turn our close into a reset, which may overtake the answer.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        await self._incoming.discard(framing, at_most=_DISCARD_BYTES)
        return False

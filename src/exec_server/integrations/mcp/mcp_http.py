"""Streamable HTTP, with a bearer token."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

import exec_server
from exec_server.integrations.mcp.bounded_http import Judge, UnaskedConnections, bounded_protocol

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH = "/mcp"


class BearerGate:
    """Lets requests through that have the token."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
        await self._app(scope, receive, send)


def listen(host: str, port: int, *, token: str | None) -> socket.socket:
    """A socket that listens. Raises ConfigurationError for an address that must not be open."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise exec_server.ConfigurationError(f"`{host}` is not an IP address") from None
    if token is None and not address.is_loopback:
        raise exec_server.ConfigurationError(
            f"{host} can be reached from other machines, so a token is needed: --http-token-file"
        )
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    return socket.create_server((host, port), family=family)


def url_of(listener: socket.socket) -> str:
    """The URL for clients on this machine."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


class _QuietServer(uvicorn.Server):
    """Leaves signals to `serve_http`: uvicorn raises them again, in the middle of its own end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """End as soon as requests under way are answered, or after some seconds."""
        self.should_exit = True


async def serve_http(
    server: MCPServer, listener: socket.socket, *, token: str | None, judge: Judge | None = None
) -> None:
    """Serve until the program is interrupted; *judge* decides who may connect without a token."""
    host = listener.getsockname()[0]
    is_local = ipaddress.ip_address(host).is_loopback
    # A browser has no token. Without one, the names in requests keep pages of other sites out.
    security = (
        None if is_local else TransportSecuritySettings(enable_dns_rebinding_protection=False)
    )
    app: Any = server.streamable_http_app(
        streamable_http_path=PATH, host=host, transport_security=security
    )
    if token is not None:
        app = BearerGate(app, token)
    config = uvicorn.Config(
        app,
        http=bounded_protocol(judge if token is None else None, UnaskedConnections()),
        # The gate and the deadlines are for requests.
        ws="none",
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=2,
    )
    running, loop = _QuietServer(config), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.stop)
    await running.serve(sockets=[listener])

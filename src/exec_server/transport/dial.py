"""Connect before a deadline: WebSockets over TCP, TLS or a Unix socket, and programs.

Only the host in the URL is contacted: redirects are not followed and no proxy is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from exec_server.errors import ConfigurationError, ConnectError
from exec_server.limits import Limits
from exec_server.transport.connection import Connection, Receiver
from exec_server.transport.dial_target import DialTarget, describe, parse_target
from exec_server.transport.picows_internals import consume_violation
from exec_server.transport.picows_names import WSError, WSTransport
from exec_server.transport.upgrade import L, NewListener, Upgrade
from exec_server.transport.websocket import WebSocketConnection

if TYPE_CHECKING:
    from ssl import SSLContext

_PROGRAM = "stdio:"


async def dial(
    url: str,
    *,
    limits: Limits,
    bearer_token: str | None = None,
    connect_timeout: float | None = None,
    ssl_context: SSLContext | None = None,
) -> Connection:
    """Connect to *url*: `ws://`, `wss://`, `unix://PATH`, or `stdio:PROGRAM ARGS...`.

    Raises ConnectError if there is no connection within *connect_timeout* (by default that of
    *limits*), ConnectionRejected if the other side is not an exec-server or refuses the token,
    and ConfigurationError for a URL that is not valid.
    """
    if is_program(url):
        return await _dial_program(url, limits=limits)

    def new(on_open: Callable[[WebSocketConnection], None]) -> WebSocketConnection:
        return _DialledConnection(limits=limits, on_open=on_open)

    return await open_websocket(
        url,
        new,
        headers=_headers(bearer_token),
        limits=limits,
        connect_timeout=connect_timeout,
        ssl_context=ssl_context,
    )


async def open_websocket(
    url: str,
    new_listener: NewListener[L],
    *,
    headers: Sequence[tuple[str, str]] = (),
    limits: Limits,
    connect_timeout: float | None = None,
    ssl_context: SSLContext | None = None,
) -> L:
    """Open a WebSocket for the listener that *new_listener* makes; fails as `dial` does.

    A frame of more than *limits.frame_bytes* ends it.
    """
    target = parse_target(url)
    seconds = limits.connect_timeout if connect_timeout is None else connect_timeout
    upgrade = Upgrade(target, headers, limits, new_listener)
    is_taken = False
    try:
        async with asyncio.timeout(seconds):
            await _open(target, upgrade, ssl_context)
            listener = await upgrade.opened
        is_taken = True
        return listener
    except TimeoutError:
        raise ConnectError(target.failure(f"timed out after {seconds:g} s")) from None
    except (OSError, WSError) as exc:
        raise ConnectError(target.failure(describe(exc))) from exc
    finally:
        upgrade.release(is_taken=is_taken)


def is_program(url: str) -> bool:
    """True if *url* names a program; each connection to it starts a new server."""
    return url.startswith(_PROGRAM)


async def _dial_program(url: str, *, limits: Limits) -> Connection:
    import shlex

    from exec_server.transport.program import dial_program

    try:
        argv = shlex.split(url.removeprefix(_PROGRAM).removeprefix("//"))
    except ValueError as exc:
        raise ConfigurationError(f"invalid URL `{url}`: {exc}") from None
    if not argv:
        raise ConfigurationError(f"invalid URL `{url}`; expected `stdio:PROGRAM ARGS...`")
    return await dial_program(argv, limits=limits)


def _headers(bearer_token: str | None) -> list[tuple[str, str]]:
    if bearer_token is None:
        return []
    if not isinstance(bearer_token, str):
        raise TypeError(f"token must be str, not {type(bearer_token).__name__}")
    if not bearer_token or not all("!" <= c <= "~" for c in bearer_token):
        raise ConfigurationError("a bearer token is visible ASCII without blanks")
    return [("Authorization", f"Bearer {bearer_token}")]


async def _open(target: DialTarget, upgrade: Upgrade[Any], ssl_context: SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(target.address, str):
        await loop.create_unix_connection(lambda: upgrade, target.address)
        return
    context: SSLContext | None = None
    if target.is_secure:
        import ssl

        context = ssl_context or ssl.create_default_context()
    await loop.create_connection(lambda: upgrade, *target.address, ssl=context)


class _DialledConnection(WebSocketConnection):
    """A WebSocket that we have opened."""

    _is_lost = False

    def attach(self, receiver: Receiver) -> None:
        super().attach(receiver)
        if self._is_lost:
            self._loop.call_soon(receiver.connection_lost)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._is_lost = True
        super().on_ws_disconnected(transport)
        self._consuming = consume_violation(transport)

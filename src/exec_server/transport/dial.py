"""Connect before a deadline: WebSockets over TCP, TLS or a Unix socket, and programs.

Nothing is asked of the network but what the URL says: redirects are not followed and no proxy is
used.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from picows import WSListener, WSTransport
from picows.common import WSError
from picows.picows import WSAutoPingStrategy, WSProtocol  # type: ignore[attr-defined]

from exec_server.errors import ConfigurationError, ConnectError, ConnectionRejected
from exec_server.limits import Limits
from exec_server.transport.connection import Connection, Receiver
from exec_server.transport.unix import UnixTransport
from exec_server.transport.websocket import WebSocketConnection, feed

if TYPE_CHECKING:
    from ssl import SSLContext

# Made silent by `websocket`, which tells the peer instead.
_SILENT = logging.getLogger("exec_server.transport.picows")
# Output arrives in chunks of up to 64 KiB, a third more in base64; several a wake.
_READ_BUFFER_BYTES = 256 * 1024
# Of a refusal's body only a short text is of interest.
_REFUSAL_BYTES = 4096

_UNIX = "unix://"
_PROGRAM = "stdio:"

L = TypeVar("L", bound=WSListener)
# Makes what will hold a WebSocket, which says when it does.
NewListener = Callable[[Callable[[L], None]], L]


class _DialTarget(NamedTuple):
    """Where a `ws:`, `wss:` or `unix:` URL leads."""

    # What errors show: no credentials, no query.
    shown: str
    # A host and port, or the path of a Unix socket.
    address: tuple[str, int] | str
    is_secure: bool
    # For the request.
    host_header: str
    resource: str


async def dial(
    url: str,
    *,
    limits: Limits,
    bearer_token: str | None = None,
    connect_timeout: float | None = None,
    ssl_context: SSLContext | None = None,
) -> Connection:
    """Connect to *url*: `ws://`, `wss://`, `unix://PATH`, or `stdio:PROGRAM ARGS...`.

    Raises ConnectError when it does not come about within *connect_timeout* (by default that of
    *limits*), ConnectionRejected when the other side is no exec-server or wants another token,
    and ConfigurationError for a URL that nobody could connect to.
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
    """Open a WebSocket for a listener of the caller's; fails as `dial` does.

    The largest frame it takes is *limits.frame_bytes*.
    """
    target = _parse(url)
    seconds = limits.connect_timeout if connect_timeout is None else connect_timeout
    upgrade = _Upgrade(target, headers, limits, new_listener)
    try:
        async with asyncio.timeout(seconds):
            await _open(target, upgrade, ssl_context)
            return await upgrade.opened
    except TimeoutError:
        raise ConnectError(f"{_failed(target)}: timed out after {seconds:g} s") from None
    except (OSError, WSError) as exc:
        raise ConnectError(f"{_failed(target)}: {_cause(exc)}") from exc
    finally:
        upgrade.release()


def is_program(url: str) -> bool:
    """Whether *url* is that of a program, each of which is a new server."""
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


def _parse(url: str) -> _DialTarget:
    if url.startswith(_UNIX):
        path = url.removeprefix(_UNIX)
        if not path or "\0" in path:
            raise ConfigurationError(f"invalid URL `{url}`; expected `unix://PATH`")
        return _DialTarget(url, path, False, "localhost", "/")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise ConfigurationError(f"invalid URL: {exc}") from None
    if parts.scheme not in ("ws", "wss") or not host:
        raise ConfigurationError(
            f"unsupported URL `{parts.scheme}:...`; expected `ws://HOST:PORT`, `wss://HOST`, "
            "`unix://PATH` or `stdio:PROGRAM`"
        )
    if "@" in parts.netloc:
        raise ConfigurationError("a URL cannot carry credentials; give a bearer token instead")
    if not (parts.path + parts.query).isascii() or any(c <= " " for c in url):
        raise ConfigurationError(f"invalid URL `{parts.scheme}://{parts.netloc}...`")
    is_secure = parts.scheme == "wss"
    resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
    address = (host, (443 if is_secure else 80) if port is None else port)
    return _DialTarget(shown, address, is_secure, parts.netloc, resource)


def _headers(bearer_token: str | None) -> list[tuple[str, str]]:
    if bearer_token is None:
        return []
    if not bearer_token or not all("!" <= c <= "~" for c in bearer_token):
        raise ConfigurationError("a bearer token is visible ASCII without blanks")
    return [("Authorization", f"Bearer {bearer_token}")]


async def _open(
    target: _DialTarget, upgrade: _Upgrade[Any], ssl_context: SSLContext | None
) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(target.address, str):
        await loop.create_unix_connection(lambda: upgrade, target.address)
        return
    context: SSLContext | None = None
    if target.is_secure:
        import ssl

        context = ssl_context or ssl.create_default_context()
    await loop.create_connection(lambda: upgrade, *target.address, ssl=context)


def _failed(target: _DialTarget) -> str:
    kind = "socket" if isinstance(target.address, str) else "websocket"
    return f"failed to connect to exec-server {kind} `{target.shown}`"


def _cause(exc: Exception) -> str:
    if isinstance(exc, OSError) and exc.strerror and not _is_tls(exc):
        # asyncio adds the address, which the URL already tells.
        return os.strerror(exc.errno) if exc.errno is not None and exc.errno > 0 else exc.strerror
    return str(exc) or type(exc).__name__


def _is_tls(exc: OSError) -> bool:
    return type(exc).__module__ == "ssl"


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
        self._farewell = farewell(transport)


def farewell(transport: WSTransport) -> asyncio.Task[None]:
    """To be kept by a listener that was told of its end.

    picows has the peer's violation in a future of its own; unless somebody looks at it the event
    loop complains. It is done as soon as the callback returns.
    """
    return asyncio.get_running_loop().create_task(_look_at(transport.wait_disconnected()))


async def _look_at(disconnected: Awaitable[None]) -> None:
    try:
        await disconnected
    except Exception as exc:
        logging.getLogger(__name__).debug("the connection ended: %s", exc)


class _Upgrade(asyncio.Protocol, Generic[L]):
    """Asks for a WebSocket, judges the answer, and gives way to picows."""

    def __init__(
        self,
        target: _DialTarget,
        headers: Sequence[tuple[str, str]],
        limits: Limits,
        new_listener: NewListener[L],
    ) -> None:
        self.opened: asyncio.Future[L] = asyncio.get_running_loop().create_future()
        self._target = target
        self._headers = list(headers)
        self._limits = limits
        self._new_listener = new_listener
        self._transport: Any = None
        self._data = bytearray()
        self._refusal: _UpgradeRefusal | None = None
        self._timer: asyncio.TimerHandle | None = None

    def release(self) -> None:
        """Nobody waits any more: drop what did not come about."""
        if self._timer is not None:
            self._timer.cancel()
        is_open = self.opened.done() and not self.opened.cancelled() and not self.opened.exception()
        if not is_open:
            self.opened.cancel()
            if self._transport is not None:
                self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        is_unix = isinstance(self._target.address, str)
        self._transport = UnixTransport(transport) if is_unix else transport  # type: ignore[arg-type]
        self._protocol = self._new_protocol()
        # Sends the request.
        self._protocol.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._refusal is not None:
            self._take_refusal()
        elif not b"HTTP/1.".startswith(self._data[:7]):
            self._fail(ConnectionRejected(f"{_failed(self._target)}: the answer is not HTTP"))
        elif (end := self._data.find(b"\r\n\r\n")) >= 0:
            self._judge(bytes(self._data[:end]), end + 4)
        elif len(self._data) > self._limits.http_head_bytes:
            self._fail(ConnectionRejected(f"{_failed(self._target)}: the answer is too long"))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._refusal is not None:
            self._refuse(self._refusal)
        cause = (
            "the connection was closed before it was a WebSocket" if exc is None else _cause(exc)
        )
        self._fail(ConnectError(f"{_failed(self._target)}: {cause}"))

    # The answer.

    def _judge(self, head: bytes, size: int) -> None:
        refusal = _UpgradeRefusal.parse(head)
        if refusal.status == 101:
            self._give_way()
            return
        del self._data[:size]
        self._refusal = refusal
        self._take_refusal()
        if not self.opened.done():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limits.close_timeout, self._refuse, refusal)

    def _give_way(self) -> None:
        self._transport.set_protocol(self._protocol)
        feed(self._protocol, bytes(self._data))
        if self.opened.done():
            return
        # picows found fault with the answer and has ended the connection.
        checked = asyncio.ensure_future(self._protocol.wait_until_handshake_complete())
        checked.add_done_callback(self._tell_fault)

    def _tell_fault(self, checked: asyncio.Future[None]) -> None:
        fault = "closed" if checked.cancelled() else checked.exception()
        self._fail(ConnectionRejected(f"{_failed(self._target)}: {fault}", status=101))

    def _take_refusal(self) -> None:
        refusal = self._refusal
        assert refusal is not None
        if len(self._data) >= min(refusal.body_bytes, _REFUSAL_BYTES):
            self._refuse(refusal)

    def _refuse(self, refusal: _UpgradeRefusal) -> None:
        text = bytes(self._data[: min(refusal.body_bytes, _REFUSAL_BYTES)])
        words = " ".join(text.decode("utf-8", "replace").split())
        message = f"{_failed(self._target)}: HTTP {refusal.status} {refusal.reason}".rstrip()
        message += refusal.advice + (f": {words}" if words and words.isprintable() else "")
        # A gateway in front of the server may have a better day.
        is_temporary = refusal.status >= 500 or refusal.status in (408, 429)
        error = ConnectError(message) if is_temporary else ConnectionRejected(message)
        error.status = refusal.status
        self._fail(error)

    def _fail(self, error: ConnectError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)

    def _new_protocol(self) -> Any:
        limits = self._limits

        def open_(_request: object, _response: object) -> L:
            return self._new_listener(self._on_open)

        return WSProtocol(
            self._target.host_header,
            self._target.resource,
            True,
            open_,
            _SILENT,
            True,
            None,
            False,
            limits.ping_interval,
            limits.ping_interval,
            WSAutoPingStrategy.PING_PERIODICALLY,
            False,
            limits.frame_bytes,
            self._headers,
            _READ_BUFFER_BYTES,
        )

    def _on_open(self, listener: L) -> None:
        if not self.opened.done():
            self.opened.set_result(listener)


class _UpgradeRefusal(NamedTuple):
    """An HTTP answer that is no upgrade."""

    status: int
    reason: str
    body_bytes: int

    @property
    def advice(self) -> str:
        if 300 <= self.status < 400:
            return " (redirects are not followed)"
        if self.status in (200, 400, 404, 426):
            return " (not an exec-server?)"
        return ""

    @staticmethod
    def parse(head: bytes) -> _UpgradeRefusal:
        status_line, *lines = head.decode("latin-1").split("\r\n")
        _, _, rest = status_line.partition(" ")
        code, _, reason = rest.partition(" ")
        length = _REFUSAL_BYTES
        for line in lines:
            name, _, value = line.partition(":")
            if name.lower() == "content-length" and value.strip().isdecimal():
                length = int(value)
        return _UpgradeRefusal(int(code) if code.isdecimal() else 0, reason.strip(), length)

"""Everything that this package uses of picows and picows does not document.

picows opens and accepts WebSockets by functions of its own, which do not fit: our server reads the
HTTP request itself, and our client reports why a server refuses it. So both make the protocol
object of picows themselves and give it a socket. Releases of picows may change that object without
notice. Therefore pyproject.toml names the highest version that is known to work, and
tests/transport/test_picows_internals.py says what has changed in a newer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

from exec_server.limits import Limits
from exec_server.transport import lean_picows
from exec_server.transport.data_frames import DataFrame, FrameSorter
from exec_server.transport.picows_names import (
    WSAutoPingStrategy,
    WSListener,
    WSProtocol,
    WSTransport,
    WSUpgradeResponseWithListener,
)

logger = logging.getLogger(__name__)


class _SilentLogger:
    """A logger that logs nothing. From a `logging.Logger` picows derives one for each connection.

    picows logs the peer's violations as errors. They are told to the peer instead.
    """

    def isEnabledFor(self, _level: int) -> bool:
        return False

    def log(self, *_: object, **__: object) -> None:
        return

    debug = info = warning = error = exception = critical = log


_SILENT = _SilentLogger()

# On a server this is enough for requests; picows doubles it for larger messages and keeps it so.
_SERVER_BUFFER_BYTES = 8 * 1024
# To a client output arrives in chunks of up to 64 KiB, a third more in base64; several at a time.
_CLIENT_BUFFER_BYTES = 256 * 1024
# A server reads at most this much at a time: enough to take in several large requests at once.
_READ_BYTES = 1024 * 1024
# Many tiny frames are read in parts of this size, each of which takes a few milliseconds.
_FEW_BYTES = 16 * 1024


def adopt(
    transport: asyncio.Transport,
    new_listener: Callable[[], WSListener],
    *,
    limits: Limits,
    handshake: bytes,
    read_bytes: int = _READ_BYTES,
    buffer_bytes: int = _SERVER_BUFFER_BYTES,
    on_lost: Callable[[Exception | None], None] | None = None,
    tail: bytes = b"",
    sorter: FrameSorter | None = None,
) -> None:
    """Give an accepted *transport* to picows, which sees *handshake* as its first bytes.

    The handshake is whole and was accepted, so picows answers it at once. The client has sent
    *tail* after it. At most *read_bytes* are read at a time, into a buffer that begins with
    *buffer_bytes*. *on_lost* is called after the listener was told that the connection is lost.
    With a *sorter*, picows does not see the data frames.
    """
    new = _ServerProtocol if sorter is None else _SortingProtocol
    protocol = new(
        **_arguments(
            limits,
            is_client_side=False,
            ws_listener_factory=lambda _: WSUpgradeResponseWithListener(
                cast(Any, _SwitchingProtocols()), new_listener()
            ),
            read_buffer_init_size=buffer_bytes,
        )
    )
    protocol.read_bytes, protocol.on_lost = read_bytes, on_lost
    transport.set_protocol(protocol)
    protocol.connection_made(_AcceptedTransport(transport))
    feed(protocol, handshake)
    if sorter is not None:
        protocol.sorter = sorter
    feed(protocol, tail)


def stream_of(transport: WSTransport) -> Any:
    """The transport that carries the frames of a WebSocket."""
    stream: Any = transport.underlying_transport
    return stream.stream if type(stream) is _AcceptedTransport else stream


def client_protocol(
    host: str,
    resource: str,
    new_listener: Callable[[], WSListener],
    *,
    headers: Sequence[tuple[str, str]],
    limits: Limits,
) -> Any:
    """Make the protocol of a WebSocket that we open; `connection_made` sends the request."""
    return _LeanProtocol(
        **_arguments(
            limits,
            host_port=host,
            ws_path=resource,
            is_client_side=True,
            ws_listener_factory=lambda _request, _response: new_listener(),
            extra_headers=list(headers),
            read_buffer_init_size=_CLIENT_BUFFER_BYTES,
        )
    )


def _arguments(limits: Limits, **changes: Any) -> dict[str, Any]:
    """All arguments of WSProtocol, none of which has a default."""
    return {
        "host_port": None,
        "ws_path": None,
        "logger": _SILENT,
        "disconnect_on_exception": True,
        "websocket_handshake_timeout": None,
        # Listeners send pings and pongs themselves.
        "enable_auto_ping": False,
        "auto_ping_idle_timeout": limits.ping_interval,
        "auto_ping_reply_timeout": limits.ping_interval,
        "auto_ping_strategy": WSAutoPingStrategy.PING_PERIODICALLY,
        "enable_auto_pong": False,
        "max_frame_size": limits.frame_bytes,
        "extra_headers": None,
        **changes,
    }


class _SwitchingProtocols:
    """The answer 101, with the bytes of picows' own one, which takes a dictionary to make."""

    __slots__ = ("headers",)
    status = 101

    def __init__(self) -> None:
        # picows puts the proof here that the key was read.
        self.headers: dict[str, str] = {}

    def to_bytes(self) -> bytearray:
        return bytearray(_SWITCHING % self.headers["Sec-WebSocket-Accept"].encode())


_SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: %b\r\n\r\n"
)


class _LeanProtocol(WSProtocol):  # type: ignore[misc]
    """Loads nothing when a connection is made."""

    def connection_made(self, transport: Any) -> None:
        with lean_picows.without_transports():
            super().connection_made(transport)


class _ServerProtocol(_LeanProtocol):
    """Tells its listener of an end of file, which picows keeps to itself."""

    read_bytes: int
    on_lost: Callable[[Exception | None], None] | None

    def get_buffer(self, size_hint: int) -> memoryview:
        room = _whole_buffer(self, size_hint)
        if len(room) <= _FEW_BYTES:
            return room
        # All the room that picows has would be much more than the rest of a large frame, and
        # picows would double its buffer for what follows the frame.
        listener = self.listener
        most = self.read_bytes if listener is None or listener.reads_much() else _FEW_BYTES
        return room if len(room) <= most else room[:most]

    def eof_received(self) -> bool:
        if self.listener is not None:
            self.listener.on_ws_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost(exc)


_whole_buffer: Callable[[WSProtocol, int], memoryview] = WSProtocol.get_buffer


class _SortingProtocol(_ServerProtocol):
    """Gives data frames to its listener, and everything else to picows.

    The listener is told when all of a read is delivered: by its last frame, or by `read_ended`.
    """

    sorter: FrameSorter | None = None

    def get_buffer(self, size_hint: int) -> memoryview:
        if self.sorter is None:
            return super().get_buffer(size_hint)
        most = self.read_bytes if self.listener.reads_much() else _FEW_BYTES
        return self.sorter.room()[:most]

    def buffer_updated(self, size: int) -> None:
        if self.sorter is None:
            super().buffer_updated(size)
            return
        listener, transport = self.listener, self.transport
        parts = self.sorter.sort(size)
        last = parts[-1] if parts else None
        if isinstance(last, DataFrame):
            last.last_in_buffer = True
        for part in parts:
            if isinstance(part, DataFrame):
                listener.on_ws_frame(transport, part)
            else:
                _feed(part, super().get_buffer, super().buffer_updated)
        if not isinstance(last, DataFrame):
            listener.read_ended()


def feed(protocol: Any, data: bytes) -> None:
    """Give *data* to a buffered protocol as if it had been read from its socket."""
    _feed(memoryview(data), protocol.get_buffer, protocol.buffer_updated)


def _feed(
    data: memoryview,
    get_buffer: Callable[[int], memoryview],
    buffer_updated: Callable[[int], None],
) -> None:
    while data:
        buffer = get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        buffer_updated(size)
        data = data[size:]


def handshake_result(protocol: Any) -> asyncio.Future[None]:
    """Return a future that has the fault that picows found with the server's answer, if any."""
    result: asyncio.Future[None] = asyncio.ensure_future(protocol.wait_until_handshake_complete())
    return result


def consume_violation(transport: WSTransport) -> asyncio.Task[None]:
    """Read the peer's violation, if there was one; to be kept by a listener that has lost its peer.

    picows keeps the violation in a future of its own, and the event loop complains about a future
    that is never read. The task ends as soon as the callback of the listener has returned.
    """
    return asyncio.get_running_loop().create_task(_read_violation(transport))


async def _read_violation(transport: WSTransport) -> None:
    # The coroutine of picows is made here: a task that is cancelled before it begins, as at the end
    # of `asyncio.run`, would leave it without ever awaiting it.
    try:
        await transport.wait_disconnected()
    except Exception as exc:
        logger.debug("the connection ended: %s", exc)


class _AcceptedTransport:
    """The *stream* of an accepted connection, as picows may see it.

    picows sets options of TCP, which a Unix socket does not have and which `Acceptor` sets on the
    others, and asks for more of them to log them. With uvloop each of these takes a socket object.
    """

    __slots__ = ("stream",)

    def __init__(self, stream: asyncio.Transport) -> None:
        self.stream = stream

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return _QuietSocket(self.stream.get_extra_info("socket"))
        # The two addresses are only logged.
        return self.stream.get_extra_info(name, default) if name == "ssl_object" else default

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class UnixTransport:
    """A stream transport over a Unix socket, in the shape that picows expects of a TCP one."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return _QuietSocket(self._transport.get_extra_info("socket"))
        return self._transport.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _QuietSocket:
    """A socket that ignores options."""

    __slots__ = ("_sock",)

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def fileno(self) -> int:
        return int(self._sock.fileno())

    def setsockopt(self, *_: object) -> None:
        return

    def getsockopt(self, *_: object) -> int:
        return 0

"""Forwards streams to another WebSocket server: whole messages, which are not read."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlsplit

from exec_server.errors import ConfigurationError, ConnectError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.transport.connection import Connection
from exec_server.transport.frames import FrameSocket, Sizes, dial_frames

logger = logging.getLogger(__name__)


class Forwarder:
    """Gives each stream a socket of its own to *url*. Its `serve` is for an Executor."""

    def __init__(self, url: str, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._url = check_destination(url)
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, connection: Connection) -> None:
        """Forward *connection* until one side ends."""
        coupling = _Coupling(connection)
        task = asyncio.get_running_loop().create_task(self._reach(coupling), name="forward")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _reach(self, coupling: _Coupling) -> None:
        limits = self._limits
        sizes = Sizes(
            frame_bytes=limits.frame_bytes,
            message_bytes=limits.message_bytes,
            sent_frame_bytes=limits.forward_frame_bytes,
        )
        try:
            await dial_frames(
                self._url,
                coupling,
                sizes=sizes,
                limits=limits,
                answers_close=True,
                connect_timeout=limits.forward_timeout,
            )
            await coupling.over.wait()
        except ConnectError as exc:
            logger.warning("the destination cannot be reached: %s", exc)
        finally:
            coupling.end()


def check_destination(url: str) -> str:
    """Return *url* without surrounding blanks. Raises ConfigurationError if it is not valid."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigurationError("invalid --connect URL") from None
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise ConfigurationError("--connect takes a ws:// or wss:// URL with a host")
    return url


class _Coupling:
    """A stream and the socket to its destination; messages of one are sent on the other."""

    def __init__(self, connection: Connection) -> None:
        self.over = asyncio.Event()
        self._connection = connection
        self._socket: FrameSocket | None = None
        # Nothing is read before the socket to the destination is open.
        connection.attach(_FromStream(self))
        connection.pause_reading()

    def end(self) -> None:
        """End both sides. Idempotent."""
        self.over.set()
        if self._socket is not None:
            self._socket.drop()
        self._connection.close("forwarding has ended")

    # Called by the socket to the destination.

    def socket_opened(self, socket: FrameSocket) -> None:
        self._socket = socket
        if self.over.is_set():
            socket.drop()
        self._connection.resume_reading()

    def frame_received(self, data: bytes | memoryview) -> None:
        if data:
            self._connection.send(bytes(data))
        else:
            # A stream cannot carry an empty message.
            self.end()

    def text_received(self, data: bytes) -> None:
        self.frame_received(data)

    def writing_paused(self) -> None:
        self._connection.pause_reading()

    def writing_resumed(self) -> None:
        self._connection.resume_reading()

    def socket_lost(self, reason: str) -> None:
        self.over.set()

    # Called for the stream.

    def send(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.send(data)

    def pause(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()


class _FromStream:
    """A coupling, as the stream's receiver."""

    def __init__(self, coupling: _Coupling) -> None:
        self._coupling = coupling

    def message_received(self, data: bytes) -> None:
        self._coupling.send(data)

    def writing_paused(self) -> None:
        self._coupling.pause()

    def writing_resumed(self) -> None:
        self._coupling.resume()

    def connection_lost(self) -> None:
        self._coupling.over.set()

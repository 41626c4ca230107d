"""Ports and Unix sockets of the server's machine as ssh's -L, -R, -D and -W use them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import asyncssh
from asyncssh.stream import SSHTCPStreamSession, SSHUNIXStreamSession

from exec_server.client.client import ExecServerClient
from exec_server.client.streams.stream_server import RemoteServer
from exec_server.errors import ExecServerError
from exec_server.ssh_door.target import DoorTarget

logger = logging.getLogger(__name__)

_READ_BYTES = 256 << 10
# Seconds between two attempts to listen again after a lost session.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
# How ssh writes an address that means all of them.
_ALL = ("", "*")

_Listen = Callable[[ExecServerClient], Awaitable[RemoteServer]]


class Forwarding:
    """The forwarded connections of one ssh connection."""

    def __init__(
        self,
        connection: asyncssh.SSHServerConnection,
        target: DoorTarget,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._connection = connection
        self._target = target
        self._tasks = tasks
        self._listeners: list[_ForwardListener] = []

    async def connect_tcp(self, host: str, port: int) -> SSHTCPStreamSession[bytes]:
        """A connection from the server's machine to *host*. Raises ChannelOpenError."""
        try:
            ends = await (await self._target.client()).open_connection(host, port)
        except (ExecServerError, OSError, ValueError) as exc:
            raise _refused(exc) from exc
        return SSHTCPStreamSession(lambda reader, writer: _join(reader, writer, *ends))

    async def connect_unix(self, path: str) -> SSHUNIXStreamSession[bytes]:
        """A connection to a Unix socket on the server's machine. Raises ChannelOpenError."""
        try:
            ends = await (await self._target.client()).open_unix_connection(path)
        except (ExecServerError, OSError, ValueError) as exc:
            raise _refused(exc) from exc
        return SSHUNIXStreamSession(lambda reader, writer: _join(reader, writer, *ends))

    async def listen_tcp(self, host: str, port: int) -> asyncssh.SSHListener | bool:
        """Listen on the server's machine; each connection there becomes one to the ssh client."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            origin = writer.get_extra_info("peername") or ("127.0.0.1", 0)
            near = self._connection.open_connection(host, listener.get_port(), *origin[:2])
            await _accept(near, reader, writer)

        try:
            place = "0.0.0.0" if host in _ALL else host
            client = await self._target.client()
            server = await client.start_server(accepted, place, port)
        except (ExecServerError, OSError, ValueError) as exc:
            logger.warning("cannot listen on %s port %s: %s", host, port, exc)
            return False
        bound = server.place.port or port
        listener = self._listener(
            client, server, lambda again: again.start_server(accepted, place, bound)
        )
        return listener

    async def listen_unix(self, path: str) -> asyncssh.SSHListener | bool:
        """As `listen_tcp`, on a Unix socket."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _accept(self._connection.open_unix_connection(path), reader, writer)

        try:
            client = await self._target.client()
            server = await client.start_unix_server(accepted, path)
        except (ExecServerError, OSError, ValueError) as exc:
            logger.warning("cannot listen on %s: %s", path, exc)
            return False
        return self._listener(client, server, lambda again: again.start_unix_server(accepted, path))

    def _listener(
        self, client: ExecServerClient, server: RemoteServer, listen: _Listen
    ) -> _ForwardListener:
        listener = _ForwardListener(server)
        listener.keeping = self._tasks.create_task(self._keep(listener, client, listen))
        self._listeners.append(listener)
        return listener

    async def _keep(
        self, listener: _ForwardListener, client: ExecServerClient, listen: _Listen
    ) -> None:
        """Listen again when the session was lost, as soon as there is another one."""
        while True:
            await client.wait_closed()
            pause = _FIRST_PAUSE
            while True:
                try:
                    client = await self._target.client()
                    listener.server = await listen(client)
                    break
                except (ExecServerError, OSError) as exc:
                    logger.info("cannot listen again: %s", exc)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def close(self) -> None:
        """Close what listens."""
        for listener in self._listeners:
            listener.close()


class _ForwardListener(asyncssh.SSHListener):
    """A port or socket of the server's machine that is listened on."""

    def __init__(self, server: RemoteServer) -> None:
        super().__init__()
        self.server = server
        # The task that replaces `server` after a lost session.
        self.keeping: asyncio.Task[None] | None = None

    def get_port(self) -> int:
        return self.server.place.port or 0

    def close(self) -> None:
        if self.keeping is not None:
            self.keeping.cancel()
        self.server.close()

    async def wait_closed(self) -> None:
        await self.server.wait_closed()


async def _accept(near: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Open the ssh client's end of a connection that was accepted over there."""
    try:
        near_reader, near_writer = await near
    except (asyncssh.Error, OSError) as exc:
        logger.debug("the ssh client takes no connection: %s", exc)
        writer.close()
        return
    await _join(near_reader, near_writer, reader, writer)


async def _join(near_reader: Any, near_writer: Any, far_reader: Any, far_writer: Any) -> None:
    """Pass bytes both ways, each with its own end, until both have ended."""
    both = [
        asyncio.create_task(_pump(near_reader, far_writer)),
        asyncio.create_task(_pump(far_reader, near_writer)),
    ]
    try:
        await asyncio.gather(*both)
    except (ExecServerError, asyncssh.Error, OSError) as exc:
        # A connection that was reset ends both directions.
        logger.debug("a forwarded connection ended: %s", exc)
    finally:
        for task in both:
            task.cancel()
        for writer in (near_writer, far_writer):
            with contextlib.suppress(ExecServerError, OSError):
                writer.close()


async def _pump(reader: Any, writer: Any) -> None:
    while data := await reader.read(_READ_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _refused(error: Exception) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error))

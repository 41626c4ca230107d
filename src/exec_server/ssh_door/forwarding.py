"""Ports and Unix sockets of the server's machine as ssh's -L, -R, -D and -W use them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import asyncssh
from asyncssh.stream import SSHTCPStreamSession, SSHUNIXStreamSession

from exec_server.errors import ExecServerError
from exec_server.ssh_door.target import DoorTarget

_READ_BYTES = 256 << 10


class Forwarding:
    """The forwarded connections of one ssh connection."""

    def __init__(
        self, connection: asyncssh.SSHServerConnection, target: DoorTarget, tasks: asyncio.TaskGroup
    ) -> None:
        self._connection = connection
        self._target = target
        self._tasks = tasks
        self._listeners: set[_ForwardListener] = set()

    async def connect_tcp(self, host: str, port: int) -> SSHTCPStreamSession[bytes]:
        """A connection from the server's machine to *host*. Raises ChannelOpenError."""
        try:
            client: Any = await self._target.client()
            ends = await client.open_connection(host, port)
        except (ExecServerError, OSError) as exc:
            raise _refused(exc) from exc
        return SSHTCPStreamSession(lambda reader, writer: _join(reader, writer, *ends))

    async def connect_unix(self, path: str) -> SSHUNIXStreamSession[bytes]:
        """A connection to a Unix socket on the server's machine. Raises ChannelOpenError."""
        try:
            client: Any = await self._target.client()
            ends = await client.open_unix_connection(path)
        except (ExecServerError, OSError) as exc:
            raise _refused(exc) from exc
        return SSHUNIXStreamSession(lambda reader, writer: _join(reader, writer, *ends))

    async def listen(self, host: str, port: int) -> asyncssh.SSHListener | bool:
        """Listen on the server's machine; each connection there becomes one to the ssh client."""
        listener = _ForwardListener()

        async def accepted(reader: Any, writer: Any) -> None:
            try:
                near = await self._connection.open_connection(
                    host, listener.get_port(), "127.0.0.1", 0, encoding=None
                )
            except (asyncssh.Error, OSError):
                writer.close()
                return
            await _join(*near, reader, writer)

        try:
            client: Any = await self._target.client()
            # ssh asks for `localhost` unless it is told otherwise, and for `` if it means all.
            listener.server = await client.start_server(accepted, host or "0.0.0.0", port)
        except (ExecServerError, OSError):
            return False
        self._listeners.add(listener)
        return listener

    async def close(self) -> None:
        """Close what listens."""
        for listener in self._listeners:
            listener.close()
            with contextlib.suppress(ExecServerError, OSError):
                await listener.wait_closed()


class _ForwardListener(asyncssh.SSHListener):
    """A port of the server's machine that is listened on."""

    def __init__(self) -> None:
        super().__init__()
        self.server: Any = None

    def get_port(self) -> int:
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        self.server.close()

    async def wait_closed(self) -> None:
        await self.server.wait_closed()


async def _join(near_reader: Any, near_writer: Any, far_reader: Any, far_writer: Any) -> None:
    """Pass bytes both ways, each with its own end, until both have ended."""
    both = [
        asyncio.create_task(_pump(near_reader, far_writer)),
        asyncio.create_task(_pump(far_reader, near_writer)),
    ]
    try:
        await asyncio.gather(*both)
    except (ExecServerError, asyncssh.Error, OSError):
        # A connection that was reset ends both directions.
        pass
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

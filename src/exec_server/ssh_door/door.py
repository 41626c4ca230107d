"""The ssh server at the end of a socket on this machine: it asks for no key and no password."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Coroutine
from typing import Any

import asyncssh
from asyncssh.stream import SSHTCPStreamSession, SSHUNIXStreamSession

from exec_server.memory import keep_freed_memory
from exec_server.ssh_door.attached_session import AttachedSession
from exec_server.ssh_door.door_channel import DoorChannel, make_channel
from exec_server.ssh_door.door_connection import quicken
from exec_server.ssh_door.door_session import DoorSession
from exec_server.ssh_door.forwarding import Forwarding
from exec_server.ssh_door.target import DoorTarget
from exec_server.version import VERSION

logger = logging.getLogger(__name__)

# How many seconds the processes of a connection that has ended get to end.
_FAREWELL = 5.0
# Authenticated ones; the stanza chooses the first, which is the fastest.
_CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
)
# What one channel may send before we have taken it, which bounds our memory.
_WINDOW = 2 << 20
# OpenSSH sends packets of 32 KiB whatever is allowed; other clients gain by larger ones.
_PACKET = 256 << 10
# Input passes through blocks of a few megabytes; faulting them in again took a tenth of the time.
_FREED_BYTES = 8 << 20


async def serve(sock: socket.socket, target: DoorTarget, private_key: bytes) -> None:
    """Serve one ssh connection on *sock* until it ends, and wait for its sessions."""
    keep_freed_memory(_FREED_BYTES)
    async with asyncio.TaskGroup() as tasks:
        door = _Door(target, tasks)
        try:
            connection = await asyncssh.run_server(
                sock,
                server_factory=lambda: door,
                server_host_keys=[asyncssh.import_private_key(private_key)],
                # OpenSSH tells only its like that it takes no more output.
                server_version=f"OpenSSH_like_exec_server_{VERSION.replace('-', '_')}",
                encoding=None,
                line_editor=False,
                window=_WINDOW,
                max_pktsize=_PACKET,
                agent_forwarding=False,
                x11_forwarding=False,
                encryption_algs=_CIPHERS,
                compression_algs=None,
                gss_host=None,
            )
        except (asyncssh.Error, OSError) as exc:
            # The other side left before it had said who it is, as `ssh -G` and scanners do.
            logger.debug("no ssh connection: %s", exc)
            return
        await connection.wait_closed()
        await door.farewell()


class _Door(asyncssh.SSHServer):
    """Decides what an ssh connection may ask for."""

    def __init__(self, target: DoorTarget, tasks: asyncio.TaskGroup) -> None:
        self._target = target
        self._tasks = tasks
        self._sessions: set[asyncio.Task[None]] = set()
        self._forwarding: Forwarding | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        quicken(conn)
        self._forwarding = Forwarding(conn, self._target, self._tasks)

    def begin_auth(self, username: str) -> bool:
        # The socket belongs to the user who has started us; there is nothing to prove.
        return False

    def session_requested(self) -> tuple[DoorChannel, DoorSession]:
        kind = DoorSession if self._target.attach is None else AttachedSession
        return make_channel(self._connection), kind(self._target, self._begin)

    def _begin(self, running: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(running)
        self._sessions.add(task)
        task.add_done_callback(self._sessions.discard)

    async def farewell(self) -> None:
        """Let sessions end; those that do not are broken off."""
        if self._forwarding is not None:
            self._forwarding.close()
        if self._sessions:
            _, left = await asyncio.wait(self._sessions, timeout=_FAREWELL)
            for task in left:
                task.cancel()

    # Forwarding.

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[SSHTCPStreamSession[bytes]]:
        assert self._forwarding is not None
        return self._forwarding.connect_tcp(dest_host, dest_port)

    def unix_connection_requested(self, dest_path: str) -> Awaitable[SSHUNIXStreamSession[bytes]]:
        assert self._forwarding is not None
        return self._forwarding.connect_unix(dest_path)

    def server_requested(
        self, listen_host: str, listen_port: int
    ) -> Awaitable[asyncssh.SSHListener | bool]:
        assert self._forwarding is not None
        return self._forwarding.listen_tcp(listen_host, listen_port)

    def unix_server_requested(self, listen_path: str) -> Awaitable[asyncssh.SSHListener | bool]:
        assert self._forwarding is not None
        return self._forwarding.listen_unix(listen_path)

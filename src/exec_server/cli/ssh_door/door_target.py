"""The server or the process that the name of an ssh host means, opened."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from exec_server.cli import server_access
from exec_server.cli.options import Token
from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS
from exec_server.ssh_door.door_clients import DoorClients
from exec_server.ssh_door.target import INPUT_BYTES, DoorTarget

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient

CLIENT_NAME = "exec-server ssh-proxy"
# Each write of a command's input waits for its answer; with larger ones latency matters less.
_LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, write_bytes=INPUT_BYTES)


@contextlib.asynccontextmanager
async def open_target(
    server: str,
    process: str | None,
    *,
    token: Token | None,
    token_file: str | None,
    keep: float | None = None,
) -> AsyncIterator[DoorTarget]:
    """Begin to connect, so that the handshake of ssh need not wait for that.

    After the end the server keeps what commands have left in the background for *keep* seconds.
    """
    if process is not None:
        async with _attaching(server, process, token, token_file) as target:
            yield target
        return
    opening = partial(_connecting, server, token, keep)
    async with DoorClients.opened(opening, _LIMITS.file_handles) as clients:
        yield DoorTarget(clients.client, file_place=clients.file_place)


@contextlib.asynccontextmanager
async def _connecting(
    server: str, token: Token | None, keep: float | None
) -> AsyncIterator[ExecServerClient]:
    if not server_access.is_server(server):
        raise ConfigurationError(f"`{server}` is not the name of an environment")
    opening = server_access.open_server(
        server, client_name=CLIENT_NAME, token=token, limits=_LIMITS
    )
    async with opening as client:
        if keep is not None:
            await client.retain(keep)
        yield client


@contextlib.asynccontextmanager
async def _attaching(
    server: str, process: str, token: Token | None, token_file: str | None
) -> AsyncIterator[DoorTarget]:
    from exec_server.cli.ssh_door.attached import Attaching

    async with contextlib.AsyncExitStack() as stack:
        attaching = Attaching(server, process, token=token, token_file=token_file, stack=stack)

        yield DoorTarget(attaching.client, attaching.attach)

"""A server inside this process, with the client that everybody else has: no socket, no port."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Unpack

from exec_server.client.client import ExecServerClient
from exec_server.client.client_session import open_session
from exec_server.client.connect_options import DEFAULT_CLIENT_NAME, ExecServerClientConnectOptions
from exec_server.client.environments.manager import EnvironmentManager, load_environments
from exec_server.client.environments.open_environment import ConnectKeywords
from exec_server.client.session_link import ConnectionState
from exec_server.client_urls import rendezvous
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.server.server import ExecServer
from exec_server.transport.connection import Connection
from exec_server.transport.memory_connection import memory_pair


async def dial_core(core: ExecServer) -> Connection:
    """A connection to a server in the same event loop."""
    ours, theirs = memory_pair(limits=core.limits)
    core.serve(theirs)
    return ours


@contextlib.asynccontextmanager
async def local(
    *,
    client_name: str = DEFAULT_CLIENT_NAME,
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout,
    on_state: Callable[[ConnectionState], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> AsyncIterator[ExecServerClient]:
    """Run processes on this machine, by the interface of a remote one, for the length of a block.

    The server lives in the caller's event loop; leaving the block ends everything it has started.
    """
    options = ExecServerClientConnectOptions(client_name=client_name, call_timeout=call_timeout)
    core = ExecServer(limits=limits)
    try:
        session = await open_session(
            lambda: dial_core(core), options, on_state=on_state, limits=limits
        )
        async with ExecServerClient(session) as client:
            yield client
    finally:
        await core.stop()


def environments(
    home: Path | None = None,
    env: Mapping[str, str] = os.environ,
    **options: Unpack[ConnectKeywords],
) -> EnvironmentManager:
    """The environments of `environments.toml` and the variables, this machine among them.

    *options* are those of `connect`, for everything that is connected here.
    """
    return load_environments(home, env, local=local, rendezvous=rendezvous, **options)

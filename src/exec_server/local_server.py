"""A server inside this process, reached by the usual client without a socket or a port."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from exec_server.client.client import ExecServerClient
from exec_server.client.client_session import open_session
from exec_server.client.connect_keywords import ConnectKeywords
from exec_server.client.connect_options import (
    DEFAULT_CLIENT_NAME,
    ConnectOptions,
    UrlOptions,
    as_options,
)
from exec_server.client.environments.manager import EnvironmentManager, load_environments
from exec_server.client.environments.open_environment import Connectors
from exec_server.client.session_link import ConnectionState
from exec_server.connecting import SCHEMES, rendezvous
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.transport.connection import Connection
from exec_server.transport.memory_connection import memory_pair

if TYPE_CHECKING:
    from exec_server.server.server import ExecServer


async def dial_core(core: ExecServer) -> Connection:
    """A connection to a server in the same event loop."""
    ours, theirs = memory_pair(limits=core.limits)
    core.serve(theirs)
    return ours


@contextlib.asynccontextmanager
async def open_local(options: ConnectOptions) -> AsyncIterator[ExecServerClient]:
    """A server in this event loop, and a client of it; both end with the block."""
    # Commands that only look a name up need no server.
    from exec_server.hidden_state import hidden_state
    from exec_server.server.server import ExecServer

    with hidden_state():
        core = ExecServer(limits=options.limits)
        try:
            session = await open_session(lambda: dial_core(core), as_options(UrlOptions, options))
            async with ExecServerClient(session) as client:
                yield client
        finally:
            await core.stop()


def local(
    *,
    client_name: str = DEFAULT_CLIENT_NAME,
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout,
    on_state: Callable[[ConnectionState], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> AbstractAsyncContextManager[ExecServerClient]:
    """Run processes on this machine with the interface of a remote client.

    The server lives in the caller's event loop; leaving the block ends everything it has started.
    """
    return open_local(
        ConnectOptions(
            client_name=client_name, call_timeout=call_timeout, on_state=on_state, limits=limits
        )
    )


_CONNECTORS = Connectors(local=open_local, rendezvous=rendezvous, schemes=SCHEMES)


def environments(
    home: Path | None = None,
    env: Mapping[str, str] = os.environ,
    **options: Unpack[ConnectKeywords],
) -> EnvironmentManager:
    """The environments of `environments.toml` and of the variables, including this machine.

    *options* are those of `connect`, for everything that is connected here.
    """
    return load_environments(home, env, connectors=_CONNECTORS, **options)

"""Serve on an address until the caller stops it: for the command line, and to embed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.server.authentication import Authenticator
from exec_server.server.local_peers import LocalPeers
from exec_server.server.principals import no_principal, token_principal, user_principal
from exec_server.server.server import ExecServer
from exec_server.transport.address import (
    DEFAULT_LISTEN_URL,
    StdioAddress,
    TcpAddress,
    UnixAddress,
    parse_listen_url,
)
from exec_server.transport.listen import Listener, listen_tcp, listen_unix

_PUBLIC_BIND = (
    "refusing to listen on {url} without authentication: anyone who can reach it could run "
    "commands as you. Turn it on with `--ws-auth capability-token --ws-token-file PATH`, listen "
    "on 127.0.0.1, or accept the risk with `--insecure-no-auth`"
)


class ExecServerRuntimePaths(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of programs that a server may need; None searches in the usual places."""

    linux_sandbox_exe: str | None = None


class RunningServer(msgspec.Struct, frozen=True):
    """A server that accepts connections at *url*."""

    url: str
    core: ExecServer


@contextlib.asynccontextmanager
async def serve(
    listen_url: str = DEFAULT_LISTEN_URL,
    *,
    limits: Limits = DEFAULT_LIMITS,
    authenticator: Authenticator | None = None,
    insecure_no_auth: bool = False,
    allow_other_users: bool = False,
    proxy_private_ips_via_upstream: bool = False,
    state_directory: Path | None = None,
) -> AsyncIterator[RunningServer]:
    """Listen on a `ws://` or `unix://` URL. Leaving the block ends all processes of the server.

    With a *state_directory*, clients can start processes that outlive the server: the next server
    on the same directory goes on with them.

    A WebSocket address that other machines can reach needs an *authenticator*, unless
    *insecure_no_auth* waives it. Without an authenticator, other users of this machine are refused
    unless *insecure_no_auth* or *allow_other_users* is true.
    """
    address = parse_listen_url(listen_url)
    if isinstance(address, StdioAddress):
        raise ConfigurationError("stdio serves one connection; use serve_stdio()")
    if isinstance(address, TcpAddress):
        is_open = not address.is_loopback and authenticator is None
        if is_open and not insecure_no_auth:
            raise ConfigurationError(_PUBLIC_BIND.format(url=address.url))
    core = ExecServer(
        limits=limits,
        proxy_private_ips_via_upstream=proxy_private_ips_via_upstream,
        state_directory=state_directory,
    )
    try:
        # This comes before the bind, so that the first client finds its session.
        await core.restore()
        peers = LocalPeers(
            core,
            allows_other_users=authenticator is not None or insecure_no_auth or allow_other_users,
        )
        listener = await _listen(address, core, peers, authenticator)
        # This comes after the bind, so that the first client need not wait for it.
        preparing = asyncio.get_running_loop().call_soon(core.prepare)
        try:
            yield RunningServer(listener.url, core)
        finally:
            preparing.cancel()
            listener.close()
    finally:
        await core.stop()


async def _listen(
    address: TcpAddress | UnixAddress,
    core: ExecServer,
    peers: LocalPeers,
    authenticator: Authenticator | None,
) -> Listener:
    if isinstance(address, UnixAddress):
        if authenticator is not None:
            raise ConfigurationError("WebSocket auth requires a WebSocket listener, not unix")
        return await listen_unix(
            address,
            core.serve,
            limits=core.limits,
            judge_peer=peers.refusal,
            identify=user_principal,
        )
    return await listen_tcp(
        address,
        core.serve,
        limits=core.limits,
        judge_peer=peers.refusal,
        check=authenticator.check if authenticator is not None else None,
        identify=token_principal(authenticator) if authenticator is not None else no_principal,
    )


async def serve_stdio(
    *,
    limits: Limits = DEFAULT_LIMITS,
    reader: int = 0,
    writer: int = 1,
    proxy_private_ips_via_upstream: bool = False,
) -> None:
    """Serve one connection on two descriptors until the end of input, and then stop."""
    from exec_server.transport.stdio import StdioConnection

    core = ExecServer(
        limits=limits,
        resumable=False,
        proxy_private_ips_via_upstream=proxy_private_ips_via_upstream,
    )
    try:
        core.serve(StdioConnection(reader, writer, limits=limits))
        core.prepare()
        await core.wait_idle()
    finally:
        await core.stop()


async def run_main(
    listen_url: str = DEFAULT_LISTEN_URL,
    runtime_paths: ExecServerRuntimePaths | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    authenticator: Authenticator | None = None,
    insecure_no_auth: bool = False,
    allow_other_users: bool = False,
    proxy_private_ips_via_upstream: bool = False,
    state_directory: Path | None = None,
    on_ready: Callable[[str], None] | None = None,
    on_stopped: Callable[[str], None] | None = None,
) -> None:
    """Serve in the caller's event loop until cancelled or stopped by a client, as the command does.

    *on_ready* gets the URL that was bound. By default the URL is printed as the only line on
    stdout. *on_stopped* is called at the end with a text for a person, if durable jobs go on.
    """
    if isinstance(parse_listen_url(listen_url), StdioAddress):
        if authenticator is not None:
            raise ConfigurationError("WebSocket auth requires a WebSocket listener, not stdio")
        await serve_stdio(
            limits=limits, proxy_private_ips_via_upstream=proxy_private_ips_via_upstream
        )
        return
    core: ExecServer | None = None
    try:
        async with serve(
            listen_url,
            limits=limits,
            authenticator=authenticator,
            insecure_no_auth=insecure_no_auth,
            allow_other_users=allow_other_users,
            proxy_private_ips_via_upstream=proxy_private_ips_via_upstream,
            state_directory=state_directory,
        ) as running:
            core = running.core
            stopped = core.stop_request()
            (on_ready or _print_url)(running.url)
            await stopped
    finally:
        if core is not None:
            tell_farewell(core, on_stopped)


def tell_farewell(core: ExecServer, on_stopped: Callable[[str], None] | None) -> None:
    """Call *on_stopped* with what a person should know, if durable jobs go on."""
    text = core.jobs.farewell if core.jobs is not None else ""
    if text and on_stopped is not None:
        on_stopped(text)


def _print_url(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()

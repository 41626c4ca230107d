"""Serve on an address until the caller stops it: for the command line, and to embed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from exec_server.access.principal import Quotas
from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.server.authentication import Authenticator, token_digests
from exec_server.server.context import FindPrincipal
from exec_server.server.floors.quotas import NO_QUOTAS, WhenFull
from exec_server.server.health_pages import monitoring_pages, ready_page
from exec_server.server.live_access import LiveAccess
from exec_server.server.local_peers import LocalPeers
from exec_server.server.principals.known_principals import KnownPrincipals
from exec_server.server.server import ExecServer
from exec_server.transport.address import (
    DEFAULT_LISTEN_URL,
    ListenAddress,
    StdioAddress,
    SystemdAddress,
    TcpAddress,
    UnixAddress,
    parse_listen_url,
)
from exec_server.transport.binding import PRIVATE, BoundSocket, UnixAccess, bind
from exec_server.transport.connection import Connection
from exec_server.transport.listen import Listener, ListenSettings, listen
from exec_server.transport.refusal_log import RefusalLog

if TYPE_CHECKING:
    from exec_server.access.principals_file import PrincipalsFile
    from exec_server.recording.recorder import TerminalRecorder
    from exec_server.server.principals.principal_watch import PrincipalWatch
    from exec_server.server.server_audit import ServerAudit
    from exec_server.server.server_metrics import ServerMetrics
    from exec_server.transport.certificate import Certificate, CertificateWatch

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
    # Replaces the authenticator of a WebSocket listener while it runs.
    access: LiveAccess
    # None unless they were asked for.
    metrics: ServerMetrics | None = None
    # Follows the file of principals, if there is one.
    principals: PrincipalWatch | None = None
    audit: ServerAudit | None = None


@contextlib.asynccontextmanager
async def serve(
    listen_url: str = DEFAULT_LISTEN_URL,
    *,
    limits: Limits = DEFAULT_LIMITS,
    authenticator: Authenticator | None = None,
    principals: str | os.PathLike[str] | None = None,
    tls: Certificate | None = None,
    unix_access: UnixAccess = PRIVATE,
    metrics: bool = False,
    audit: ServerAudit | None = None,
    insecure_no_auth: bool = False,
    allow_other_users: bool = False,
    proxy_private_ips_via_upstream: bool = False,
    state_directory: Path | None = None,
    find_principal: FindPrincipal | None = None,
    quotas: Quotas = NO_QUOTAS,
    when_full: WhenFull = "refuse",
    stream_allow: Sequence[str] = (),
    recorder: TerminalRecorder | None = None,
    on_stopped: Callable[[str], None] | None = None,
) -> AsyncIterator[RunningServer]:
    """Listen on a `ws://` or `unix://` URL, or on the socket of `systemd`.

    Leaving the block ends all processes of the server, except durable ones: with a
    *state_directory*, clients can start processes that outlive the server, and the next server on
    the same directory goes on with them. *on_stopped* is called with what a person should know,
    if such jobs go on.

    A WebSocket address that other machines can reach needs an *authenticator*, a file of
    *principals*, or *tls* that asks for certificates of clients, unless *insecure_no_auth* waives
    it. Without any of them, other users of this machine are refused unless *insecure_no_auth* or
    *allow_other_users* is true, or *unix_access* lets them use the socket. With *principals*, only
    those principals are served, the bearers of tokens that the *authenticator* accepts, and at a
    Unix socket the server's own user and root. With *metrics* there are pages `/metrics` and
    `/healthz`. With *audit* each request that does something has a line in its file, which the
    caller closes. The *recorder*, which the caller closes, too, records terminals. *stream_allow*
    are rules of `--stream-allow`: what streams may reach beside the loopback.
    """
    file = None if principals is None else _principals_file(principals)
    known = None if file is None else KnownPrincipals(file.records())
    has_certificates = tls is not None and tls.client_ca is not None
    is_guarded = authenticator is not None or known is not None or has_certificates
    address, may_be_public = parse_listen_url(listen_url), is_guarded or insecure_no_auth
    # This takes the variables of systemd out of the environment, which the server copies.
    bound = _bind(address, unix_access, authenticator, tls, may_be_public=may_be_public)
    core = ExecServer(
        limits=limits,
        proxy_private_ips_via_upstream=proxy_private_ips_via_upstream,
        state_directory=state_directory,
        audit=audit,
        find_principal=find_principal,
        quotas=quotas,
        when_full=when_full,
        stream_allow=stream_allow,
        recorder=recorder,
    )
    try:
        if audit is not None:
            audit.know_tokens(token_digests(authenticator))
            audit.started(f"listens on {bound.url(is_secure=tls is not None)}")
        # This comes before the first client is accepted, so that it finds its session.
        with _closed_on_error(bound):
            await core.restore()
        access = LiveAccess(authenticator, core.serve, known=known)
        is_shared = unix_access.is_shared and isinstance(address, UnixAddress)
        peers = LocalPeers(
            core,
            allows_other_users=may_be_public or allow_other_users or is_shared,
            refusal_of_user=None if known is None else access.refusal_of_user,
        )
        refusals = RefusalLog(asyncio.get_running_loop().time)
        if audit is not None:
            refusals.on_logged = audit.refused
        counted = _metrics(core, refusals) if metrics else None
        with contextlib.ExitStack() as held:
            listener = _listen(bound, core, peers, access, refusals, counted, tls=tls)
            held.callback(listener.close)
            # This comes last, so that the first client need not wait for it.
            held.callback(asyncio.get_running_loop().call_soon(core.prepare).cancel)
            if tls is not None:
                held.callback(_watch(tls, access, limits).close)
            watch = None if file is None else _watch_principals(file, access, limits)
            if watch is not None:
                held.callback(watch.close)
            yield RunningServer(listener.url, core, access, counted, watch, audit)
    finally:
        await core.stop()
        if audit is not None:
            audit.stopped()
        tell_farewell(core, on_stopped)


def _bind(
    address: ListenAddress,
    access: UnixAccess,
    authenticator: Authenticator | None,
    tls: Certificate | None,
    *,
    may_be_public: bool,
) -> BoundSocket:
    """A socket that listens, if the options fit to its address. Raises ConfigurationError."""
    if isinstance(address, StdioAddress):
        raise ConfigurationError("stdio serves one connection; use serve_stdio()")
    if not isinstance(address, SystemdAddress):
        _check(address, authenticator, tls, may_be_public=may_be_public)
    bound = bind(address, access)
    # The address of a socket of systemd is known only now.
    with _closed_on_error(bound):
        _check(bound.address, authenticator, tls, may_be_public=may_be_public)
    return bound


@contextlib.contextmanager
def _closed_on_error(bound: BoundSocket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        bound.sock.close()
        if bound.unlink is not None:
            os.unlink(bound.unlink)
        raise


def _check(
    address: TcpAddress | UnixAddress,
    authenticator: Authenticator | None,
    tls: Certificate | None,
    *,
    may_be_public: bool,
) -> None:
    """Raise ConfigurationError if the address and the options do not fit."""
    if isinstance(address, UnixAddress):
        if tls is not None:
            raise ConfigurationError("TLS requires a WebSocket listener, not unix")
        if authenticator is not None:
            raise ConfigurationError("WebSocket auth requires a WebSocket listener, not unix")
    elif not address.is_loopback and not may_be_public:
        raise ConfigurationError(_PUBLIC_BIND.format(url=address.url))


def _listen(
    bound: BoundSocket,
    core: ExecServer,
    peers: LocalPeers,
    access: LiveAccess,
    refusals: RefusalLog,
    metrics: ServerMetrics | None,
    *,
    tls: Certificate | None,
) -> Listener:
    is_unix = isinstance(bound.address, UnixAddress)
    pages = {"/readyz": ready_page(core)}
    on_connection: Callable[[Connection], None] = access.serve
    traffic = None
    if metrics is not None:
        # A server for other machines may be called by a name; who reaches it may read them anyhow.
        is_local = isinstance(bound.address, TcpAddress) and bound.address.is_loopback
        is_open = is_local and not access.is_guarded and tls is None
        pages |= monitoring_pages(metrics.text, is_open=is_open)
        on_connection, traffic = metrics.counting(access.serve), metrics.traffic
    settings = ListenSettings(
        on_connection=on_connection,
        limits=core.limits,
        judge_peer=peers.refusal,
        refusals=refusals,
        check=None if is_unix or not access.is_guarded else access.check,
        identify=access.identify_user if is_unix else access.identify,
        certificate=tls,
        pages=pages,
        traffic=traffic,
    )
    return listen(bound, settings)


def _metrics(core: ExecServer, refusals: RefusalLog) -> ServerMetrics:
    from exec_server.server.server_metrics import ServerMetrics

    return ServerMetrics(core, refusals.counts)


def _watch(tls: Certificate, access: LiveAccess, limits: Limits) -> CertificateWatch:
    from exec_server.transport.certificate import CertificateWatch

    tls.on_authority_removed = access.authority_removed
    return CertificateWatch(tls, seconds=limits.certificate_check_seconds)


def _principals_file(path: str | os.PathLike[str]) -> PrincipalsFile:
    # SQLite takes a while to load.
    from exec_server.access.principals_file import PrincipalsFile

    return PrincipalsFile(path)


def _watch_principals(file: PrincipalsFile, access: LiveAccess, limits: Limits) -> PrincipalWatch:
    from exec_server.server.principals.principal_watch import PrincipalWatch

    return PrincipalWatch(file, access, seconds=limits.principals_check_seconds)


async def serve_stdio(
    *,
    limits: Limits = DEFAULT_LIMITS,
    reader: int = 0,
    writer: int = 1,
    proxy_private_ips_via_upstream: bool = False,
    audit: ServerAudit | None = None,
    stream_allow: Sequence[str] = (),
    recorder: TerminalRecorder | None = None,
) -> None:
    """Serve one connection on two descriptors until the end of input, and then stop."""
    from exec_server.transport.stdio import StdioConnection

    core = ExecServer(
        limits=limits,
        resumable=False,
        proxy_private_ips_via_upstream=proxy_private_ips_via_upstream,
        audit=audit,
        stream_allow=stream_allow,
        recorder=recorder,
    )
    try:
        if audit is not None:
            audit.started("serves stdio")
        core.serve(StdioConnection(reader, writer, limits=limits))
        core.prepare()
        await core.wait_idle()
    finally:
        await core.stop()
        if audit is not None:
            audit.stopped()


async def run_main(
    listen_url: str = DEFAULT_LISTEN_URL,
    runtime_paths: ExecServerRuntimePaths | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    authenticator: Authenticator | None = None,
    principals: str | os.PathLike[str] | None = None,
    tls: Certificate | None = None,
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
        if principals is not None:
            raise ConfigurationError("principals require a listener, not stdio")
        if tls is not None:
            raise ConfigurationError("TLS requires a WebSocket listener, not stdio")
        await serve_stdio(
            limits=limits, proxy_private_ips_via_upstream=proxy_private_ips_via_upstream
        )
        return
    async with serve(
        listen_url,
        limits=limits,
        authenticator=authenticator,
        principals=principals,
        tls=tls,
        insecure_no_auth=insecure_no_auth,
        allow_other_users=allow_other_users,
        proxy_private_ips_via_upstream=proxy_private_ips_via_upstream,
        state_directory=state_directory,
        on_stopped=on_stopped,
    ) as running:
        stopped = running.core.stop_request()
        (on_ready or _print_url)(running.url)
        await stopped


def tell_farewell(core: ExecServer, on_stopped: Callable[[str], None] | None) -> None:
    """Call *on_stopped* with what a person should know, if durable jobs go on."""
    text = core.jobs.farewell if core.jobs is not None else ""
    if text and on_stopped is not None:
        on_stopped(text)


def _print_url(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()

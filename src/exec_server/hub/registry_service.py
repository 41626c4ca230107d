"""Starts and stops a registry with all of its parts, and does its regular housekeeping."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec
from aiohttp import web

from exec_server.audit.audit_file import AuditLines
from exec_server.errors import ConfigurationError
from exec_server.hub.access.pairing import Pairings
from exec_server.hub.access.signing import Signer
from exec_server.hub.access.tokens import TokenGate
from exec_server.hub.bus import Bus
from exec_server.hub.bus.memory_bus import MemoryBus
from exec_server.hub.bus.nats_url import parse_nats_url
from exec_server.hub.bus.signed_bus import SignedBus
from exec_server.hub.cluster.registrations import Registrations
from exec_server.hub.http.admission_gate import AdmissionGate
from exec_server.hub.http.connection_guard import ConnectionGuard, fit_descriptors
from exec_server.hub.http.registry_api import RegistryApi
from exec_server.hub.http.registry_metrics import EnvironmentCount
from exec_server.hub.http.rendezvous import Rendezvous
from exec_server.hub.http.tls_acceptor import TlsAcceptor
from exec_server.hub.http.web import RegistryParts, Site
from exec_server.hub.observe.audit import Audit
from exec_server.hub.observe.telemetry import RegistryTelemetry, exporting
from exec_server.hub.store import Store, StoreUnavailable
from exec_server.hub.store.open_store import is_shared, open_store
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.transport.address import TcpAddress
from exec_server.transport.certificate import Certificate

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_FORGETTING_SECONDS = 600.0
# For collectors, which do not wait for the store; `/metrics` counts at each request.
_COUNTING_SECONDS = 60.0
_DAY = 24 * 3600.0


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    listen: TcpAddress = TcpAddress("127.0.0.1", 0)
    # A SQLite file, or `postgresql://USER@HOST/DATABASE`.
    state: str
    # The URL by which clients reach the registry, if the Host header of requests does not tell it:
    # `wss://registry.example.net`.
    public_url: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    is_behind_proxy: bool = False
    allows_plaintext: bool = False
    # True if machines without a token get pairing codes for names that are not in use.
    allows_open_pairing: bool = False
    audit_log: str | None = None
    # The URL by which clients reach this node alone, of several nodes.
    node_url: str | None = None
    # The NATS servers that join several nodes: `nats://HOST:PORT`.
    bus: str | None = None
    bus_credentials: str | None = None

    def __repr__(self) -> str:
        """Leaves out the state, because its URL may have a password."""
        return f"HubOptions({self.listen.url})"


class RunningHub(msgspec.Struct, frozen=True, kw_only=True):
    """A registry that answers requests."""

    # The URL of its HTTP API, such as `http://127.0.0.1:41181`.
    url: str
    store: Store
    rendezvous: Rendezvous
    audit_lines: AuditLines | None = None

    def reopen_files(self) -> None:
        """Open the audit log again, after it was rotated."""
        if self.audit_lines is not None:
            try:
                self.audit_lines.reopen()
            except OSError as exc:
                logger.error("the audit log cannot be opened again: %s", exc.strerror)


@contextlib.asynccontextmanager
async def serve_hub(
    options: HubOptions,
    *,
    limits: Limits = DEFAULT_LIMITS,
    clock: Callable[[], float] = time.time,
    bus: Bus | None = None,
) -> AsyncIterator[RunningHub]:
    """Answer requests until the block ends. Raises ConfigurationError.

    If *bus* is given, it is used instead of the one in the options, and is not closed.
    """
    _check_shared(options)
    certificate = _certificate(options)
    limits = fit_descriptors(limits)
    async with contextlib.AsyncExitStack() as stack:
        store = await open_store(options.state, limits=limits, has_reserve=True)
        stack.push_async_callback(store.close)
        lines = stack.enter_context(_audit_lines(options.audit_log))
        signer = Signer(await store.signing_key())
        if bus is None:
            bus = await stack.enter_async_context(_bus(options, signer, limits=limits))
        if not isinstance(bus, MemoryBus) or bus.is_shared:
            bus = SignedBus(bus, signer.bus_key, clock=clock)
        registrations = await stack.enter_async_context(_registrations(options, bus, limits=limits))
        parts = _assemble(
            options, store, signer, bus, registrations, lines, limits=limits, clock=clock
        )
        await stack.enter_async_context(parts.audit.kept())
        await stack.enter_async_context(exporting(parts.telemetry, parts.metrics, limits=limits))
        url = await stack.enter_async_context(_listening(options, parts, certificate))
        await stack.enter_async_context(_housekeeping(parts, certificate))
        # This callback runs first: it ends all sockets.
        stack.push_async_callback(parts.rendezvous.drain)
        yield RunningHub(url=url, store=store, rendezvous=parts.rendezvous, audit_lines=lines)


def _check_shared(options: HubOptions) -> None:
    """Raises ConfigurationError if several nodes could not share their bus or their state."""
    if options.bus is None:
        return
    parse_nats_url(options.bus)
    if not is_shared(options.state):
        raise ConfigurationError(
            "--bus joins several nodes, which have to share one state: give all of them the same "
            "--state postgresql://USER@HOST/DATABASE instead of a file"
        )


def _certificate(options: HubOptions) -> Certificate | None:
    """The certificate to use. Raises ConfigurationError if tokens would travel unencrypted."""
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise ConfigurationError("--tls-cert and --tls-key go together")
    if options.tls_certificate is not None and options.tls_key is not None:
        return Certificate(options.tls_certificate, options.tls_key)
    if not options.listen.is_loopback and not options.is_behind_proxy:
        raise ConfigurationError(
            f"a registry on {options.listen.host} needs --tls-cert and --tls-key, or "
            "--behind-proxy when a proxy in front of it does TLS"
        )
    return None


@contextlib.contextmanager
def _audit_lines(path: str | None) -> Iterator[AuditLines | None]:
    if path is None:
        yield None
        return
    with contextlib.closing(AuditLines(path)) as lines:
        yield lines


@contextlib.asynccontextmanager
async def _bus(options: HubOptions, signer: Signer, *, limits: Limits) -> AsyncIterator[Bus]:
    bus: Bus
    if options.bus is None:
        bus = MemoryBus()
    else:
        from exec_server.hub.bus.nats_bus import NatsBus

        bus = await NatsBus.open(
            options.bus,
            name=signer.bus_name,
            credentials=options.bus_credentials,
            limits=limits,
        )
    try:
        yield bus
    finally:
        await bus.close()


@contextlib.asynccontextmanager
async def _registrations(
    options: HubOptions, bus: Bus, *, limits: Limits
) -> AsyncIterator[Registrations]:
    url = _websocket_url(options.node_url, "--node-url")
    registrations = Registrations(bus, limits=limits, url=url)
    try:
        await registrations.start()
        yield registrations
    finally:
        await registrations.stop()


def _assemble(
    options: HubOptions,
    store: Store,
    signer: Signer,
    bus: Bus,
    registrations: Registrations,
    lines: AuditLines | None,
    *,
    limits: Limits,
    clock: Callable[[], float],
) -> RegistryParts:
    telemetry = RegistryTelemetry(limits=limits)
    store = telemetry.store(store)
    audit = Audit(store, limits=limits, clock=clock, lines=lines)
    connections = ConnectionGuard(limits=limits, knows_addresses=not options.is_behind_proxy)
    rendezvous = Rendezvous(
        store,
        registrations,
        audit,
        limits=limits,
        clock=clock,
        connections=connections,
        allows_plaintext=options.allows_plaintext,
    )
    gate = TokenGate(store, limits=limits, clock=clock)
    api = RegistryApi(
        store,
        gate,
        signer,
        rendezvous,
        audit,
        limits=limits,
        clock=clock,
        allows_plaintext=options.allows_plaintext,
    )
    return RegistryParts(
        store=store,
        bus=bus,
        registrations=registrations,
        admission=AdmissionGate(limits=limits),
        gate=gate,
        signer=signer,
        api=api,
        audit=audit,
        pairings=Pairings(
            store, audit, limits=limits, clock=clock, is_open=options.allows_open_pairing
        ),
        rendezvous=rendezvous,
        connections=connections,
        environments=EnvironmentCount(store),
        limits=limits,
        clock=clock,
        telemetry=telemetry,
        public_url=_websocket_url(options.public_url, "--public-url"),
        is_behind_proxy=options.is_behind_proxy,
    )


def _websocket_url(url: str | None, option: str) -> str | None:
    if url is None:
        return None
    for http, websocket in (("https://", "wss://"), ("http://", "ws://")):
        if url.startswith(http):
            url = websocket + url.removeprefix(http)
    if not url.startswith(("ws://", "wss://")):
        raise ConfigurationError(f"{option} begins with https:// or wss://")
    return url.rstrip("/")


@contextlib.asynccontextmanager
async def _listening(
    options: HubOptions, parts: RegistryParts, certificate: Certificate | None
) -> AsyncIterator[str]:
    runner = web.AppRunner(
        Site(parts).application(),
        handle_signals=False,
        shutdown_timeout=parts.limits.close_timeout,
    )
    await runner.setup()
    assert runner.server is not None
    try:
        sock = _listening_socket(options.listen)
    except OSError as exc:
        await runner.cleanup()
        raise ConfigurationError(f"cannot listen on {options.listen.url}: {exc}") from exc
    plain = TcpAddress(*sock.getsockname()[:2]).url
    new_protocol = parts.connections.protocols(runner.server)
    server: asyncio.Server | TlsAcceptor
    if certificate is None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(new_protocol, sock=sock, backlog=_BACKLOG)
    else:
        guard = parts.connections
        server = TlsAcceptor(sock, new_protocol, certificate, guard, limits=parts.limits)
    try:
        yield ("https" if certificate else "http") + plain.removeprefix("ws")
    finally:
        server.close()
        await runner.cleanup()
        await server.wait_closed()


def _listening_socket(address: TcpAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)


@contextlib.asynccontextmanager
async def _housekeeping(
    parts: RegistryParts, certificate: Certificate | None
) -> AsyncIterator[None]:
    task = asyncio.create_task(_keep_house(parts, certificate), name="housekeeping of the registry")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _keep_house(parts: RegistryParts, certificate: Certificate | None) -> None:
    """Look for changes that others make: tokens in the store, certificates on disk."""
    forget_at = count_at = 0.0
    while True:
        try:
            if certificate is not None:
                certificate.refresh()
            await parts.rendezvous.end_revoked()
            now = parts.clock()
            if now >= count_at:
                count_at = now + _COUNTING_SECONDS
                await parts.environments.refresh()
            if now >= forget_at:
                forget_at = now + _FORGETTING_SECONDS
                days = parts.limits.hub_audit_days
                await parts.store.forget(now=now, events_before=now - days * _DAY)
        except StoreUnavailable:
            # The store has logged it.
            pass
        except Exception:
            logger.exception("the housekeeping of the registry failed")
        if _is_cancelled():
            return
        await asyncio.sleep(parts.limits.hub_revocation_seconds)


def _is_cancelled() -> bool:
    """True if this task was cancelled, even if what it waited for has swallowed that.

    `asyncio.wait_for` of Python 3.11 does it if its result comes at the same moment, and a driver
    may raise an error of its own instead.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

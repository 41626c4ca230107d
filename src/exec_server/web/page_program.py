"""The program behind the page: it listens, and serves until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable

import msgspec
from aiohttp import web

from exec_server.access.principals_file import PrincipalsFile
from exec_server.errors import ConfigurationError
from exec_server.hub.http.connection_guard import ConnectionGuard, fit_descriptors
from exec_server.hub.http.tls_acceptor import TlsAcceptor
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.transport.address import TcpAddress
from exec_server.transport.certificate import Certificate
from exec_server.web.page_access import PageAccess, PageSession
from exec_server.web.page_routes import PageRoutes
from exec_server.web.places import ForwardsElsewhere, PagePlaces, PlaceFacts
from exec_server.web.recordings.recording_shelf import RecordingShelf
from exec_server.web.recordings.terminal_history import TerminalHistories

logger = logging.getLogger(__name__)

_BACKLOG = 128
# How long answers that are under way have at the end.
_SHUTDOWN_SECONDS = 2.0
# Connections of which no one knows yet whether they are a browser's of a person; a browser has six.
_MAX_STRANGERS = 256
_ANY = ("0.0.0.0", "::")


# The page is a small server of HTTP like a registry, and bounds its connections in the same way.
PAGE_LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, hub_connections=_MAX_STRANGERS)


class PageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the page is served, and to whom."""

    listen: TcpAddress
    tls_certificate: str | None = None
    tls_key: str | None = None
    # The file of principals; without it one-time links let people in, on loopback only.
    principals: str | None = None
    # The directory of the recordings that the page lists; None has none.
    recordings: str | None = None
    # True records the terminals of the page there; else their history ends with the program.
    is_recording: bool = False
    # Texts that no recording and no history contains.
    secrets: tuple[str, ...] = ()


class ServedPage:
    """The page while it is served."""

    def __init__(self, url: str, access: PageAccess, places: PagePlaces) -> None:
        # The address without a secret.
        self.url = url
        self.places = places
        self._access = access

    def new_link(self) -> str:
        """A URL that lets one browser in, once; the secret is behind the #, so no server logs it.

        If people sign in with a token, it is the plain address.
        """
        if self._access.wants_token:
            return self.url
        return f"{self.url}#token={self._access.new_link()}"


def check_options(options: PageOptions) -> None:
    """Refuse what would not be safe. Raises ConfigurationError."""
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise ConfigurationError("--tls-cert and --tls-key go together")
    if options.listen.is_loopback:
        return
    if options.tls_certificate is None:
        raise ConfigurationError(
            f"a page on {options.listen.host} can be reached from other machines: it needs "
            "--tls-cert and --tls-key"
        )
    if options.principals is None:
        raise ConfigurationError(
            f"a page on {options.listen.host} can be reached from other machines: it needs "
            "--principals, and people sign in with the token of an admin among them"
        )


@contextlib.asynccontextmanager
async def serve_page(
    options: PageOptions,
    facts: Iterable[PlaceFacts],
    *,
    on_sign_in: Callable[[PageSession], None] = lambda session: None,
    clock: Callable[[], float] = time.time,
    forwards_elsewhere: ForwardsElsewhere = lambda name: [],
    limits: Limits = PAGE_LIMITS,
) -> AsyncIterator[ServedPage]:
    """Serve the page for the length of the block. Raises ConfigurationError."""
    check_options(options)
    certificate = None
    if options.tls_certificate is not None and options.tls_key is not None:
        certificate = Certificate(options.tls_certificate, options.tls_key)
    principals = None
    if options.principals is not None:
        principals = PrincipalsFile(options.principals)
        principals.records()
    sock = _listening_socket(options.listen)
    with contextlib.closing(sock):
        host, port = sock.getsockname()[:2]
        hosts = _hosts(host, port, options.tls_certificate)
        access = PageAccess(clock=clock, principals=principals)
        places = PagePlaces(
            facts,
            recordings=RecordingShelf(options.recordings),
            histories=await asyncio.to_thread(_histories, options),
            is_local=options.listen.is_loopback,
            forwards_elsewhere=forwards_elsewhere,
        )
        routes = PageRoutes(
            access,
            places,
            hosts=hosts,
            is_secure=certificate is not None,
            cookie_name=_cookie_name(port, is_secure=certificate is not None),
            on_sign_in=on_sign_in,
            strangers=ConnectionGuard(limits=fit_descriptors(limits), knows_addresses=True),
        )
        async with _listening(sock, routes, certificate, limits):
            scheme = "http" if certificate is None else "https"
            try:
                yield ServedPage(f"{scheme}://{hosts[0]}/", access, places)
            finally:
                await routes.close()
                await places.close()


@contextlib.asynccontextmanager
async def _listening(
    sock: socket.socket, routes: PageRoutes, certificate: Certificate | None, limits: Limits
) -> AsyncIterator[None]:
    """Answer connections to *sock*; those of strangers are bounded in time and in number."""
    runner = web.AppRunner(
        await asyncio.to_thread(routes.application),
        handle_signals=False,
        shutdown_timeout=_SHUTDOWN_SECONDS,
    )
    await runner.setup()
    assert runner.server is not None
    new_protocol = routes.strangers.protocols(runner.server)
    server: asyncio.Server | TlsAcceptor
    if certificate is None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(new_protocol, sock=sock, backlog=_BACKLOG)
    else:
        server = TlsAcceptor(sock, new_protocol, certificate, routes.strangers, limits=limits)
    try:
        yield
    finally:
        server.close()
        await runner.cleanup()
        await server.wait_closed()


def _histories(options: PageOptions) -> TerminalHistories | None:
    """Where terminals of the page are recorded. Raises ConfigurationError."""
    kept = options.recordings if options.is_recording else None
    try:
        return TerminalHistories(kept, secrets=options.secrets)
    except OSError as exc:
        if kept is not None:
            raise ConfigurationError(f"cannot record to {kept}: {exc.strerror or exc}") from None
        logger.warning("terminals of the page have no history: %s", exc)
        return None


def _listening_socket(address: TcpAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except OSError as exc:
        raise ConfigurationError(f"cannot listen on {address.host}:{address.port}: {exc}") from exc


def _cookie_name(port: int, *, is_secure: bool) -> str:
    """Cookies of all ports of a host are together; that of another page must not be replaced."""
    name = f"exec-server-web-{port}"
    return f"__Host-{name}" if is_secure else name


def _hosts(host: str, port: int, certificate: str | None) -> list[str]:
    """The values of `Host` under which the page answers, the one to print first."""
    names = [] if host in _ANY else [f"[{host}]" if ":" in host else host]
    if certificate is None:
        names.append("localhost")
    else:
        names += _certified(certificate)
    if not names:
        raise ConfigurationError(f"`{certificate}` names no host, so no browser would accept it")
    hosts = [f"{name}:{port}" for name in dict.fromkeys(names)]
    # Browsers leave out the usual port.
    usual = 80 if certificate is None else 443
    return [*hosts, *(names if port == usual else ())]


def _certified(path: str) -> list[str]:
    """The names and addresses that a certificate is for."""
    from cryptography import x509

    try:
        with open(path, "rb") as file:
            found = x509.load_pem_x509_certificate(file.read())
        listed = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except (OSError, ValueError) as exc:
        raise ConfigurationError(f"cannot read `{path}`: {exc}") from None
    names = [name for name in listed.get_values_for_type(x509.DNSName) if "*" not in name]
    for address in listed.get_values_for_type(x509.IPAddress):
        if isinstance(address, ipaddress.IPv6Address):
            names.append(f"[{address}]")
        elif isinstance(address, ipaddress.IPv4Address):
            names.append(str(address))
    return names

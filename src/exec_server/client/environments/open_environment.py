"""Connect to an environment, whatever its kind."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from exec_server.client.client import ExecServerClient, open_url
from exec_server.client.client_session import open_session
from exec_server.client.connect_options import ConnectOptions, UrlOptions, as_options
from exec_server.client.environments.kinds import (
    Environment,
    LocalEnvironment,
    ProgramEnvironment,
    RendezvousEnvironment,
    TokenSource,
    WebSocketEnvironment,
)
from exec_server.client.session_link import Dialler
from exec_server.client.url_schemes import Schemes
from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS
from exec_server.transport.connection import Connection

# Makes a server inside this process, with a client of it.
LocalOpener = Callable[[ConnectOptions], AbstractAsyncContextManager[ExecServerClient]]
# Says how to dial an environment through its registry.
RendezvousDialler = Callable[[RendezvousEnvironment, ConnectOptions], Dialler]


class Connectors(msgspec.Struct, frozen=True):
    """The kinds of connections that need other packages; None where they are not available."""

    local: LocalOpener | None = None
    rendezvous: RendezvousDialler | None = None
    schemes: Schemes = ()


@contextlib.asynccontextmanager
async def open_environment(
    environment: Environment, options: ConnectOptions, connectors: Connectors
) -> AsyncIterator[ExecServerClient]:
    """Connect to *environment*; leaving the block disconnects."""
    if options.pin is not None and environment.kind in ("local", "program"):
        raise ConfigurationError("only a server behind a registry has a key that can be pinned")
    if isinstance(environment, LocalEnvironment):
        opening = _local(options, connectors)
    else:
        opening = await _connect(environment, options, connectors)
    async with opening as client:
        yield client


def _local(
    options: ConnectOptions, connectors: Connectors
) -> AbstractAsyncContextManager[ExecServerClient]:
    if connectors.local is None:
        raise ConfigurationError("no server was given for the local environment")
    if options.session_token is not None:
        raise ConfigurationError("a local session ends with its client and cannot be resumed")
    return connectors.local(options)


async def _connect(
    environment: WebSocketEnvironment | ProgramEnvironment | RendezvousEnvironment,
    options: ConnectOptions,
    connectors: Connectors,
) -> ExecServerClient:
    if isinstance(environment, WebSocketEnvironment):
        at_url = as_options(
            UrlOptions,
            options,
            token=_token(environment, options),
            **_tls_files(environment, options),
            connect_timeout=environment.connect_timeout,
            initialize_timeout=environment.initialize_timeout,
        )
        return await open_url(environment.url, at_url, schemes=connectors.schemes)
    seconds = DEFAULT_LIMITS.initialize_timeout
    if isinstance(environment, ProgramEnvironment):
        seconds = environment.initialize_timeout
    session = await open_session(
        _dialler(environment, options, connectors),
        as_options(UrlOptions, options, initialize_timeout=seconds),
        can_redial=environment.can_redial,
    )
    return ExecServerClient(session)


def _tls_files(environment: WebSocketEnvironment, options: ConnectOptions) -> dict[str, str | None]:
    """The files that are configured, unless the caller gives others."""
    names = ("ca_file", "client_cert", "client_key")
    if options.ssl_context is not None:
        return {}
    # A certificate and its key belong together.
    own = ("ca_file",) if options.client_cert is not None else names
    return {name: getattr(options, name) or getattr(environment, name) for name in own}


def _token(environment: WebSocketEnvironment, options: ConnectOptions) -> str | TokenSource | None:
    return environment.token if options.token is None else options.token


def _dialler(
    environment: ProgramEnvironment | RendezvousEnvironment,
    options: ConnectOptions,
    connectors: Connectors,
) -> Dialler:
    if isinstance(environment, RendezvousEnvironment):
        if connectors.rendezvous is None:
            raise ConfigurationError("no way was given to environments behind a registry")
        return connectors.rendezvous(environment, options)

    def start() -> Awaitable[Connection]:
        from exec_server.transport.program import dial_program

        return dial_program(
            environment.argv, limits=options.limits, env=environment.env, cwd=environment.cwd
        )

    return start

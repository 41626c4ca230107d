"""Connect to an environment, whatever its kind."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, TypedDict

import msgspec

from exec_server.client.client import ExecServerClient
from exec_server.client.client_session import open_session
from exec_server.client.connect_options import (
    DEFAULT_CLIENT_NAME,
    ExecServerClientConnectOptions,
    RemoteExecServerConnectArgs,
)
from exec_server.client.environments.kinds import (
    Environment,
    LocalEnvironment,
    ProgramEnvironment,
    RendezvousEnvironment,
    WebSocketEnvironment,
)
from exec_server.client.network_policy import OnPolicyDecision, OnPolicyRequest
from exec_server.client.session_link import ConnectionState, Dialler
from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.transport.connection import Connection

if TYPE_CHECKING:
    from ssl import SSLContext


class LocalFactory(Protocol):
    """Makes a server inside this process: `exec_server.local`."""

    def __call__(
        self,
        *,
        client_name: str,
        call_timeout: float | None,
        on_state: Callable[[ConnectionState], None] | None,
        limits: Limits,
    ) -> AbstractAsyncContextManager[ExecServerClient]: ...


# Says how to reach an environment through its registry.
RendezvousFactory = Callable[[RendezvousEnvironment, "ConnectOptions"], Dialler]


class Ways(msgspec.Struct, frozen=True):
    """What this package cannot do alone: the ways to a server in this process or behind a relay."""

    local: LocalFactory | None = None
    rendezvous: RendezvousFactory | None = None


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may want of a connection, whatever the environment; as for `connect`."""

    # Instead of the one that is configured.
    token: str | None = None
    # Of the key of a server behind a registry; refused for others.
    pin: str | None = None
    client_name: str = DEFAULT_CLIENT_NAME
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout
    session_token: str | None = None
    reconnect: bool = True
    recover_for: float | None = None
    on_state: Callable[[ConnectionState], None] | None = None
    on_policy_request: OnPolicyRequest | None = None
    on_policy_decision: OnPolicyDecision | None = None
    ssl_context: SSLContext | None = None
    limits: Limits = DEFAULT_LIMITS

    def __repr__(self) -> str:
        return f"ConnectOptions(client_name={self.client_name!r})"


class ConnectKeywords(TypedDict, total=False):
    """ConnectOptions, as keyword arguments."""

    token: str | None
    pin: str | None
    client_name: str
    call_timeout: float | None
    session_token: str | None
    reconnect: bool
    recover_for: float | None
    on_state: Callable[[ConnectionState], None] | None
    on_policy_request: OnPolicyRequest | None
    on_policy_decision: OnPolicyDecision | None
    ssl_context: SSLContext | None
    limits: Limits


@contextlib.asynccontextmanager
async def open_environment(
    environment: Environment, options: ConnectOptions, ways: Ways
) -> AsyncIterator[ExecServerClient]:
    """A client of *environment* for the length of a block."""
    if options.pin is not None and environment.kind in ("local", "program"):
        raise ConfigurationError("only a server behind a registry has a key that can be pinned")
    if isinstance(environment, LocalEnvironment):
        opening = _local(options, ways)
    else:
        opening = await _connect(environment, options, ways)
    async with opening as client:
        client._session.policy.on_request = options.on_policy_request
        client._session.policy.on_decision = options.on_policy_decision
        yield client


def _local(options: ConnectOptions, ways: Ways) -> AbstractAsyncContextManager[ExecServerClient]:
    if ways.local is None:
        raise ConfigurationError("no server was given for the local environment")
    if options.session_token is not None:
        raise ConfigurationError("a local session ends with its client and cannot be resumed")
    return ways.local(
        client_name=options.client_name,
        call_timeout=options.call_timeout,
        on_state=options.on_state,
        limits=options.limits,
    )


async def _connect(
    environment: WebSocketEnvironment | ProgramEnvironment | RendezvousEnvironment,
    options: ConnectOptions,
    ways: Ways,
) -> ExecServerClient:
    if isinstance(environment, WebSocketEnvironment):
        return await ExecServerClient.connect_websocket(
            _args(environment, options),
            session_token=options.session_token,
            on_state=options.on_state,
            ssl_context=options.ssl_context,
            limits=options.limits,
        )
    seconds = DEFAULT_LIMITS.initialize_timeout
    if isinstance(environment, ProgramEnvironment):
        seconds = environment.initialize_timeout
    session = await open_session(
        _dialler(environment, options, ways),
        ExecServerClientConnectOptions(
            client_name=options.client_name,
            call_timeout=options.call_timeout,
            initialize_timeout=seconds,
            recover_for=options.recover_for,
        ),
        reconnect=options.reconnect and environment.can_redial,
        session_token=options.session_token,
        on_state=options.on_state,
        limits=options.limits,
    )
    return ExecServerClient(session)


def _args(
    environment: WebSocketEnvironment, options: ConnectOptions
) -> RemoteExecServerConnectArgs:
    token = options.token
    if token is None and environment.token is not None:
        token = environment.token()
    return RemoteExecServerConnectArgs(
        websocket_url=environment.url,
        client_name=options.client_name,
        connect_timeout=environment.connect_timeout,
        initialize_timeout=environment.initialize_timeout,
        call_timeout=options.call_timeout,
        auth_token=token,
        pin=options.pin,
        reconnect=options.reconnect,
        recover_for=options.recover_for,
    )


def _dialler(
    environment: ProgramEnvironment | RendezvousEnvironment, options: ConnectOptions, ways: Ways
) -> Dialler:
    if isinstance(environment, RendezvousEnvironment):
        if ways.rendezvous is None:
            raise ConfigurationError("no way was given to environments behind a registry")
        return ways.rendezvous(environment, options)

    def start() -> Awaitable[Connection]:
        from exec_server.transport.program import dial_program

        return dial_program(
            environment.argv, limits=options.limits, env=environment.env, cwd=environment.cwd
        )

    return start

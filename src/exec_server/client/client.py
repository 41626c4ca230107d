"""ExecServerClient: one logical client of a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from exec_server.client.connect_options import (
    DEFAULT_CLIENT_NAME,
    ExecServerClientConnectOptions,
    RemoteExecServerConnectArgs,
)
from exec_server.client.connection_link import ConnectionLink
from exec_server.client.discovery import RemoteDiscovery
from exec_server.client.files.remote_files import RemoteFiles
from exec_server.client.http.remote_http import RemoteHttp
from exec_server.client.network_policy import NetworkPolicy, OnPolicyDecision, OnPolicyRequest
from exec_server.client.process.processes import Processes
from exec_server.client.session_link import DISCONNECTED, ConnectionState, Dialler, SessionLink
from exec_server.client.session_token import Cursor, SessionToken
from exec_server.client.url_schemes import Where, find_way
from exec_server.errors import ConfigurationError, ConnectionClosed, SessionAttached
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol.fs import MissingChangedEvent
from exec_server.protocol.http import BodyDelta
from exec_server.protocol.lifecycle import RETAIN, InitializeResult, RetainParams
from exec_server.protocol.network import PolicyDecisionEvent
from exec_server.state.event_order import ProcessEvent
from exec_server.transport.connection import Connection
from exec_server.transport.dial import dial, is_program

if TYPE_CHECKING:
    from ssl import SSLContext


@contextlib.asynccontextmanager
async def connect(
    url: str,
    *,
    token: str | None = None,
    pin: str | None = None,
    client_name: str = DEFAULT_CLIENT_NAME,
    connect_timeout: float = DEFAULT_LIMITS.connect_timeout,
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout,
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout,
    resume_session_id: str | None = None,
    session_token: str | None = None,
    reconnect: bool = True,
    recover_for: float | None = None,
    on_state: Callable[[ConnectionState], None] | None = None,
    on_policy_request: OnPolicyRequest | None = None,
    on_policy_decision: OnPolicyDecision | None = None,
    ssl_context: SSLContext | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> AsyncIterator[ExecServerClient]:
    """Connect to a server for the length of a block.

    *url* is `ws://HOST:PORT`, `wss://HOST`, `unix://PATH`, or `stdio:PROGRAM ARGS...` for a
    server that is started as a child and spoken to by its stdin and stdout, or
    `noise+https://REGISTRY/ENVIRONMENT` for one behind a rendezvous. *token* is sent as a bearer
    token, to the server or to the registry. Raises ConnectError when no connection comes about;
    leaving the block disconnects, and the server ends what still runs when the session is not
    resumed in time.

    A connection that is lost is replaced, and the session goes on, unless *reconnect* is false;
    *on_state* is told of it. It is tried for 25 seconds, or for as long as `retain` was granted, or
    for *recover_for* seconds. *session_token* is what `session_token()` of an earlier client gave:
    its session is resumed, and `attach` goes on with its processes. *on_policy_request* decides
    what processes with a managed network may reach, and *on_policy_decision* hears of it.

    *pin* is for servers behind a registry, whose word it makes needless: the fingerprint of the
    executor's key, or `first-use` to trust the first one that is seen and no other from then on.
    UntrustedExecutor is raised for another key.
    """
    if session_token is not None and resume_session_id is not None:
        raise ConfigurationError("give a session token or the id of a session, not both")
    args = RemoteExecServerConnectArgs(
        websocket_url=url,
        client_name=client_name,
        connect_timeout=connect_timeout,
        initialize_timeout=initialize_timeout,
        call_timeout=call_timeout,
        resume_session_id=resume_session_id,
        auth_token=token,
        pin=pin,
        reconnect=reconnect,
        recover_for=recover_for,
    )
    client = await ExecServerClient.connect_websocket(
        args,
        session_token=session_token,
        on_state=on_state,
        ssl_context=ssl_context,
        limits=limits,
    )
    client.policy.on_request = on_policy_request
    client.policy.on_decision = on_policy_decision
    async with client:
        yield client


class ExecServerClient(Processes):
    """A client of one server, with one session there.

    Every call has a deadline, raises RpcError as the server says it, and raises ConnectionClosed
    or CallTimeout when it is not known whether the server has acted. Ask `exc.retryable` and
    `exc.may_have_run`.

    When the connection is lost it is replaced and the session resumed: processes go on as if
    nothing had happened, and new calls wait for it. Reads and writes of processes that were under
    way are repeated; all other calls fail, because nobody knows whether they were carried out.
    """

    def __init__(
        self,
        options: ExecServerClientConnectOptions,
        *,
        dialler: Dialler | None = None,
        on_state: Callable[[ConnectionState], None] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Not connected yet: use `connect`, `connect_websocket` or `exec_server.connect`."""
        super().__init__(options, limits=limits)
        self.policy = NetworkPolicy()
        self.routes = self.policy.routes
        self._lifeline = SessionLink(
            self, options, limits=limits, flow=self._flow, dialler=dialler, on_state=on_state
        )
        self.fs = RemoteFiles(self)
        self.http = RemoteHttp(self)
        self.discovery = RemoteDiscovery(self)

    # Connecting.

    @classmethod
    async def connect_websocket(
        cls,
        args: RemoteExecServerConnectArgs,
        *,
        session_token: str | None = None,
        on_state: Callable[[ConnectionState], None] | None = None,
        ssl_context: SSLContext | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Self:
        """Connect and shake hands; see `exec_server.connect` for what may fail."""
        where = Where(
            url=args.websocket_url,
            token=args.auth_token,
            pin=args.pin,
            connect_timeout=args.connect_timeout,
            ssl_context=ssl_context,
            limits=limits,
        )

        def dial_directly() -> Awaitable[Connection]:
            return dial(
                args.websocket_url,
                limits=limits,
                bearer_token=args.auth_token,
                connect_timeout=args.connect_timeout,
                ssl_context=ssl_context,
            )

        way = find_way(where)
        if way is None and args.pin is not None:
            raise ConfigurationError("only a server behind a registry has a key that can be pinned")
        return await cls.connect_through(
            way or dial_directly,
            args.options,
            reconnect=args.reconnect and not is_program(args.websocket_url),
            session_token=session_token,
            take_over_timeout=args.connect_timeout,
            on_state=on_state,
            limits=limits,
        )

    @classmethod
    async def connect_through(
        cls,
        dialler: Dialler,
        options: ExecServerClientConnectOptions | None = None,
        *,
        reconnect: bool = True,
        session_token: str | None = None,
        take_over_timeout: float = DEFAULT_LIMITS.connect_timeout,
        on_state: Callable[[ConnectionState], None] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Self:
        """Connect by whatever *dialler* opens, and with *reconnect* again when that is lost.

        The session of a *session_token* may still be attached to its last connection; it is tried
        again for *take_over_timeout* seconds.
        """
        options = options or ExecServerClientConnectOptions()
        token = None if session_token is None else SessionToken.parse(session_token)
        if token is not None:
            options = msgspec.structs.replace(options, resume_session_id=token.session_id)
        client = cls(
            options, dialler=dialler if reconnect else None, on_state=on_state, limits=limits
        )
        if token is None:
            await client._lifeline.open(await dialler())
        else:
            client._go_on_with(token.cursors)
            await client._take_over(dialler, take_over_timeout)
        return client

    def _go_on_with(self, cursors: dict[str, Cursor]) -> None:
        self._cursors = dict(cursors)
        if self._limits.flow_window > 0:
            windows = (
                (process_id, min(cursor.stdout, cursor.stderr))
                for process_id, cursor in cursors.items()
                if cursor.has_window
            )
            self._followed.windows.expect(windows, grace=self._limits.recovery_window)

    async def _take_over(self, dialler: Dialler, seconds: float) -> None:
        """Connect to a session whose last connection the server may still believe in."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            try:
                return await self._lifeline.open(await dialler())
            except SessionAttached:
                if loop.time() + self._limits.recovery_pause > deadline:
                    raise
            await asyncio.sleep(self._limits.recovery_pause)

    @classmethod
    async def connect(
        cls,
        connection: Connection,
        options: ExecServerClientConnectOptions | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Self:
        """Shake hands over a connection that is there already; it is ours from then on.

        Once it is lost there is no way to another one.
        """
        client = cls(options or ExecServerClientConnectOptions(), limits=limits)
        await client._lifeline.open(connection)
        return client

    @property
    def session_id(self) -> str | None:
        return self._lifeline.session_id

    @property
    def is_connected(self) -> bool:
        return self._link is not None

    @property
    def state(self) -> ConnectionState | None:
        """`connected`, `recovering`, `failed` or `closed`; None before the first connection."""
        return self._lifeline.state

    def session_token(self) -> str:
        """What another client needs to go on with this session, from any program.

        Give it to `connect` after this client is closed, and before the server forgets the session.
        Output that was not taken here comes there. Keep it secret.
        """
        if self.session_id is None:
            raise ConfigurationError("this server has no sessions")
        cursors = dict(self._cursors)
        for process_id, handle in self._followed.known.items():
            cursors.pop(process_id, None)
            if handle.is_started and (taken := handle.taken) is not None:
                cursors[process_id] = taken
        return str(SessionToken(self.session_id, cursors))

    async def retain(self, seconds: float) -> float:
        """Ask the server to keep this session, with all its processes, while nobody is connected.

        The answer is how long it will, counted anew from each disconnect; 0 or less asks for the
        server's usual time. An extension: servers without it raise MethodNotFound.
        """
        granted = (await self._call(RETAIN, RetainParams(seconds), repeat=True)).seconds
        self._lifeline.retained_seconds = granted if seconds > 0 else None
        return granted

    def close(self) -> None:
        """Disconnect; processes are left to the server. Idempotent.

        Those of a session that was retained do not wait for somebody to take their output.
        """
        if self._lifeline.retained_seconds is not None:
            self._followed.windows.release_all()
        self._lifeline.close()

    async def wait_closed(self) -> None:
        """Until the connection is gone for good, for whatever reason."""
        await self._lifeline.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._link is not None:
            with self._flow.calling():
                await self._link.settle(self._limits.close_timeout)
        self.close()
        await self.wait_closed()

    # What the lifeline reports.

    def event_received(
        self, event: ProcessEvent | MissingChangedEvent | BodyDelta | PolicyDecisionEvent
    ) -> None:
        if isinstance(event, MissingChangedEvent):
            self.fs.missing_changed(event)
        elif isinstance(event, BodyDelta):
            self.http.delta_received(event)
        elif isinstance(event, PolicyDecisionEvent):
            self.policy.decision_received(event)
        else:
            self._followed.event_received(event)

    def connected(self, result: InitializeResult, link: ConnectionLink) -> None:
        self.concurrency = result.concurrent_requests or 1
        self._info = self._info or result.environment_info
        # Servers older than sessions take native paths.
        self._uses_uris = result.session_id is not None
        self._followed.connected(link)

    def connection_lost(self) -> None:
        self.fs.connection_lost()
        self.http.connection_lost(ConnectionClosed(DISCONNECTED))
        self._followed.connection_lost()

    def flow_taken(self) -> dict[str, int]:
        return self._followed.windows.taken()

    async def restore(self, link: ConnectionLink) -> None:
        await self._followed.restore(link)

    def session_lost(self, error: ConnectionClosed) -> None:
        self._followed.session_lost(error)

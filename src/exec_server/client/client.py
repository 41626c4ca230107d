"""ExecServerClient: one logical client of a server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from exec_server.client.client_session import ClientSession, open_session, open_session_over
from exec_server.client.connect_options import (
    DEFAULT_CLIENT_NAME,
    ExecServerClientConnectOptions,
    RemoteExecServerConnectArgs,
)
from exec_server.client.discovery import RemoteDiscovery
from exec_server.client.files.remote_files import RemoteFiles
from exec_server.client.http.remote_http import RemoteHttp
from exec_server.client.network_policy import OnPolicyDecision, OnPolicyRequest
from exec_server.client.process.processes import Processes
from exec_server.client.session_link import ConnectionState
from exec_server.client.url_schemes import Where, find_way
from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol import environment
from exec_server.protocol.method import NOTHING
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
    client._session.policy.on_request = on_policy_request
    client._session.policy.on_decision = on_policy_decision
    async with client:
        yield client


class ExecServerClient(Processes):
    """A client of one server, with one session there.

    Every call has a deadline. It raises RpcError with what the server says, and ConnectionClosed
    or CallTimeout if it is not known whether the server has acted. Ask `exc.retryable` and
    `exc.may_have_run`.

    When the connection is lost it is replaced and the session resumed: processes continue as if
    nothing had happened, and new calls wait for the new connection. Reads and writes of processes
    that were under way are repeated; all other calls fail, because the client cannot know whether
    they were carried out.
    """

    def __init__(self, session: ClientSession) -> None:
        """Use `exec_server.connect`, or one of the class methods."""
        super().__init__(session)
        self._fs = RemoteFiles(self, session)
        self._http = RemoteHttp(session)
        self._discovery = RemoteDiscovery(session)

    def __repr__(self) -> str:
        return f"<ExecServerClient {self.state} session={self.session_id}>"

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
        return cls(
            await open_session(
                way or dial_directly,
                args.options,
                reconnect=args.reconnect and not is_program(args.websocket_url),
                session_token=session_token,
                take_over_timeout=args.connect_timeout,
                on_state=on_state,
                limits=limits,
            )
        )

    @classmethod
    async def connect(
        cls,
        connection: Connection,
        options: ExecServerClientConnectOptions | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Self:
        """Shake hands over a connection that is there already; the client owns it from then on.

        When this connection is lost it cannot be replaced.
        """
        return cls(await open_session_over(connection, options, limits=limits))

    # The parts.

    @property
    def fs(self) -> RemoteFiles:
        """The server's files."""
        return self._fs

    @property
    def http(self) -> RemoteHttp:
        """HTTP requests that the server's machine makes."""
        return self._http

    @property
    def discovery(self) -> RemoteDiscovery:
        """The configuration, skills and plugins that are installed on the server's machine."""
        return self._discovery

    # The server.

    @property
    def concurrency(self) -> int:
        """The number of calls that the server runs at once for this client."""
        return self._session.concurrency

    async def environment_info(self) -> environment.EnvironmentInfo:
        """What the server says about its machine; it is asked at most once."""
        return await self._session.environment_info()

    async def sandbox_info(self) -> environment.SandboxInfo | None:
        """How the server enforces sandboxes; None from a server that does not say."""
        return await self._session.sandbox_info()

    async def environment_status(self) -> str:
        """Ask the server for its status, which is `ready`."""
        seconds = self._session.limits.status_timeout
        return (await self._session.call(environment.STATUS, NOTHING, seconds=seconds)).status

    # The session.

    @property
    def session_id(self) -> str | None:
        """The id of the session; None from a server that has no sessions."""
        return self._session.link.session_id

    @property
    def is_connected(self) -> bool:
        """True while there is a connection."""
        return self._session.connection is not None

    @property
    def state(self) -> ConnectionState | None:
        """`connected`, `recovering`, `failed` or `closed`; None before the first connection."""
        return self._session.link.state

    def session_token(self) -> str:
        """The text with which another client, in any program, continues this session.

        Give it to `connect` after this client is closed, and before the server forgets the session.
        Output that was not read here comes there. Keep the token secret.
        """
        return self._session.token()

    async def retain(self, seconds: float) -> float:
        """Ask the server to keep this session, with its processes, while no client is connected.

        Returns the number of seconds that the server grants, counted anew from each disconnect; 0
        or less asks for the server's usual time. This is an extension: servers without it raise
        MethodNotFound.
        """
        return await self._session.retain(seconds)

    def close(self) -> None:
        """Disconnect; processes are left to the server. Idempotent.

        The processes of a session that was retained do not wait for a reader of their output.
        """
        self._session.close()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone for good, for whatever reason."""
        await self._session.link.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.settle()
        self.close()
        await self.wait_closed()

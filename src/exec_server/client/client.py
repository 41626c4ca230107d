"""ExecServerClient: one logical client of a server."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Generator
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from exec_server.client.client_session import ClientSession, open_session, open_session_over
from exec_server.client.connect_options import (
    ExecServerClientConnectOptions,
    RemoteExecServerConnectArgs,
    UrlOptions,
    as_options,
)
from exec_server.client.process.processes import Processes
from exec_server.client.session_link import ConnectionState
from exec_server.client.streams.stream_calls import StreamCalls
from exec_server.client.streams.stream_lists import StreamLists
from exec_server.client.url_schemes import Schemes, find_dialler
from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol import environment
from exec_server.protocol.jobs import (
    LIST,
    PRUNE,
    STOP,
    JobInfo,
    JobListParams,
    PruneParams,
    StopParams,
)
from exec_server.protocol.lifecycle import WHOAMI, WhoamiResult
from exec_server.protocol.method import NOTHING
from exec_server.transport.connection import Connection
from exec_server.transport.dial import is_program

if TYPE_CHECKING:
    from ssl import SSLContext

    from exec_server.client.discovery import RemoteDiscovery
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.client.http.remote_http import RemoteHttp


class ExecServerClient(Processes, StreamLists, StreamCalls):
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

    def __repr__(self) -> str:
        # The id of the session is enough to resume it, so it must not reach a log in this way.
        return f"<ExecServerClient {self.state}>"

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
        schemes: Schemes = (),
    ) -> Self:
        """Connect and shake hands; see `exec_server.connect` for what may fail.

        *schemes* are needed for servers behind a registry: `exec_server.connecting.SCHEMES`.
        """
        options = as_options(
            UrlOptions,
            args,
            token=args.auth_token,
            session_token=session_token,
            on_state=on_state,
            ssl_context=ssl_context,
            limits=limits,
        )
        return cls(await _session_at(args.websocket_url, options, schemes))

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

    # They are loaded and made when they are first used: many programs need none.

    @cached_property
    def _fs(self) -> RemoteFiles:
        from exec_server.client.files.remote_files import RemoteFiles

        return RemoteFiles(self, self._session)

    @cached_property
    def _http(self) -> RemoteHttp:
        from exec_server.client.http.remote_http import RemoteHttp

        return RemoteHttp(self._session)

    @cached_property
    def _discovery(self) -> RemoteDiscovery:
        from exec_server.client.discovery import RemoteDiscovery

        return RemoteDiscovery(self._session)

    # The server.

    @property
    def concurrency(self) -> int:
        """The number of calls that the server runs at once for this client."""
        return self._session.concurrency

    async def environment_info(self) -> environment.EnvironmentInfo:
        """What the server says about its machine; it is asked at most once."""
        return await self._session.environment_info()

    @property
    def server_instance(self) -> str | None:
        """A random text that names this run of the server; None if the server does not say.

        Only the run that created a session can say that the session has expired.
        """
        return self._session.server_instance

    async def sandbox_info(self) -> environment.SandboxInfo | None:
        """How the server enforces sandboxes; None from a server that does not say."""
        return await self._session.sandbox_info()

    async def offers(self, capability: str) -> bool:
        """True if the server says that it has *capability*, for example `processDurable`."""
        return await self._session.offers(capability)

    async def environment_status(self) -> str:
        """Ask the server for its status, which is `ready`."""
        seconds = self._session.limits.status_timeout
        return (await self._session.call(environment.STATUS, NOTHING, seconds=seconds)).status

    # Durable jobs, and the end of the server.

    async def jobs(self, *, all_principals: bool = False, every: bool = False) -> list[JobInfo]:
        """All durable processes of this principal on the server, whichever session has them.

        With *every* those that are not durable, too, if the server can list them: `watch` looks on
        at any of them.

        With *all_principals* those of all others, too, each with its `owner`; only an admin may ask
        for them, and others get ScopeRefused.
        `connect(resume_session_id=job.session_id)` and `attach(job.process_id)` continue with one.
        This is an extension: servers without it raise MethodNotFound.
        """
        every = every and await self.offers("processWatch")
        params = JobListParams(all_principals, every)
        return (await self._session.call(LIST, params, repeat=True)).jobs

    async def prune_jobs(
        self,
        *,
        older_than: float | None = None,
        session_id: str | None = None,
        process_id: str | None = None,
        all_principals: bool = False,
    ) -> int:
        """Let the server forget durable processes that are over or lost, with their output.

        Without parameters all of them are forgotten; *older_than* leaves those whose end was less
        than so many seconds ago. An admin may mean those of *all_principals*. Returns how many were
        forgotten. This is an extension: servers without it raise MethodNotFound.
        """
        params = PruneParams(older_than, session_id, process_id, all_principals)
        return (await self._session.call(PRUNE, params)).removed

    async def stop_server(self, *, end_jobs: bool = False) -> None:
        """Stop the server as SIGTERM does; durable processes run on unless *end_jobs* is true.

        They get SIGTERM then, and after some seconds SIGKILL. This is an extension: servers without
        it raise MethodNotFound.
        """
        await self._session.call(STOP, StopParams(end_jobs))

    async def whoami(self) -> WhoamiResult:
        """The principal that the server takes this client for, with its scopes and floors.

        This is an extension: servers without it raise MethodNotFound.
        """
        return await self._session.call(WHOAMI, NOTHING, repeat=True)

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

    def close(self) -> Closing:
        """Disconnect; processes are left to the server. Idempotent.

        It is closed at once, and `await client.close()` waits until the connection is gone.
        A client of `open` has to be closed in this way; the end of a block does it by itself.
        The processes of a session that was retained do not wait for a reader of their output.
        """
        self._opened_in = None
        self._session.close()
        return Closing(self._session)

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
        await self.close()

    # Without a block.

    # The loop of a client that its user has to close, and what has to be done after the end.
    _opened_in: asyncio.AbstractEventLoop | None = None
    _then: Callable[[], None] | None = None

    def _warn_if_forgotten(self, then: Callable[[], None] | None = None) -> None:
        """Warn and disconnect if the client is dropped before it is closed; *then* comes last."""
        self._opened_in = asyncio.get_running_loop()
        self._then = then

    def __del__(self) -> None:
        if self._opened_in is None:
            return
        text = f"{self!r} was not closed: use `close()`, or `connect` with a block"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
        # This may run in another thread, and after the loop has closed.
        with contextlib.suppress(RuntimeError):
            self._opened_in.call_soon_threadsafe(_end_forgotten, self._session, self._then)


class Closing:
    """The end of a client, which may be awaited: `await client.close()`."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    def __await__(self) -> Generator[Any, None, None]:
        return self._session.link.wait_closed().__await__()


_ending: set[asyncio.Task[None]] = set()


def _end_forgotten(session: ClientSession, then: Callable[[], None] | None) -> None:
    session.close()
    task = asyncio.get_running_loop().create_task(session.link.wait_closed())
    _ending.add(task)
    task.add_done_callback(_ending.discard)
    if then is not None:
        task.add_done_callback(lambda _: then())


async def open_url(url: str, options: UrlOptions, *, schemes: Schemes = ()) -> ExecServerClient:
    """A client of the server at *url*, connected; *schemes* are those besides the ordinary ones."""
    return ExecServerClient(await _session_at(url, options, schemes))


async def _session_at(url: str, options: UrlOptions, schemes: Schemes) -> ClientSession:
    if options.session_token is not None and options.resume_session_id is not None:
        raise ConfigurationError("give a session token or the id of a session, not both")
    if not isinstance(url, str):
        raise TypeError(f"url must be a str such as ws://HOST:PORT, not {type(url).__name__}")
    dialler = find_dialler(url, options, schemes)
    return await open_session(dialler, options, can_redial=not is_program(url))

"""ExecServerClient: one logical client of a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakValueDictionary

import msgspec

from exec_server.client.command import CompletedProcess, complete
from exec_server.client.flow import Flow
from exec_server.client.fs import RemoteFiles
from exec_server.client.lifeline import DISCONNECTED, ConnectionState, Dialler, Lifeline
from exec_server.client.link import Link
from exec_server.client.options import (
    DEFAULT_CLIENT_NAME,
    ExecServerClientConnectOptions,
    RemoteExecServerConnectArgs,
)
from exec_server.client.process import OnDisconnect, OnGap, RemoteProcess, signal_name
from exec_server.client.token import Cursor, SessionToken
from exec_server.errors import (
    CallTimeout,
    ConfigurationError,
    ConnectionClosed,
    ExecServerError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ProcessFailed,
    RpcError,
    SessionAttached,
    SessionLost,
)
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol import environment, process
from exec_server.protocol.base64 import Blob
from exec_server.protocol.env_policy import EnvPolicy
from exec_server.protocol.fs import MissingChangedEvent
from exec_server.protocol.lifecycle import InitializeResult
from exec_server.protocol.method import NOTHING, Method
from exec_server.protocol.paths import from_uri, to_uri
from exec_server.state.event_order import ProcessEvent
from exec_server.state.reconnect import is_retryable
from exec_server.transport.connection import Connection
from exec_server.transport.dial import dial, is_program

if TYPE_CHECKING:
    from ssl import SSLContext

P = TypeVar("P")
R = TypeVar("R")

StrPath = str | os.PathLike[str]

# All of the server's environment, credentials included: whoever may run commands there can read
# it anyway.
INHERIT_ENV = EnvPolicy("all", True, [], {}, [])


class _Default:
    """The deadline that the options give to every call."""


_DEFAULT = _Default()


@contextlib.asynccontextmanager
async def connect(
    url: str,
    *,
    token: str | None = None,
    client_name: str = DEFAULT_CLIENT_NAME,
    connect_timeout: float = DEFAULT_LIMITS.connect_timeout,
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout,
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout,
    resume_session_id: str | None = None,
    session_token: str | None = None,
    reconnect: bool = True,
    on_state: Callable[[ConnectionState], None] | None = None,
    ssl_context: SSLContext | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> AsyncIterator[ExecServerClient]:
    """Connect to a server for the length of a block.

    *url* is `ws://HOST:PORT`, `wss://HOST`, `unix://PATH`, or `stdio:PROGRAM ARGS...` for a
    server that is started as a child and spoken to by its stdin and stdout. *token* is sent as a
    bearer token. Raises ConnectError when no connection comes about; leaving the block
    disconnects, and the server ends what still runs when the session is not resumed in time.

    A connection that is lost is replaced, and the session goes on, unless *reconnect* is false;
    *on_state* is told of it. *session_token* is what `session_token()` of an earlier client gave:
    its session is resumed, and `attach` goes on with its processes.
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
        reconnect=reconnect,
    )
    client = await ExecServerClient.connect_websocket(
        args,
        session_token=session_token,
        on_state=on_state,
        ssl_context=ssl_context,
        limits=limits,
    )
    async with client:
        yield client


class ExecServerClient:
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
        # How many calls the server runs at once for us.
        self.concurrency = 1
        self._options = options
        self._limits = limits
        self._flow = Flow(patience=limits.reader_patience)
        self._lifeline = Lifeline(
            self, options, limits=limits, flow=self._flow, dialler=dialler, on_state=on_state
        )
        self._info: environment.EnvironmentInfo | None = None
        self._uses_uris = True
        self.fs = RemoteFiles(self)
        # Weak: nobody follows a process whose handle was dropped.
        self._handles: WeakValueDictionary[str, RemoteProcess] = WeakValueDictionary()
        # Those of ended processes, too, as long as somebody holds them.
        self._known: WeakValueDictionary[str, RemoteProcess] = WeakValueDictionary()
        # Processes to be killed, until the server has answered that.
        self._orphans: set[str] = set()
        # Where an earlier client stopped.
        self._cursors: dict[str, Cursor] = {}

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
        token = None if session_token is None else SessionToken.parse(session_token)
        options = args.options
        if token is not None:
            options = msgspec.structs.replace(options, resume_session_id=token.session_id)

        def dialler() -> Awaitable[Connection]:
            return dial(
                args.websocket_url,
                limits=limits,
                bearer_token=args.auth_token,
                connect_timeout=args.connect_timeout,
                ssl_context=ssl_context,
            )

        client = cls(
            options,
            dialler=dialler if args.reconnect and not is_program(args.websocket_url) else None,
            on_state=on_state,
            limits=limits,
        )
        if token is None:
            await client._lifeline.open(await dialler())
        else:
            client._cursors = dict(token.cursors)
            await client._take_over(dialler, args.connect_timeout)
        return client

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

    @property
    def _link(self) -> Link | None:
        return self._lifeline.link

    def session_token(self) -> str:
        """What another client needs to go on with this session, from any program.

        Give it to `connect` after this client is closed, and before the server forgets the session.
        Output that was not taken here comes there. Keep it secret.
        """
        if self.session_id is None:
            raise ConfigurationError("this server has no sessions")
        cursors = dict(self._cursors)
        for process_id, handle in self._known.items():
            cursors.pop(process_id, None)
            if handle.is_started and (taken := handle.taken) is not None:
                cursors[process_id] = taken
        return str(SessionToken(self.session_id, cursors))

    def close(self) -> None:
        """Disconnect; processes are left to the server. Idempotent."""
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

    # The environment.

    async def environment_info(self) -> environment.EnvironmentInfo:
        """What the server says of its machine; asked at most once."""
        if self._info is None:
            seconds = self._limits.info_timeout
            self._info = await self._call(environment.INFO, NOTHING, seconds=seconds)
        return self._info

    async def environment_status(self) -> str:
        """`ready`, from a server that is."""
        seconds = self._limits.status_timeout
        return (await self._call(environment.STATUS, NOTHING, seconds=seconds)).status

    # Processes.

    async def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (as subprocess.run has it)
        check: bool = False,
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        env_policy: EnvPolicy | None = INHERIT_ENV,
        tty: bool = False,
        ensure: bool = False,
    ) -> CompletedProcess:
        """Run a command to its end, in the manner of `subprocess.run`.

        Without *input* its stdin is empty; giving it takes a server that can close stdin, or
        raises MethodNotFound before anything runs. After *timeout* the command is killed and
        CommandTimeout has what it said; with *check* another status than 0 raises CommandFailed.
        The other parameters are those of `start`.

        Output that the server could not retain during an outage is missing from the result, whose
        `truncated` says so.
        """
        if input is not None:
            await self._require("processCloseStdin", "it cannot end a command's input")
        handle = await self.start(
            argv,
            cwd=cwd,
            env=env,
            env_policy=env_policy,
            tty=tty,
            stdin=input is not None,
            ensure=ensure,
            on_gap="skip",
        )
        completed = await complete(handle, list(argv), input=input, time_limit=timeout)
        if check:
            completed.check_returncode()
        return completed

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        env_policy: EnvPolicy | None = INHERIT_ENV,
        tty: bool = False,
        stdin: bool = False,
        arg0: str | None = None,
        rows: int | None = None,
        cols: int | None = None,
        process_id: str | None = None,
        ensure: bool = False,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "fail",
    ) -> RemoteProcess:
        """Start a program on the server.

        *cwd* is a path there or a file: URI; a relative path, and its absence, are seen from the
        server's own directory. *env* is laid over the server's environment, because a client
        cannot know what PATH and HOME are over there; *env_policy* chooses what is inherited, and
        None means that *env* is the whole environment.

        With *tty* the program runs on a terminal of *rows* and *cols*. Otherwise its stdin is
        empty unless *stdin* is true. *arg0* is what it sees as its own name. *process_id* must
        not be in use in this session; by default it is drawn at random.

        A start that is cancelled or not answered in time is undone as far as possible; so is one
        whose connection is lost, and ConnectionClosed says that it may have run. With *ensure* the
        server is asked then, if it can tell: a program that runs is gone on with, and one that does
        not is started, so that it runs once.

        When the connection is lost later, the handle goes on with the next one, or with
        *on_disconnect* `fail` fails at once. Output that the server could not retain meanwhile
        fails it, too, and has the process killed; with *on_gap* `skip` it is left out.
        """
        if isinstance(argv, str | bytes):
            raise TypeError("argv is a sequence of words, not a single text")
        path = await self._resolve(cwd)
        params = process.StartParams(
            process_id=process_id if process_id is not None else str(uuid.uuid4()),
            argv=list(argv),
            cwd=path,
            env=dict(env or {}),
            tty=tty,
            pipe_stdin=stdin,
            arg0=arg0,
            env_policy=env_policy,
            rows=rows,
            cols=cols,
        )
        start = partial(
            self.start_process, ensure=ensure, on_disconnect=on_disconnect, on_gap=on_gap
        )
        try:
            return await start(params)
        except InvalidParams:
            if self._uses_uris or path.startswith("file:"):
                raise
        # Of the servers without sessions some want URIs; nothing has run yet.
        params.cwd = to_uri(path)
        return await start(params)

    async def start_process(
        self,
        params: process.StartParams,
        *,
        ensure: bool = False,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "fail",
    ) -> RemoteProcess:
        """Start a program exactly as *params* say; the rest is as for `start`."""
        process_id = params.process_id
        # Before the request leaves: events may overtake its answer.
        handle = self._follow(
            process_id, is_terminal=params.tty, on_disconnect=on_disconnect, on_gap=on_gap
        )
        try:
            if ensure and await self._offers("processList"):
                await self._ensure(handle, params)
            else:
                handle.sandbox_type = (await self._call(process.START, params)).sandbox_type
        except RpcError:
            self._handles.pop(process_id, None)
            raise
        except BaseException as exc:
            if isinstance(exc, ConnectionClosed | CallTimeout) and not exc.may_have_run:
                self._handles.pop(process_id, None)
            else:
                # It may run, and nobody is left who knows of it.
                self.abandon(process_id)
            raise
        handle.is_started = True
        return handle

    def _follow(
        self,
        process_id: str,
        *,
        is_terminal: bool,
        on_disconnect: OnDisconnect,
        on_gap: OnGap,
        after: Cursor | None = None,
    ) -> RemoteProcess:
        """A new handle, to which the events of its process go from now on."""
        if process_id in self._handles or process_id in self._orphans:
            raise InvalidRequest(f"process {process_id} already exists")
        handle = RemoteProcess(
            self,
            process_id,
            is_terminal=is_terminal,
            flow=self._flow,
            limits=self._limits,
            on_disconnect=on_disconnect,
            on_gap=on_gap,
            after=after,
        )
        self._handles[process_id] = self._known[process_id] = handle
        return handle

    async def _ensure(self, handle: RemoteProcess, params: process.StartParams) -> None:
        """Start a program once, however often the answer is lost."""
        loop = asyncio.get_running_loop()
        # A process that has closed is listed for a while only; the id settles nothing after that.
        deadline = loop.time() + self._limits.recovery_window
        while True:
            try:
                handle.sandbox_type = (await self._call(process.START, params)).sandbox_type
                return
            except ConnectionClosed as exc:
                if not exc.may_have_run:
                    raise
                lost = exc
            try:
                if await self._find(handle.process_id) is not None:
                    await self._catch_up(handle)
                    return
            except ExecServerError as exc:
                # Nobody can tell any more what became of the start.
                kind = SessionLost if isinstance(exc, SessionLost) else ConnectionClosed
                raise kind(f"{lost}; {exc}", may_have_run=True) from exc
            if loop.time() > deadline:
                raise lost

    async def _find(self, process_id: str) -> process.ProcessInfo | None:
        """A process of this session, once it is no longer just starting."""
        while True:
            listed = (await self._call(process.LIST, NOTHING, repeat=True)).processes
            info = next((each for each in listed if each.process_id == process_id), None)
            if info is None or info.state != "starting":
                return info
            await asyncio.sleep(self._limits.recovery_pause)

    async def attach(
        self,
        process_id: str,
        after_seq: int | None = None,
        *,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "skip",
    ) -> RemoteProcess:
        """Go on with a process of this session that has no handle here.

        Its output comes from event *after_seq* on: by default from where the session token says
        that it was taken, or from the start. What the server no longer has is left out, as the
        handle's `is_truncated` tells, or fails the handle with *on_gap* `fail`. Raises
        InvalidRequest when the server does not know the process.
        """
        known = self._cursors.get(process_id, Cursor())
        after = known if after_seq is None else Cursor(after_seq, after_seq, known.is_terminal)
        is_terminal = known.is_terminal
        if process_id not in self._cursors and await self._offers("processList"):
            info = await self._find(process_id)
            is_terminal = info is not None and info.tty
        handle = self._follow(
            process_id,
            is_terminal=is_terminal,
            on_disconnect=on_disconnect,
            on_gap=on_gap,
            after=after,
        )
        try:
            await self._catch_up(handle)
        except BaseException:
            self._handles.pop(process_id, None)
            raise
        handle.is_started = True
        return handle

    async def _catch_up(self, handle: RemoteProcess) -> None:
        handle.expect_answer()
        params = process.ReadParams(handle.process_id, handle.cursor, None, 0)
        handle.recover(await self._call(process.READ, params, repeat=True))
        self._forget_if_settled(handle)

    def abandon(self, process_id: str) -> None:
        """Stop following a process and have it killed, without waiting for the answer.

        While there is no connection it waits for the next one.
        """
        self._handles.pop(process_id, None)
        self._orphans.add(process_id)
        if self._link is not None:
            self._kill(self._link, process_id)

    def _kill(self, link: Link, process_id: str) -> None:
        answer = link.send(process.TERMINATE, process.TerminateParams(process_id))
        answer.add_done_callback(partial(self._killed, process_id))

    def _killed(self, process_id: str, answer: asyncio.Future[Any]) -> None:
        # A lost one is sent again over the next connection.
        if not answer.cancelled() and not isinstance(answer.exception(), ConnectionClosed):
            self._orphans.discard(process_id)

    async def read(
        self,
        process_id: str,
        *,
        after_seq: int = 0,
        max_bytes: int | None = None,
        wait: float = 0.0,
    ) -> process.ReadResult:
        """Retained output after a number; waits up to *wait* seconds for some."""
        params = process.ReadParams(process_id, after_seq, max_bytes, round(wait * 1000))
        timeout = self._options.call_timeout
        return await self._call(
            process.READ, params, seconds=None if timeout is None else timeout + wait, repeat=True
        )

    async def write(
        self,
        process_id: str,
        data: bytes,
        *,
        write_id: str | None = None,
    ) -> process.WriteStatus:
        """Write to a process's stdin or terminal; a known *write_id* is not written again.

        So one with an id is repeated when the connection was lost before its answer.

        The one call without a deadline: its answer waits until the process reads.
        """
        params = process.WriteParams(process_id, Blob(data))
        if write_id is not None:
            params.write_id = write_id
        repeat = write_id is not None
        return (await self._call(process.WRITE, params, seconds=None, repeat=repeat)).status

    async def close_stdin(self, process_id: str, *, repeat: bool = False) -> process.WriteStatus:
        """End a process's input. An extension: others raise MethodNotFound.

        With *repeat* it is done again when the connection was lost before the answer.
        """
        params = process.CloseStdinParams(process_id)
        return (await self._call(process.CLOSE_STDIN, params, repeat=repeat)).status

    async def signal(self, process_id: str, signum: int | str) -> None:
        """Signal a process's group; unknown and ended processes are left alone."""
        await self._call(process.SIGNAL, process.SignalParams(process_id, signal_name(signum)))

    async def terminate(self, process_id: str) -> bool:
        """Kill a process's group; whether it was still running."""
        return (await self._call(process.TERMINATE, process.TerminateParams(process_id))).running

    async def resize(self, process_id: str, rows: int, cols: int) -> None:
        """Give a terminal another size. An extension: others raise MethodNotFound."""
        await self._call(process.RESIZE, process.ResizeParams(process_id, rows, cols))

    async def list_processes(self) -> list[process.ProcessInfo]:
        """The session's processes. An extension: others raise MethodNotFound."""
        return (await self._call(process.LIST, NOTHING)).processes

    # Calls and events.

    async def _call(
        self,
        method: Method[P, R],
        params: P,
        *,
        seconds: float | _Default | None = _DEFAULT,
        repeat: bool = False,
    ) -> R:
        """The answer to a request, which waits for a connection when there is none.

        When the connection is lost before the answer, *repeat* has it made again.
        """
        if isinstance(seconds, _Default):
            seconds = self._options.call_timeout
        is_sent = False
        try:
            with self._flow.calling():
                async with asyncio.timeout(seconds):
                    while True:
                        link = await self._lifeline.connected_link()
                        is_sent = True
                        try:
                            return await link.call(method, params, seconds=None)
                        except ConnectionClosed:
                            if not repeat:
                                raise
        except TimeoutError:
            text = f"{method.name} was not answered within {seconds:g} s"
            raise CallTimeout(text, may_have_run=is_sent) from None
        except ConnectionClosed as exc:
            if not is_sent:
                raise
            text = f"{exc}: {method.name} may have been carried out"
            raise type(exc)(text, may_have_run=True) from exc

    def _send(self, method: Method[P, R], params: P) -> None:
        """Make a request whose outcome nobody waits for, if there is a connection."""
        if self._link is not None and not self._link.is_lost:
            self._link.send(method, params)

    # What the lifeline reports.

    def event_received(self, event: ProcessEvent | MissingChangedEvent) -> None:
        if isinstance(event, MissingChangedEvent):
            self.fs.missing_changed(event)
            return
        handle = self._handles.get(event.process_id)
        if handle is None:
            return
        handle.receive(event)
        self._forget_if_settled(handle)

    def _forget_if_settled(self, handle: RemoteProcess) -> None:
        if handle.is_settled:
            self._handles.pop(handle.process_id, None)

    def connected(self, result: InitializeResult, link: Link) -> None:
        self.concurrency = result.concurrent_requests or 1
        self._info = self._info or result.environment_info
        # Servers older than sessions take native paths.
        self._uses_uris = result.session_id is not None
        for process_id in tuple(self._orphans):
            self._kill(link, process_id)

    def connection_lost(self) -> None:
        self.fs.connection_lost()
        for handle in tuple(self._handles.values()):
            if handle.on_disconnect == "hold":
                handle.disconnected()
            elif handle.is_started:
                self._handles.pop(handle.process_id, None)
                handle.fail(ConnectionClosed(DISCONNECTED))

    async def restore(self, link: Link) -> None:
        handles = [handle for handle in self._handles.values() if handle.is_started]
        for handle in handles:
            handle.expect_answer()
        # Not all at once: there is a bound to the calls in flight.
        width = self._limits.recovery_reads
        for start in range(0, len(handles), width):
            batch = handles[start : start + width]
            reads = await asyncio.gather(
                *(self._restore(link, handle) for handle in batch), return_exceptions=True
            )
            for error in reads:
                if error is not None:
                    raise error

    async def _restore(self, link: Link, handle: RemoteProcess) -> None:
        """Fetch what a process has said meanwhile; what cannot be had fails it alone."""
        process_id = handle.process_id
        params = process.ReadParams(process_id, handle.cursor, None, 0)
        try:
            seconds = self._options.initialize_timeout
            handle.recover(await link.call(process.READ, params, seconds=seconds))
        except (RpcError, ProcessFailed) as exc:
            if is_retryable(exc):
                raise
            # Like the reference, which does not leave behind what nobody can follow.
            self.abandon(process_id)
            handle.fail(ProcessFailed(f"failed to recover process {process_id}: {exc}"))
        self._forget_if_settled(handle)

    def session_lost(self, error: ConnectionClosed) -> None:
        handles = tuple(self._handles.values())
        self._handles.clear()
        for handle in handles:
            handle.fail(type(error)(str(error)))

    async def _offers(self, capability: str) -> bool:
        """Whether the server says that it can do something."""
        try:
            return bool((await self.environment_info()).capabilities.get(capability))
        except RpcError:
            return False

    async def _require(self, capability: str, otherwise: str) -> None:
        """Raise MethodNotFound when the server says what it can do, and this is not among it."""
        try:
            info = await self.environment_info()
        except RpcError:
            return
        if not info.capabilities.get(capability):
            raise MethodNotFound(f"the server does not offer {capability}: {otherwise}")

    async def _resolve(self, cwd: StrPath | None) -> str:
        """A working directory as the server wants it."""
        text = "" if cwd is None else os.fspath(cwd)
        if text.startswith("file:"):
            return text
        if not text.startswith("/"):
            text = posixpath.join(await self._server_cwd(), text)
        return to_uri(text) if self._uses_uris else text

    async def _server_cwd(self) -> str:
        try:
            info = await self.environment_info()
        except RpcError:
            # Old servers know no such question.
            return "/"
        return os.fsdecode(from_uri(info.cwd)) if info.cwd else "/"

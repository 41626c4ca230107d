"""Processes on the server: start them, go on with them, and act on them by id."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from msgspec import UNSET

from exec_server.client import tracing
from exec_server.client.client_session import ClientSession, StrPath
from exec_server.client.process.remote_process import RemoteProcess, signal_name
from exec_server.client.process.run_to_end import CompletedProcess, complete
from exec_server.client.process.tracked_process import OnDisconnect, OnGap, TrackedProcess
from exec_server.client.session_token import Cursor
from exec_server.errors import CallTimeout, ConnectionClosed, InvalidParams, RpcError
from exec_server.protocol import process
from exec_server.protocol.base64 import Blob
from exec_server.protocol.env_policy import EnvPolicy
from exec_server.protocol.method import NOTHING
from exec_server.protocol.paths import to_uri
from exec_server.protocol.sandbox import Sandboxed, as_context

# All of the server's environment, credentials included: whoever may run commands there can read
# it anyway.
INHERIT_ENV = EnvPolicy("all", True, [], {}, [])


class Processes:
    """The part of a client that is about processes."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

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
        sandbox: Sandboxed = None,
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
            await self._session.require("processCloseStdin", "it cannot end a command's input")
        handle = await self.start(
            argv,
            cwd=cwd,
            env=env,
            env_policy=env_policy,
            tty=tty,
            stdin=input is not None,
            sandbox=sandbox,
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
        sandbox: Sandboxed = None,
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

        *sandbox* is what it may touch, such as `read_only()`; the handle's `sandbox_type` says how
        the server holds it to that, which a server that knows no sandboxes does not.

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
        path = await self._session.resolve(cwd)
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
            sandbox=as_context(sandbox),
        )
        start = partial(
            self.start_process, ensure=ensure, on_disconnect=on_disconnect, on_gap=on_gap
        )
        try:
            return await start(params)
        except InvalidParams:
            if self._session.uses_uris or path.startswith("file:"):
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
        window = self._wanted_window
        if window is not None and params.flow_window is None:
            params = msgspec.structs.replace(params, flow_window=window)
        # Before the request leaves: events may overtake its answer.
        handle = self._session.processes.follow(
            process_id,
            is_terminal=params.tty,
            on_disconnect=on_disconnect,
            on_gap=on_gap,
            window=window,
        )
        handle.span = tracing.starting(params, handle)
        try:
            with tracing.inside(handle.span):
                await self._begin(handle, params, ensure=ensure)
        except BaseException as exc:
            self._undo(handle, exc)
            raise
        handle.is_started = True
        return self._handle(handle)

    def _handle(self, tracked: TrackedProcess) -> RemoteProcess:
        return RemoteProcess(self, tracked, write_bytes=self._session.limits.write_bytes)

    @property
    def _wanted_window(self) -> int | None:
        """What is asked for every process: never so much that it would be discarded here."""
        wanted = min(self._session.limits.flow_window, self._session.limits.untaken_max_bytes // 4)
        return wanted if wanted > 0 and self._session.offers_flow else None

    async def _begin(
        self, handle: TrackedProcess, params: process.StartParams, *, ensure: bool
    ) -> None:
        if ensure and await self._session.offers("processList"):
            await self._session.processes.ensure(handle, params)
        else:
            handle.confined(await self._session.call(process.START, params))

    def _undo(self, handle: TrackedProcess, error: BaseException) -> None:
        """A start has failed."""
        handle.windowed(UNSET)
        is_unsent = isinstance(error, ConnectionClosed | CallTimeout) and not error.may_have_run
        if isinstance(error, RpcError) or is_unsent:
            self._session.processes.drop(handle.process_id)
        else:
            # It may run, and nobody is left who knows of it.
            self.abandon(handle.process_id)
        if handle.span is not None:
            handle.span.failed(error)

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
        known = self._session.processes.earlier.get(process_id, Cursor())
        after = known if after_seq is None else Cursor(after_seq, after_seq, known.is_terminal)
        is_terminal = known.is_terminal
        if process_id not in self._session.processes.earlier and await self._session.offers(
            "processList"
        ):
            info = await self._session.processes.find(process_id)
            is_terminal = info is not None and info.tty
        handle = self._session.processes.follow(
            process_id,
            is_terminal=is_terminal,
            on_disconnect=on_disconnect,
            on_gap=on_gap,
            after=after,
            window=self._wanted_window,
        )
        try:
            await self._session.processes.catch_up(handle)
        except BaseException:
            self._session.processes.drop(process_id)
            raise
        handle.is_started = True
        self._session.flow.claim(process_id)
        handle.flow.acknowledge(at_once=True)
        return self._handle(handle)

    def abandon(self, process_id: str) -> None:
        """Stop following a process and have it killed, without waiting for the answer.

        While there is no connection it waits for the next one.
        """
        self._session.processes.abandon(process_id)

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
        timeout = self._session.options.call_timeout
        return await self._session.call(
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

        So it is repeated when the connection was lost before its answer. Without an id it is not,
        and has one drawn at random: there are servers that take no write without.

        The one call without a deadline: its answer waits until the process reads.
        """
        repeat = write_id is not None
        params = process.WriteParams(process_id, Blob(data), write_id or uuid.uuid4().hex)
        return (await self._session.call(process.WRITE, params, seconds=None, repeat=repeat)).status

    async def close_stdin(self, process_id: str, *, repeat: bool = False) -> process.WriteStatus:
        """End a process's input. An extension: others raise MethodNotFound.

        With *repeat* it is done again when the connection was lost before the answer.
        """
        params = process.CloseStdinParams(process_id)
        return (await self._session.call(process.CLOSE_STDIN, params, repeat=repeat)).status

    async def signal(self, process_id: str, signum: int | str) -> None:
        """Signal a process's group; unknown and ended processes are left alone."""
        await self._session.call(
            process.SIGNAL, process.SignalParams(process_id, signal_name(signum))
        )

    async def terminate(self, process_id: str) -> bool:
        """Kill a process and all that it has started; True if it was still running."""
        params = process.TerminateParams(process_id, tree=True)
        return (await self._session.call(process.TERMINATE, params)).running

    async def resize(self, process_id: str, rows: int, cols: int) -> None:
        """Give a terminal another size. An extension: others raise MethodNotFound."""
        await self._session.call(process.RESIZE, process.ResizeParams(process_id, rows, cols))

    async def list_processes(self) -> list[process.ProcessInfo]:
        """The session's processes. An extension: others raise MethodNotFound."""
        return (await self._session.call(process.LIST, NOTHING)).processes

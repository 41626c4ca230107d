"""Processes on the server: start them, attach to them, and act on them by id.

The module is long because the parameters of a start are explained in one place.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from msgspec import UNSET

from exec_server.client import tracing
from exec_server.client.arguments import (
    BytesLike,
    Word,
    as_argv,
    as_bytes,
    as_env,
    as_text,
    check_seconds,
    check_size,
    signal_name,
)
from exec_server.client.client_session import ClientSession
from exec_server.client.process.denial_calls import (
    NOT_RECORDED,
    DenialCalls,
    OnDenied,
    check_observer,
    told,
)
from exec_server.client.process.limit_support import knows_limits
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.client.process.run_to_end import CompletedProcess, complete
from exec_server.client.process.screen_calls import NO_SCREENS, ScreenCalls
from exec_server.client.process.sharing_calls import SharingCalls
from exec_server.client.process.start_errors import named
from exec_server.client.process.tracked_process import OnDisconnect, OnGap, TrackedProcess
from exec_server.client.session_token import Cursor
from exec_server.errors import (
    CallTimeout,
    ConnectionClosed,
    InternalError,
    InvalidParams,
    RpcError,
)
from exec_server.limits import DEFAULT_LIMITS
from exec_server.protocol import process
from exec_server.protocol.base64 import Blob
from exec_server.protocol.env_policy import EnvPolicy
from exec_server.protocol.limit_words import Limited, as_limits, not_held
from exec_server.protocol.method import NOTHING
from exec_server.protocol.participants import Kind
from exec_server.protocol.paths import to_uri
from exec_server.protocol.sandbox import Sandboxed, as_context

# The whole environment of the server, including credentials: a client that may run commands there
# can read it anyway.
INHERIT_ENV = EnvPolicy("all", True, [], {}, [])


class Processes(SharingCalls, DenialCalls, ScreenCalls):
    """The part of a client that is about processes."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def run(
        self,
        argv: Sequence[Word],
        *,
        input: BytesLike | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (as subprocess.run has it)
        check: bool = False,
        cwd: Word | None = None,
        env: Mapping[str, Word] | None = None,
        env_policy: EnvPolicy | None = INHERIT_ENV,
        tty: bool = False,
        sandbox: Sandboxed = None,
        user: str | None = None,
        ensure: bool = True,
        limits: Limited = None,
        max_output: int | None = DEFAULT_LIMITS.run_output_bytes,
        drain: float | None = DEFAULT_LIMITS.run_drain,
    ) -> CompletedProcess:
        """Run a command to its end, like `subprocess.run`.

        Without *input* its stdin is empty. *input* needs a server that can close stdin; another
        server raises MethodNotFound before anything runs. After *timeout* the command is killed,
        and CommandTimeout has its output so far. With *check* a status other than 0 raises
        CommandFailed. The other parameters are those of `start`; unlike there, *ensure* is true, so
        that a connection that is lost during the start does not matter.

        Of each stream at most *max_output* bytes are kept, 64 MiB by default: the first half, and
        as much of the end; None keeps everything. If there was more, or if the server could not
        retain all output during an outage, the result's `truncated` is true and its
        `dropped_bytes` says how much is missing; in its `text()` a line says where. Use `start` to
        read a long output piece by piece.

        The end is the exit of the command itself. What it has left in the background, as in
        `sh -c 'server & echo up'`, runs on. If that holds the output open, `run` returns when no
        output has come for *drain* seconds after the exit, or after five times as long, and the
        result's `has_background` is true; with None the output is awaited to its end, as
        `subprocess.run` does.
        """
        words = as_argv(argv)
        data = None if input is None else as_bytes(input, "input")
        check_seconds(timeout, "timeout")
        check_size(max_output, "max_output")
        check_seconds(drain, "drain")
        if drain is not None and not drain >= 0:
            raise ValueError(f"drain must not be negative: {drain}")
        if input is not None:
            await self._session.require("processCloseStdin", "it cannot end a command's input")
        handle = await self.start(
            words,
            cwd=cwd,
            env=env,
            env_policy=env_policy,
            tty=tty,
            stdin=input is not None,
            sandbox=sandbox,
            limits=limits,
            user=user,
            ensure=ensure,
            on_gap="skip",
        )
        completed = await complete(
            handle, words, input=data, time_limit=timeout, max_output=max_output, drain=drain
        )
        if check:
            completed.check_returncode()
        return completed

    async def start(
        self,
        argv: Sequence[Word],
        *,
        cwd: Word | None = None,
        env: Mapping[str, Word] | None = None,
        env_policy: EnvPolicy | None = INHERIT_ENV,
        tty: bool = False,
        stdin: bool = False,
        arg0: str | None = None,
        rows: int | None = None,
        cols: int | None = None,
        sandbox: Sandboxed = None,
        limits: Limited = None,
        user: str | None = None,
        name: str | None = None,
        driver: Kind | None = None,
        process_id: str | None = None,
        durable: bool = False,
        ensure: bool = False,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "fail",
        text: bool = False,
        denials: bool = False,
        denial_hold: float = 0.0,
        on_denied: OnDenied | None = None,
        learn: bool = False,
        granted: Sequence[str] = (),
        screen: bool = False,
        shell_integration: bool = False,
    ) -> RemoteProcess:
        """Start a program on the server.

        *cwd* is a path on the server or a file: URI; a relative path starts at the server's own
        directory, which is also the default. *env* is added to the server's environment, because a
        client cannot know the server's PATH and HOME. *env_policy* chooses what is inherited; with
        None *env* is the whole environment.

        With *tty* the program runs on a terminal of *rows* and *cols*. Otherwise its stdin is
        empty unless *stdin* is true. *arg0* replaces the name that the program sees as its own.
        *process_id* must not be in use in this session; by default it is random. *name* is shown in
        lists. *driver* says who types at first, a `person` or an `agent`; see `watch`. Servers that
        know neither ignore them.

        *sandbox* says what the program may access, for example `read_only()`. The handle's
        `sandbox_type` says how the server enforces it; a server without sandboxes does not.

        *limits* says what the program and all that it starts may use: `ResourceLimits` or a mapping
        such as `{"memory": "2G", "wall": 30}`. The handle's `limits` says how each is held. With
        `"require": True` a server that cannot hold them raises InvalidRequest or MethodNotFound.
        *user* is the Unix user that the program runs as; by default it is the server's own, or the
        one of the client's principal. The server has to run as root, and the client to be an admin
        there; a server that is not root raises MethodNotFound.

        A *durable* process outlives the server: if the server is killed, restarted or replaced by
        another release, the process runs on, and the next server on the same state directory
        continues with it. The session is kept for as long as the server allows, as after `retain`.
        Servers that cannot do this raise MethodNotFound, and those without a state directory
        InvalidRequest; then nothing has run.

        A start that is cancelled or not answered in time is undone as far as possible. The same
        happens if the connection is lost; then ConnectionClosed says that it may have run. With
        *ensure* the client asks the server after that, if it can list processes: a program that
        runs is continued, and one that does not is started, so that it runs once.

        When the connection is lost later, the handle continues with the next one; with
        *on_disconnect* `fail` it fails at once. If the server could not retain all output
        meanwhile, the handle fails and the process is killed; with *on_gap* `skip` the missing
        output is left out.

        With *denials* the server records what *sandbox* refuses; see `RemoteProcess.denials`.
        *on_denied*, a plain function, is called with each new record. A refused call waits
        *denial_hold* seconds for `RemoteProcess.grant`. Each of these two implies *denials*. With
        *learn* the program is not confined: it is only recorded what *sandbox* would refuse.
        *granted* are grants of earlier records, which widen *sandbox*. Servers that cannot record
        raise MethodNotFound.

        With *screen* the server keeps a model of the terminal from the first output on, and answers
        the program's queries to it, whether a client is attached or not; see
        `RemoteProcess.screen`, which makes one later otherwise. With *shell_integration* bash, zsh
        and fish tell where commands begin and end; see `RemoteProcess.last_command`. Servers
        without models raise MethodNotFound.

        With *text* the handle's `lines`, `read_until`, `communicate` and its streams' `read` give
        texts, decoded as UTF-8, and `write` takes them; chunks and events stay bytes.
        """
        check_observer(on_denied)
        words, variables = as_argv(argv), as_env(env)
        path = await self._session.resolve(cwd)
        params = process.StartParams(
            process_id=process_id if process_id is not None else str(uuid.uuid4()),
            argv=words,
            cwd=path,
            env=variables,
            tty=tty,
            pipe_stdin=stdin,
            arg0=None if arg0 is None else as_text(arg0, "arg0"),
            env_policy=env_policy,
            rows=rows,
            cols=cols,
            exit_signals=tty,
            durable=durable,
            details=self._session.has_announced("processDetails"),
            report=self._session.has_announced("processReport"),
            sandbox=as_context(sandbox, cwd=path),
            limits=as_limits(limits),
            denials=denials or learn or on_denied is not None or bool(denial_hold),
            learn=learn,
            granted=[*granted],
            denial_hold_ms=round(denial_hold * 1000) or None,
            user=user,
            name=name,
            driver=driver,
            screen=screen,
            shell_integration=shell_integration,
        )
        start = partial(
            self.start_process,
            ensure=ensure,
            on_disconnect=on_disconnect,
            on_gap=on_gap,
            text=text,
            on_denied=on_denied,
        )
        try:
            return await start(params)
        except InvalidParams:
            if self._session.uses_uris or path.startswith("file:"):
                raise
        except InternalError as exc:
            raise await named(self._session, exc, params) from None
        # Some servers without sessions want URIs. Nothing has run yet.
        params.cwd = to_uri(path)
        return await start(params)

    async def start_process(
        self,
        params: process.StartParams,
        *,
        ensure: bool = False,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "fail",
        text: bool = False,
        on_denied: OnDenied | None = None,
    ) -> RemoteProcess:
        """Start a program exactly as *params* say; the other parameters are those of `start`."""
        if params.user is not None:
            await self._session.require("processUser", "it does not run as root")
        if params.durable:
            await self._session.require(
                "processDurable", "it has no state directory, and its processes end with it"
            )
        asked = params.limits
        if asked and not await knows_limits(self._session, asked):
            params = msgspec.structs.replace(params, limits=None)
        if params.denials or params.granted:
            await self._session.require("processDenials", NOT_RECORDED)
        if params.screen or params.shell_integration:
            await self._session.require("processScreen", NO_SCREENS)
        process_id = params.process_id
        window = self._wanted_window
        if window is not None and params.flow_window is None:
            params = msgspec.structs.replace(params, flow_window=window)
        # This comes before the request leaves, because events may overtake its answer.
        tracked = self._session.processes.follow(
            process_id,
            is_terminal=params.tty,
            on_disconnect=on_disconnect,
            on_gap=on_gap,
            window=window,
        )
        tracked.on_denied = partial(told, on_denied)
        tracked.takes_input = params.tty or params.pipe_stdin
        tracked.span = tracing.starting(params, tracked)
        try:
            with tracing.inside(tracked.span):
                await self._begin(tracked, params, ensure=ensure)
        except BaseException as exc:
            self._undo(tracked, exc)
            raise
        tracked.is_started = True
        if asked is not None and params.limits is None:
            tracked.limits = not_held(asked)
        if tracked.is_durable:
            self._session.has_durable_process()
        return self._handle(tracked, text=text)

    def _handle(self, tracked: TrackedProcess, *, text: bool) -> RemoteProcess:
        view = self._session.watched.view(tracked.process_id)
        return RemoteProcess(
            self, tracked, view, write_bytes=self._session.limits.write_bytes, is_text=text
        )

    @property
    def _wanted_window(self) -> int | None:
        """The window to ask for: never so much that the client would discard output."""
        wanted = min(self._session.limits.flow_window, self._session.limits.untaken_max_bytes // 4)
        return wanted if wanted > 0 and self._session.offers_flow else None

    async def _begin(
        self, tracked: TrackedProcess, params: process.StartParams, *, ensure: bool
    ) -> None:
        # Servers that list processes say so in the handshake; others are not asked.
        if ensure and self._session.has_announced("processList"):
            await self._session.processes.ensure(tracked, params)
        else:
            tracked.answered(await self._session.call(process.START, params))

    def _undo(self, tracked: TrackedProcess, error: BaseException) -> None:
        """Undo a start that has failed."""
        tracked.windowed(UNSET)
        is_unsent = isinstance(error, ConnectionClosed | CallTimeout) and not error.may_have_run
        if isinstance(error, RpcError) or is_unsent:
            self._session.processes.drop(tracked.process_id)
        else:
            # The process may run without a handle.
            self.abandon(tracked.process_id)
        if tracked.span is not None:
            tracked.span.failed(error)

    async def attach(
        self,
        process_id: str,
        after_seq: int | None = None,
        *,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "skip",
        text: bool = False,
    ) -> RemoteProcess:
        """Continue with a process of this session that has no handle here.

        Output is delivered from event *after_seq* on; the default is where the session token says
        that reading has stopped, or the start. Output that the server no longer has is left out and
        `is_truncated` is true; with *on_gap* `fail` the handle fails instead. *text* is as in
        `start`. Raises InvalidRequest if the server does not know the process.
        """
        known = self._session.processes.earlier.get(process_id, Cursor())
        after = known if after_seq is None else Cursor(after_seq, after_seq, known.is_terminal)
        is_terminal, pid = known.is_terminal, None
        if process_id not in self._session.processes.earlier and await self._session.offers(
            "processList"
        ):
            info = await self._session.processes.find(process_id)
            is_terminal = info is not None and info.tty
            pid = None if info is None else info.pid
        tracked = self._session.processes.follow(
            process_id,
            is_terminal=is_terminal,
            on_disconnect=on_disconnect,
            on_gap=on_gap,
            after=after,
            window=self._wanted_window,
        )
        try:
            await self._session.processes.catch_up(tracked)
        except BaseException:
            self._session.processes.drop(process_id)
            raise
        tracked.is_started, tracked.pid = True, pid
        self._session.flow.claim(process_id)
        tracked.flow.acknowledge(at_once=True)
        return self._handle(tracked, text=text)

    def abandon(self, process_id: str) -> None:
        """Have a process killed without waiting for that, and stop receiving its output.

        While there is no connection, the request waits for the next one.
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
        """The retained output after a number; waits up to *wait* seconds for some."""
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

        With an id the write is repeated if the connection is lost before the answer. Without one it
        is not repeated, and a random id is sent, because some servers require an id.

        This is the only call without a deadline: its answer waits until the process reads.
        """
        repeat = write_id is not None
        blob = Blob(as_bytes(data, "data"))
        params = process.WriteParams(process_id, blob, write_id or uuid.uuid4().hex)
        self._session.streams.typed(len(data))
        return (await self._session.call(process.WRITE, params, seconds=None, repeat=repeat)).status

    async def close_stdin(self, process_id: str, *, repeat: bool = False) -> process.WriteStatus:
        """End a process's input. An extension: other servers raise MethodNotFound.

        With *repeat* it is done again if the connection is lost before the answer.
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
        """Give a terminal another size. An extension: other servers raise MethodNotFound."""
        await self._session.call(process.RESIZE, process.ResizeParams(process_id, rows, cols))

    async def list_processes(self) -> list[process.ProcessInfo]:
        """The session's processes. An extension: other servers raise MethodNotFound."""
        return (await self._session.call(process.LIST, NOTHING)).processes

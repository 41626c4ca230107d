"""RemoteProcess: the handle of a process, with which users read, write, signal and wait.

The module is long because the handle is one class, and each method says what users may rely on.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from exec_server.client.arguments import BytesLike, as_bytes, check_seconds, signal_name
from exec_server.client.process.control import ControlView
from exec_server.client.process.output_buffer import (
    Closed,
    Event,
    Failed,
    OutputChunk,
    Wanted,
)
from exec_server.client.process.output_view import (
    LINE_BYTES,
    OutputView,
    Separator,
)
from exec_server.client.process.screen_calls import ScreenMethods
from exec_server.client.process.time_limit import within
from exec_server.client.process.tracked_process import OnDisconnect, OnGap, TrackedProcess
from exec_server.errors import (
    ExecServerError,
    InvalidRequest,
    MethodNotFound,
    ProcessFailed,
    StdinClosed,
)
from exec_server.protocol.denials import Denial, DenialsResult, GrantResult, GrantScope
from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.participants import Kind
from exec_server.protocol.process import ReadResult, WriteStatus
from exec_server.protocol.resources import GrantedLimit
from exec_server.protocol.sharing import ControlChangedEvent, ControlState, Participant

if TYPE_CHECKING:
    from exec_server.client.process.processes import Processes

__all__ = ["OnDisconnect", "OnGap", "RemoteProcess", "signal_name"]


class RemoteProcess(ScreenMethods):
    """A process on the server, with methods like those of `asyncio.subprocess.Process`.

    Iterate over it to get all output as OutputChunks in the order of their numbers, or use
    `stdout` and `stderr`; each chunk is delivered once. The output of a terminal is in `stdout`.

    Read the output, even if you drop it. Servers of this package make a process wait, as at a
    full pipe, while 4 MiB of its output are not read; other processes are not affected. The process
    continues after 5 seconds without a reader if `wait()` is called, or if the program waits for
    other processes and has never read this one. Then up to 64 MiB are kept and the rest is
    discarded; a later reader gets ProcessFailed.

    Other servers cannot make one process wait. There, up to 1 MiB waits here without harm; after
    that the connection is read only while another task needs it, and if other tasks keep needing
    it, the same bound applies. Answers to calls are never delayed.

    When the connection is lost the handle waits for the next one and continues: every byte comes
    once, and every write is done once. It fails with ConnectionClosed when the session is lost,
    and with ProcessFailed when a server without windows could not retain all of the output
    meanwhile. If you drop the handle, the process runs on and its output is no longer received.

    With `async with` the end of the block ends the process and everything that it has started.
    """

    def __init__(
        self,
        client: Processes,
        tracked: TrackedProcess,
        view: ControlView,
        *,
        write_bytes: int,
        is_text: bool = False,
    ) -> None:
        """Use `client.start` or `client.attach`. Input is written in pieces of *write_bytes*."""
        self._is_text = is_text
        self._client = client
        self._tracked = tracked
        self._control = view
        self._writing = asyncio.Lock()
        self._write_bytes = write_bytes
        self._last_write_id = 0
        # The server ignores a write whose id an earlier handle has used.
        self._write_prefix = f"{uuid.uuid4().hex}-" if tracked.is_attached else ""

    def __repr__(self) -> str:
        code, lost = self._tracked.returncode, self._tracked.lost
        state = "running" if code is None else f"returncode={code}"
        if lost is not None:
            state = f"lost: {lost}"
        return f"<RemoteProcess {self.process_id} {state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the process with everything that it has started, unless it has closed."""
        if self._tracked.is_settled:
            return
        try:
            await self.terminate()
        except ExecServerError:
            # It is killed as soon as there is a connection.
            self.abandon()

    def leave_running(self) -> None:
        """Let the process run on when this client leaves it: it waits for no reader any more.

        The server keeps the newest output. Of a durable process, that is all of it up to the bounds
        of its journal.
        """
        self._tracked.give_up_window()

    # Facts.

    @property
    def process_id(self) -> str:
        """The id of the process in its session."""
        return self._tracked.process_id

    @property
    def is_terminal(self) -> bool:
        """True if the process runs on a terminal."""
        return self._tracked.is_terminal

    @property
    def on_disconnect(self) -> OnDisconnect:
        """What the handle does when the connection is lost: `hold` or `fail`; see `start`."""
        return self._tracked.on_disconnect

    @property
    def is_started(self) -> bool:
        """True once the server has said that the process runs."""
        return self._tracked.is_started

    @property
    def is_truncated(self) -> bool:
        """True if output is missing, because the server could not retain it during an outage."""
        return self._tracked.is_truncated

    @property
    def dropped_bytes(self) -> int:
        """The number of bytes that are missing, as far as the server tells."""
        return self._tracked.dropped_bytes

    @property
    def sandbox_type(self) -> str | None:
        """How the server confines the process; None if it does not say."""
        return self._tracked.sandbox_type

    @property
    def sandbox_rung(self) -> str | None:
        """The backend that enforces it: bubblewrap, landlock, seccomp or none; None if unknown."""
        return self._tracked.sandbox_rung

    @property
    def sandbox_denied(self) -> bool:
        """True if the process has exited and the sandbox has probably refused it something."""
        return self._tracked.sandbox_denied

    @property
    def returncode(self) -> int | None:
        """The exit status, 128 + n after signal n; None until the process has exited.

        It stays None if the process is `lost`: no exit status is ever invented.
        """
        return self._tracked.returncode

    @property
    def lost(self) -> str | None:
        """Why the process is gone with an unknown exit status; None if it is not.

        For example `machine restarted`. Its output up to that moment can be read.
        """
        return self._tracked.lost

    @property
    def is_durable(self) -> bool:
        """True if the process outlives the server; see `start`."""
        return self._tracked.is_durable

    @property
    def limits(self) -> dict[str, GrantedLimit]:
        """What became of each limit that was asked for, or that the server imposes; see `start`.

        Its mechanism is `none` if the server does not hold it. It is empty without limits, and for
        a process that was attached to.
        """
        return dict(self._tracked.limits)

    @property
    def signal(self) -> int | None:
        """The signal that has ended the process, such as `signal.SIGKILL`, on a terminal, too.

        It is None if the process has exited by itself, if it runs inside of bubblewrap, and if the
        server does not say: a status above 128 alone proves nothing.
        """
        return self._tracked.signal

    @property
    def end(self) -> EndReport | None:
        """Why the process ended; None while it runs, and if the server does not say.

        It is never guessed: the cause may be `unknown`, and the evidence says why.
        """
        return self._tracked.end

    @property
    def usage(self) -> Usage | None:
        """What it has used; None while it runs, and if the server does not say."""
        return self._tracked.usage

    @property
    def pid(self) -> int | None:
        """The process id on the server's machine; None if the server does not say."""
        return self._tracked.pid

    @property
    def is_done(self) -> bool:
        """True if the process has closed and all of its output was read."""
        return self._tracked.taken is None

    @property
    def denials_unavailable(self) -> str | None:
        """Why the server does not record everything that the sandbox refuses; None if it does."""
        return self._tracked.denials_unavailable

    # Output.

    def __aiter__(self) -> RemoteProcess:
        return self

    async def __anext__(self) -> OutputChunk:
        chunk = await self._tracked.output.take("all")
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    @property
    def stdout(self) -> OutputView:
        """The output on stdout or, if there is one, on the terminal."""
        return self._view("stdout")

    @property
    def stderr(self) -> OutputView:
        """The output on stderr; nothing if the process runs on a terminal."""
        return self._view("stderr")

    def _view(self, wanted: Wanted) -> OutputView:
        return OutputView(self._tracked.output, wanted, owner=self._tracked, is_text=self._is_text)

    def lines(self, stream: Wanted = "all", *, limit: int = LINE_BYTES) -> AsyncIterator[Any]:
        """Each line of the output, with its newline; the last one may have none.

        Lines of stdout and stderr come in the order in which they end; *stream* chooses one of the
        two. A line of more than *limit* bytes raises asyncio.LimitOverrunError. A reader that
        leaves early loses nothing: the next one continues where it has stopped.
        """
        return self._view(stream).lines(limit=limit)

    async def read_until(
        self,
        separator: Separator = b"\n",
        *,
        limit: int = LINE_BYTES,
        timeout: float | None = None,  # noqa: ASYNC109 (the twin has no other way)
    ) -> Any:
        """Everything on stdout or the terminal up to *separator*, with it.

        See `OutputView.read_until`: of several separators the first that comes counts, and what
        follows stays for the next reader. Raises asyncio.IncompleteReadError at the end, and
        TimeoutError after *timeout* seconds.
        """
        return await self.stdout.read_until(separator, limit=limit, timeout=timeout)

    async def communicate(self, input: BytesLike | str | None = None) -> tuple[Any, Any]:
        """Write *input*, end the input, and collect stdout and stderr until the process closes.

        Everything is kept in memory; `run` has a bound. The exit status is in `returncode` after
        that. The input is ended also without *input*, if the server can do that. Raises StdinClosed
        if there is *input* and the process was started without `stdin=True`.
        """
        data = None if input is None else self._encoded(input, "input")
        if data and not self._tracked.takes_input:
            raise StdinClosed(f"process {self.process_id} takes no input: start it with stdin=True")
        sink: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        feeding = asyncio.create_task(self._feed(data))
        try:
            async for chunk in self:
                sink["stderr" if chunk.stream == "stderr" else "stdout"].append(chunk.data)
            await self.wait()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        out, err = (b"".join(parts) for parts in sink.values())
        if self._is_text:
            return out.decode(errors="replace"), err.decode(errors="replace")
        return out, err

    def _take_now(self) -> OutputChunk | None:
        """A chunk that has come already."""
        return self._tracked.output.take_now()

    async def _feed(self, data: bytes | None) -> None:
        """Write *data* and end the input; a process need not read all of it."""
        with contextlib.suppress(StdinClosed, MethodNotFound):
            if data:
                await self.write(data)
            await self.close_stdin()

    async def events(self) -> AsyncIterator[Event]:
        """Everything that happens, in order, until Closed or Failed.

        Output counts as read, as with any other reader. ResyncRequired reports a lost connection.
        """
        self._tracked.has_watcher = True
        while (event := await self._tracked.output.take_event()) is not None:
            yield event
            if isinstance(event, Closed | Failed):
                return

    @property
    def wake_seq(self) -> int:
        """The highest event number that was received, plus one after a failure; it only grows."""
        return self._tracked.wake_seq

    async def wait_wake(self, after: int) -> int:
        """Wait until `wake_seq` is above *after* or nothing more can come; returns `wake_seq`."""
        return await self._tracked.wait_wake(after)

    async def read(
        self, *, after_seq: int = 0, max_bytes: int | None = None, wait: float = 0.0
    ) -> ReadResult:
        """What the server retains after a number, in the form of `process/read`."""
        if self._tracked.error is not None:
            error = str(self._tracked.error)
            return ReadResult([], self.wake_seq + 1, True, None, True, error)
        return await self._client.read(
            self.process_id, after_seq=after_seq, max_bytes=max_bytes, wait=wait
        )

    async def wait(self, timeout: float | None = None) -> int:  # noqa: ASYNC109 (as Popen has it)
        """Wait for the exit status; output may still follow it.

        Raises ProcessLost if the status is unknown and stays so, and TimeoutError after *timeout*
        seconds; the process runs on then.
        """
        check_seconds(timeout, "timeout")
        return await within(timeout, self._tracked.wait(), "the process did not end")

    # Input.

    async def write(self, data: BytesLike | str) -> None:
        """Write to stdin or the terminal; returns when the server has accepted all of it.

        It waits as long as the process does not read; use `asyncio.timeout` to set an end to it.
        Raises StdinClosed when the process takes no input or has ended. A text is accepted if the
        process was started with `text=True`.
        """
        data = self._encoded(data, "data")
        if self._tracked.is_closed:
            # Servers may accept it, and drop it.
            raise StdinClosed(f"process {self.process_id} takes no input: it has ended")
        size = self._write_bytes
        async with self._writing:
            for start in range(0, len(data), size):
                self._last_write_id += 1
                status = await self._client.write(
                    self.process_id,
                    data[start : start + size],
                    write_id=f"{self._write_prefix}{self._last_write_id}",
                )
                self._check(status)

    def _encoded(self, data: BytesLike | str, name: str) -> bytes:
        return data.encode() if self._is_text and isinstance(data, str) else as_bytes(data, name)

    def _check(self, status: WriteStatus) -> None:
        if status == "starting":
            raise InvalidRequest(f"process {self.process_id} is starting")
        if status != "accepted":
            raise StdinClosed(
                f"process {self.process_id} takes no input: it was started without stdin=True, its "
                "input was closed, or it has ended"
            )

    async def close_stdin(self) -> None:
        """End the input after what was written; on a terminal, type the end-of-file character.

        This is an extension: servers without it raise MethodNotFound. Repeating it does no harm.
        """
        async with self._writing:
            # On a terminal a second end of file would reach the program that reads next.
            await self._client.close_stdin(self.process_id, repeat=not self.is_terminal)

    # Control.

    async def send_signal(self, signum: int | str) -> None:
        """Signal the process's group; an ended process is left alone.

        *signum* is a number, `signal.SIGTERM`, or a name such as "SIGTERM", "TERM" or "term".

        Every server knows SIGINT. Other signals are an extension: servers without it raise
        InvalidParams.
        """
        await self._client.signal(self.process_id, signum)

    async def terminate(self) -> bool:
        """Kill the process at once, by SIGKILL; True if it was still running.

        All processes that it has started end as well, also those that it has left in the background
        when it exited; other servers only kill its group, and only while it runs.
        """
        return await self._client.terminate(self.process_id)

    async def kill(self) -> bool:
        """The same as `terminate`, under the name that `asyncio.subprocess.Process` has for it."""
        return await self.terminate()

    # Who takes part.

    @property
    def viewers(self) -> list[Participant]:
        """All who take part, with the one that drives; empty if the process was never shared."""
        return self._control.viewers

    @property
    def drives(self) -> bool:
        """True unless another participant has taken the input."""
        return self._control.drives

    @property
    def epoch(self) -> int:
        """The number of the last change of the driver; it only grows."""
        return self._control.epoch

    async def take(
        self, *, kind: Kind | None = None, name: str | None = None, epoch: int | None = None
    ) -> ControlState:
        """Take the input back. Raises ControlRefused if a person drives and this is an agent.

        *kind* and *name* say who this client is; before that it is an agent. With *epoch* it is
        also refused if the driver has changed since then.
        """
        return await self._client.control(
            self.process_id, "take", kind=kind, name=name, epoch=epoch
        )

    async def offer(self, to: Participant | str | None = None) -> ControlState:
        """Let *to*, or any participant, take the input, even an agent from a person."""
        return await self._client.control(self.process_id, "offer", to=to)

    async def give_back(self) -> ControlState:
        """Let the participant drive that drove before. Raises ControlLost if another one drives."""
        return await self._client.control(self.process_id, "giveBack")

    async def control_state(
        self, *, kind: Kind | None = None, name: str | None = None
    ) -> ControlState:
        """Ask who takes part and who drives; *kind* and *name* say who this client is."""
        return await self._client.control(self.process_id, "state", kind=kind, name=name)

    async def control_changes(self) -> AsyncIterator[ControlChangedEvent]:
        """Each change of the driver, and each offer, until the session is lost.

        After a change the next write raises ControlLost, which says who drives, and what to read
        again after that.
        """
        async for change in self._control.changes():
            yield change

    async def denials(self) -> DenialsResult:
        """What the sandbox refused so far, with true counts, if it was started with `denials`."""
        return await self._client.list_denials(self.process_id)

    async def grant(self, denial: Denial | str, scope: GrantScope = "once") -> GrantResult:
        """Allow what was refused: once (a held call goes on), to the process, or to the session.

        The scope "never" refuses the held call for good. Raises InvalidRequest if the server does
        not let it be granted: protected names and the server's own files stay closed.
        """
        return await self._client.grant_denied(self.process_id, denial, scope)

    def abandon(self) -> None:
        """Have the process killed without waiting for that, and stop receiving its output."""
        if not self._tracked.is_settled:
            self._client.abandon(self.process_id)
            self._tracked.fail(ProcessFailed(f"process {self.process_id} was abandoned"))

    async def resize(self, rows: int, cols: int) -> None:
        """Give the terminal another size. An extension: other servers raise MethodNotFound."""
        await self._client.resize(self.process_id, rows, cols)

"""RemoteProcess: output in order, write, signal, terminate, wait."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import uuid
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import UnsetType

from exec_server.client.flow.pacing import Flow
from exec_server.client.process.output_buffer import (
    Closed,
    Event,
    Exited,
    Failed,
    OutputBuffer,
    OutputChunk,
    OutputView,
    ResyncRequired,
)
from exec_server.client.session_token import Cursor
from exec_server.client.tracing import ProcessSpan
from exec_server.errors import ExecServerError, InvalidRequest, ProcessFailed, StdinClosed
from exec_server.limits import Limits
from exec_server.protocol.process import (
    ClosedEvent,
    ExitedEvent,
    OutputEvent,
    ReadResult,
    StartResult,
    WriteStatus,
)
from exec_server.state.event_order import EventOrder, ProcessEvent
from exec_server.state.recovery import merge
from exec_server.state.window import Credit

if TYPE_CHECKING:
    from exec_server.client.flow.windows import Windows
    from exec_server.client.process.processes import Processes

# What becomes of a handle when the connection is lost: it waits for a new one, or fails at once.
OnDisconnect = Literal["hold", "fail"]
# What becomes of it when the server could not retain all that was said meanwhile.
OnGap = Literal["fail", "skip"]


class RemoteProcess:
    """A process on the server, in the manner of `asyncio.subprocess.Process`.

    Iterate over it for everything it says, as OutputChunks in the order of their numbers, or use
    `stdout` and `stderr`; each chunk is handed out once. What a terminal shows is in `stdout`.

    Take the output, even if only to drop it. Servers of this package let a process wait, as at a
    full pipe, while 4 MiB of what it has said are not taken, and nobody else notices. Only when
    somebody waits for it to exit, or for others while nobody has ever read it, and nothing is
    taken for 5 seconds, does it go on: up to 64 MiB are kept then and the rest is discarded, which
    the reader of the output is told by ProcessFailed.

    Other servers cannot hold back one process alone. Up to 1 MiB waits here without harm; then the
    connection is read only while somebody needs it, and if others on the same client keep needing
    it, the same bound applies. Answers are never held up.

    When the connection is lost the handle waits for the next one and goes on where it was: every
    byte comes once, and every write is done once. It fails with ConnectionClosed when the session
    is lost, and with ProcessFailed when a server of another kind could not retain all of the output
    meanwhile. Dropping a handle leaves the process running and its output is no longer followed.
    """

    def __init__(
        self,
        client: Processes,
        process_id: str,
        *,
        is_terminal: bool,
        flow: Flow,
        windows: Windows,
        limits: Limits,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "fail",
        after: Cursor | None = None,
        window: int | None = None,
    ) -> None:
        """With *after*, a process that runs already, and of which that much was taken before.

        *window* is asked for, and `windowed` tells what became of it.
        """
        self.process_id = process_id
        self.is_terminal = is_terminal
        self.on_disconnect = on_disconnect
        # Whether the server has said that it runs; before, there is nothing to recover.
        self.is_started = False
        # Whether output is missing, and how many bytes as far as the server tells.
        self.is_truncated = False
        self.dropped_bytes = 0
        # How the server confines it; None when it does not say.
        self.sandbox_type: str | None = None
        # What enforces that, from a server that tells: bubblewrap, landlock, seccomp or none.
        self.sandbox_rung: str | None = None
        # Whether its end looks like the sandbox's doing, once it has exited.
        self.sandbox_denied = False
        # What it is traced by, if somebody traces.
        self.span: ProcessSpan | None = None
        self._client = client
        self._windows = windows
        self._flow = flow
        self._limits = limits
        self._on_gap = on_gap
        self._after = after or Cursor()
        self._order = EventOrder(limits=limits, after=min(self._after.stdout, self._after.stderr))
        self._output = OutputBuffer(
            flow,
            limits=limits,
            credit=None if window is None else Credit(window, after=self._order.released),
            on_due=partial(windows.acknowledge, process_id),
        )
        self._loop = asyncio.get_running_loop()
        self._returncode: int | None = None
        self._error: ExecServerError | None = None
        self._exit = asyncio.Event()
        self._writing = asyncio.Lock()
        self._last_write_id = 0
        # Ids that earlier handles have used would not be written again.
        self._write_prefix = "" if after is None else f"{uuid.uuid4().hex}-"
        self._seen_bytes = 0
        self._has_watcher = False
        self._woken: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        state = "running" if self._returncode is None else f"returncode={self._returncode}"
        return f"<RemoteProcess {self.process_id} {state}>"

    # Output.

    def __aiter__(self) -> RemoteProcess:
        return self

    async def __anext__(self) -> OutputChunk:
        chunk = await self._output.take("all")
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    @property
    def stdout(self) -> OutputView:
        """What it writes to stdout, or shows on its terminal."""
        return OutputView(self._output, "stdout", owner=self)

    @property
    def stderr(self) -> OutputView:
        """What it writes to stderr; nothing when it has a terminal."""
        return OutputView(self._output, "stderr", owner=self)

    async def events(self) -> AsyncIterator[Event]:
        """Everything that happens, in order, up to a Closed or Failed.

        Output is taken by it as by any other reader. ResyncRequired tells of a lost connection.
        """
        self._has_watcher = True
        while (event := await self._output.take_event()) is not None:
            yield event
            if isinstance(event, Closed | Failed):
                return

    @property
    def wake_seq(self) -> int:
        """The highest number heard of, and one more after a failure; it only grows."""
        return self._order.heard + (self._error is not None)

    async def wait_wake(self, after: int) -> int:
        """Until `wake_seq` is above *after*, or nothing more is to be heard; what it is then."""
        while self.wake_seq <= after and not self.is_settled:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._woken.add(future)
            try:
                with self._flow.watching():
                    await future
            finally:
                self._woken.discard(future)
        return self.wake_seq

    async def read(
        self, *, after_seq: int = 0, max_bytes: int | None = None, wait: float = 0.0
    ) -> ReadResult:
        """What the server retains after a number, as `process/read` tells it."""
        if self._error is not None:
            return ReadResult([], self.wake_seq + 1, True, None, True, str(self._error))
        return await self._client.read(
            self.process_id, after_seq=after_seq, max_bytes=max_bytes, wait=wait
        )

    @property
    def returncode(self) -> int | None:
        """The exit status, 128 + n after signal n; None until the process has exited."""
        return self._returncode

    async def wait(self) -> int:
        """The exit status, once there is one; output may still follow it."""
        if not self._exit.is_set():
            with self._flow.watching(), self._output.awaiting():
                await self._exit.wait()
        if self._returncode is None:
            assert self._error is not None
            raise self._error.with_traceback(None)
        return self._returncode

    # Input.

    async def write(self, data: bytes) -> None:
        """Write to stdin or the terminal; returns when the server has accepted all of it.

        It waits as long as the process does not read; use `asyncio.timeout` to set an end to it.
        Raises StdinClosed when the process takes no input or has ended.
        """
        size = self._limits.write_bytes
        async with self._writing:
            for start in range(0, len(data), size):
                self._last_write_id += 1
                status = await self._client.write(
                    self.process_id,
                    data[start : start + size],
                    write_id=f"{self._write_prefix}{self._last_write_id}",
                )
                self._check(status)

    def _check(self, status: WriteStatus) -> None:
        if status == "starting":
            raise InvalidRequest(f"process {self.process_id} is starting")
        if status != "accepted":
            raise StdinClosed(f"process {self.process_id} takes no input")

    async def close_stdin(self) -> None:
        """End the input after what was written; on a terminal, type the end-of-file character.

        An extension: servers without it raise MethodNotFound. Repeating it does no harm.
        """
        async with self._writing:
            # On a terminal a second one would be for whoever reads it next.
            await self._client.close_stdin(self.process_id, repeat=not self.is_terminal)

    # Control.

    async def send_signal(self, signum: int | str) -> None:
        """Signal the process's group, by number or name; an ended process is left alone.

        Every server knows SIGINT; others are an extension, and servers without it raise
        InvalidParams.
        """
        await self._client.signal(self.process_id, signum)

    async def terminate(self) -> bool:
        """Kill the process and its group at once, by SIGKILL; whether it was still running."""
        return await self._client.terminate(self.process_id)

    def abandon(self) -> None:
        """Have the process killed without waiting for it, and stop following it."""
        if not self.is_settled:
            self._client.abandon(self.process_id)
            self.fail(ProcessFailed(f"process {self.process_id} was abandoned"))

    async def resize(self, rows: int, cols: int) -> None:
        """Give the terminal another size. An extension: others raise MethodNotFound."""
        await self._client.resize(self.process_id, rows, cols)

    # What the client reports.

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is to be heard of it."""
        return self._order.is_closed or self._error is not None

    @property
    def cursor(self) -> int:
        """The last event that was put in order."""
        return self._order.released

    @property
    def flow_taken(self) -> int | None:
        """Up to which number its output was taken, if it has a window."""
        credit = self._output.credit
        return None if credit is None else max(credit.acknowledged, self._output.settled_seq)

    def windowed(self, window: int | UnsetType) -> None:
        """The server has said which window it has."""
        self._output.grant(window or None)

    def acknowledge(self, *, at_once: bool = False) -> None:
        """Tell the server what was taken, if that is due or wanted *at_once*."""
        self._output.acknowledge(at_once=at_once)

    @property
    def taken(self) -> Cursor | None:
        """Where another handle would go on; None when nothing is left to be heard or taken."""
        stdout, stderr = self._output.cursors(self._order.released)
        after = Cursor(
            max(stdout, self._after.stdout),
            max(stderr, self._after.stderr),
            self.is_terminal,
            self._output.credit is not None,
        )
        is_done = self._order.is_closed and min(stdout, stderr) == self._order.released
        return None if is_done else after

    def confined(self, answer: StartResult) -> None:
        """The server has said how it confines the process, and which window it has."""
        self.windowed(answer.flow_window)
        self.sandbox_type = answer.sandbox_type
        self.sandbox_rung = answer.sandbox_rung or None

    def receive(self, event: ProcessEvent) -> None:
        """An event arrived, in whatever order. Never raises."""
        # An exit is a fact even while output before it is missing.
        if isinstance(event, ExitedEvent):
            self._exited(event.exit_code, is_denied=event.sandbox_denied)
        try:
            ready = self._order.receive(event)
        except ProcessFailed as exc:
            self.fail(exc)
            return
        self._deliver(ready)

    def disconnected(self) -> None:
        """The connection is lost and another one is looked for."""
        if self._has_watcher:
            after = self._order.released
            self._output.mark(after, ResyncRequired(after))

    def expect_answer(self) -> None:
        """A recovery read is under way."""
        self._order.is_in_repair = True

    @property
    def page_bytes(self) -> int | None:
        """How much a recovery read may answer; None for everything."""
        return None if self._output.credit is None else self._limits.recovery_page_bytes

    def recover_page(self, answer: ReadResult) -> bool:
        """Like `recover`, for a read of `page_bytes`; whether that was the last page."""
        self.windowed(answer.flow_window)
        if self.page_bytes is None:
            # Nothing of it is used: it has to be read as a whole.
            return False
        is_last = not answer.chunks
        # The close is told at the end of the last page, and an exit where nothing is missing.
        answer.closed = answer.closed and is_last
        answer.exited = answer.exited and (is_last or not isinstance(answer.dropped_bytes, int))
        self.recover(answer)
        self._order.is_in_repair = not is_last
        return is_last

    def recover(self, answer: ReadResult) -> None:
        """Go on with what a recovery read has answered; ProcessFailed when that cannot be."""
        self.windowed(answer.flow_window)
        may_skip = self._on_gap == "skip"
        merged = merge(self._order, self.process_id, answer, may_skip=may_skip)
        self._order.is_in_repair = False
        if merged.gone and isinstance(answer.dropped_bytes, int):
            # The server counts all that it has ever discarded.
            self.dropped_bytes += max(0, answer.dropped_bytes - self._seen_bytes)
            self._seen_bytes = max(self._seen_bytes, answer.dropped_bytes)
        is_exit_gone = answer.exited and not self._order.has_exit
        self.is_truncated |= merged.gone > is_exit_gone
        if answer.exited and answer.exit_code is not None:
            self._exited(answer.exit_code, is_denied=answer.sandbox_denied)
        self._deliver(merged.events)
        if answer.closed and not self.is_settled and answer.next_seq - 1 <= self._order.released:
            # It had closed before what is wanted of it.
            self._order.is_closed = True
            self._deliver([ClosedEvent(self.process_id)])

    def _deliver(self, events: Iterable[ProcessEvent]) -> None:
        for event in events:
            if isinstance(event, OutputEvent):
                self._seen_bytes += len(event.chunk.data)
                after = self._after.stderr if event.stream == "stderr" else self._after.stdout
                if event.seq <= after:
                    self._output.skip(event.seq, event.chunk.data)
                else:
                    self._output.append(OutputChunk(event.seq, event.stream, event.chunk.data))
            elif isinstance(event, ExitedEvent):
                mark = Exited(event.seq, event.exit_code, event.sandbox_denied)
                self._output.mark(event.seq, mark)
            else:
                last = self._order.released
                self._output.mark(last, Closed(last if event.seq is None else event.seq))
                self._close()
        self._wake()

    def _exited(self, exit_code: int, *, is_denied: bool) -> None:
        self.sandbox_denied |= is_denied
        if self._returncode is None:
            self._returncode = exit_code
            self._exit.set()

    def _wake(self) -> None:
        for future in self._woken:
            if not future.done():
                future.set_result(None)

    def _close(self) -> None:
        self._output.end()
        if self._output.credit is not None:
            # All of it is here: the server need not keep anything.
            self._windows.settle(self.process_id, self._order.released)
        if self._returncode is None:
            self._error = ProcessFailed(f"process {self.process_id} closed without an exit status")
        self._exit.set()
        if self.span is not None:
            self.span.closed(self._returncode)

    def fail(self, error: ExecServerError) -> None:
        """Nothing more can be learned of the process; what it has said can still be taken."""
        if not self.is_settled:
            self._error = error
            self._output.mark(self._order.heard, Failed(str(error)))
            self._output.end(error)
            self._exit.set()
            self._wake()
            if self._output.credit is not None:
                self._windows.settle(self.process_id, None)
            if self.span is not None:
                self.span.failed(error)

    def __del__(self) -> None:
        if not self.is_settled and self._output.credit is not None:
            # Perhaps in another thread, and perhaps after the loop has closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._windows.forget, self.process_id)


def signal_name(signum: int | str) -> str:
    """How the wire names a signal: `interrupt`, which every server knows, or as POSIX does."""
    if isinstance(signum, str):
        return "interrupt" if signum in ("SIGINT", "INT") else signum
    return "interrupt" if signum == signal.SIGINT else signal.Signals(signum).name

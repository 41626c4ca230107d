"""One process as the client tracks it: its events in order, its output, its recovery."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import UnsetType

from exec_server.client.arguments import as_signal
from exec_server.client.flow.flow_control import FlowControl
from exec_server.client.process.output_buffer import (
    Closed,
    Exited,
    Failed,
    OutputBuffer,
    OutputChunk,
    ResyncRequired,
)
from exec_server.client.session_token import Cursor
from exec_server.client.tracing import ProcessSpan
from exec_server.errors import ExecServerError, ProcessFailed, ProcessLost
from exec_server.limits import Limits
from exec_server.protocol.denials import Denial
from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.process import (
    ClosedEvent,
    ExitedEvent,
    OutputEvent,
    ReadResult,
    StartResult,
)
from exec_server.protocol.resources import GrantedLimit
from exec_server.state.event_order import EventOrder, ProcessEvent
from exec_server.state.recovery import merge

# What a handle does when the connection is lost: it waits for a new one, or it fails at once.
OnDisconnect = Literal["hold", "fail"]
# What it does when the server could not retain all of the output during an outage.
OnGap = Literal["fail", "skip"]


_UNTOLD = "the server does not say why"


class TrackedProcess:
    """What the client knows about a process, for the RemoteProcess that its user holds.

    The client holds it weakly: it lives as long as the user holds the handle or one of its views.
    """

    def __init__(
        self,
        process_id: str,
        *,
        is_terminal: bool,
        flow: FlowControl,
        limits: Limits,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "fail",
        after: Cursor | None = None,
        window: int | None = None,
    ) -> None:
        """*after* is given for a process that runs already, with the output that was taken before.

        *window* is the size that is asked for; `windowed` reports which size was granted.
        """
        self.process_id = process_id
        self.is_terminal = is_terminal
        self.on_disconnect = on_disconnect
        # True once the server has said that it runs; before that there is nothing to recover.
        self.is_started = False
        # True if a handle of an earlier client may have written to it.
        self.is_attached = after is not None
        # False if it was started without an input.
        self.takes_input = True
        self.is_truncated = False
        self.dropped_bytes = 0
        self.sandbox_type: str | None = None
        self.sandbox_rung: str | None = None
        self.sandbox_denied = False
        self.is_durable = False
        self.limits: dict[str, GrantedLimit] = {}
        self.returncode: int | None = None
        # Why the exit status is unknown and stays so.
        self.lost: str | None = None
        # The number that the server's system gives it, and the signal that has ended it.
        self.pid: int | None = None
        self.signal: int | None = None
        # Why it ended, and what it used, if the server tells.
        self.end: EndReport | None = None
        self.usage: Usage | None = None
        self.error: ExecServerError | None = None
        self.span: ProcessSpan | None = None
        # Called with what the sandbox refuses.
        self.on_denied: Callable[[Denial], None] | None = None
        # Why the server does not record everything that the sandbox refuses, if it was asked to.
        self.denials_unavailable: str | None = None
        # True if events() is used, which reports lost connections.
        self.has_watcher = False
        self._control = flow
        self._limits = limits
        self._on_gap = on_gap
        self._after = after or Cursor()
        self._order = EventOrder(limits=limits, after=min(self._after.stdout, self._after.stderr))
        self.flow = flow.open(process_id, window=window, after=self._order.released)
        self.output = OutputBuffer(self.flow, limits=limits)
        self._loop = asyncio.get_running_loop()
        self._exit = asyncio.Event()
        self._seen_bytes = 0
        self._woken: set[asyncio.Future[None]] = set()

    # What its handle asks.

    @property
    def wake_seq(self) -> int:
        """The highest number that was received, plus one after a failure; it only grows."""
        return self._order.heard + (self.error is not None)

    async def wait_wake(self, after: int) -> int:
        """Wait until `wake_seq` is above *after* or nothing more can come; returns `wake_seq`."""
        while self.wake_seq <= after and not self.is_settled:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._woken.add(future)
            try:
                with self.flow.watching():
                    await future
            finally:
                self._woken.discard(future)
        return self.wake_seq

    async def wait_settled(self) -> None:
        """Wait until the process has closed or failed."""
        seen = self.wake_seq
        while not self.is_settled:
            seen = await self.wait_wake(seen)

    async def wait(self) -> int:
        """Wait for the exit status."""
        if not self._exit.is_set():
            with self.flow.awaiting_exit():
                await self._exit.wait()
        if self.lost is not None:
            raise ProcessLost(self.lost)
        if self.returncode is None:
            assert self.error is not None
            raise self.error.with_traceback(None)
        return self.returncode

    # What the connection reports.

    @property
    def is_closed(self) -> bool:
        """True if the process has closed: it has ended, and nothing holds its streams."""
        return self._order.is_closed

    @property
    def is_settled(self) -> bool:
        """True if no more events will come."""
        return self._order.is_closed or self.error is not None

    @property
    def cursor(self) -> int:
        """The number of the last event that was put in order."""
        return self._order.released

    def windowed(self, window: int | UnsetType) -> None:
        """The server says which window the process has."""
        self.flow.grant(window or None)

    @property
    def taken(self) -> Cursor | None:
        """Where another handle would continue; None if all output was received and read."""
        stdout, stderr = self.output.cursors(self._order.released)
        after = Cursor(
            max(stdout, self._after.stdout),
            max(stderr, self._after.stderr),
            self.is_terminal,
            self.flow.has_window,
        )
        is_done = self._order.is_closed and min(stdout, stderr) == self._order.released
        return None if is_done else after

    def answered(self, answer: StartResult) -> None:
        """The server has started it, and says how it is confined and which window it has."""
        self.windowed(answer.flow_window)
        self.is_durable = bool(answer.durable)
        self.sandbox_type = answer.sandbox_type
        self.sandbox_rung = answer.sandbox_rung or None
        self.pid = answer.pid or None
        self.limits = answer.limits or {}
        self.denials_unavailable = answer.denials_unavailable or None

    def receive(self, event: ProcessEvent) -> None:
        """An event has arrived, in any order. Never raises."""
        # The exit status is valid even while output before it is missing.
        if isinstance(event, ExitedEvent):
            self.signal = as_signal(event.signal)
            self._reported(event)
            self._exited(event.exit_code, is_denied=event.sandbox_denied, lost=event.lost or None)
        try:
            ready = self._order.receive(event)
        except ProcessFailed as exc:
            self.fail(exc)
            return
        self._deliver(ready)

    def disconnected(self) -> None:
        """The connection is lost, and the client tries to replace it."""
        if self.has_watcher:
            after = self._order.released
            self.output.mark(after, ResyncRequired(after))

    def expect_answer(self) -> None:
        """A recovery read is under way."""
        self._order.is_in_repair = True

    @property
    def page_bytes(self) -> int | None:
        """The number of bytes that a recovery read asks for; None for everything."""
        return self._limits.recovery_page_bytes if self.flow.has_window else None

    def recover_page(self, answer: ReadResult) -> bool:
        """Like `recover`, for a read of `page_bytes`; True if that was the last page."""
        self.windowed(answer.flow_window)
        if self.page_bytes is None:
            # The window is gone, so everything has to be read at once; this page is not used.
            return False
        is_last = not answer.chunks
        # The close comes at the end of the last page, and the exit where nothing is missing.
        answer.closed = answer.closed and is_last
        answer.exited = answer.exited and (is_last or not isinstance(answer.dropped_bytes, int))
        self.recover(answer)
        self._order.is_in_repair = not is_last
        return is_last

    def recover(self, answer: ReadResult) -> None:
        """Continue with the answer of a recovery read. Raises ProcessFailed if events are gone."""
        self.windowed(answer.flow_window)
        may_skip = self._on_gap == "skip"
        merged = merge(self._order, self.process_id, answer, may_skip=may_skip)
        self._order.is_in_repair = False
        if merged.gone and isinstance(answer.dropped_bytes, int):
            # The server counts everything that it has discarded since the start.
            self.dropped_bytes += max(0, answer.dropped_bytes - self._seen_bytes)
            self._seen_bytes = max(self._seen_bytes, answer.dropped_bytes)
        is_exit_gone = answer.exited and not self._order.has_exit
        self.is_truncated |= merged.gone > is_exit_gone
        lost = answer.why_lost
        if answer.exited and self.signal is None:
            self.signal = as_signal(answer.signal)
        if answer.exited:
            self._reported(answer)
        if answer.exited and (answer.exit_code is not None or lost is not None):
            self._exited(answer.exit_code, is_denied=answer.sandbox_denied, lost=lost)
        self._deliver(merged.events)
        if answer.closed and not self.is_settled and answer.next_seq - 1 <= self._order.released:
            # The process had closed before the first event that is wanted.
            self._order.is_closed = True
            self._deliver([ClosedEvent(self.process_id)])

    def _deliver(self, events: Iterable[ProcessEvent]) -> None:
        for event in events:
            if isinstance(event, OutputEvent):
                self._seen_bytes += len(event.chunk.data)
                after = self._after.stderr if event.stream == "stderr" else self._after.stdout
                if event.seq <= after:
                    self.flow.skip(event.seq, event.chunk.data)
                else:
                    self.output.append(OutputChunk(event.seq, event.stream, event.chunk.data))
            elif isinstance(event, ExitedEvent):
                ended_by = as_signal(event.signal)
                mark = Exited(
                    event.seq,
                    self.returncode,
                    event.sandbox_denied,
                    self.lost,
                    ended_by,
                    self.end,
                    self.usage,
                )
                self.output.mark(event.seq, mark)
            else:
                last = self._order.released
                self.output.mark(last, Closed(last if event.seq is None else event.seq))
                self._close()
        self._wake()

    def _exited(self, exit_code: int | None, *, is_denied: bool, lost: str | None) -> None:
        self.sandbox_denied |= is_denied
        if self.returncode is None and self.lost is None:
            if exit_code is None:
                lost = lost or _UNTOLD
            self.lost = lost
            # A status beside a reason is not what the process has returned.
            self.returncode = exit_code if lost is None else None
            self._exit.set()

    def _reported(self, told: ExitedEvent | ReadResult) -> None:
        self.end = told.end or self.end
        self.usage = told.usage or self.usage

    def _wake(self) -> None:
        for future in self._woken:
            if not future.done():
                future.set_result(None)

    def _close(self) -> None:
        self.output.end()
        if self.flow.has_window:
            # All output is here, so the server need not keep anything.
            self._control.settle(self.process_id, self._order.released)
        if self.returncode is None and self.lost is None:
            self.error = ProcessFailed(f"process {self.process_id} closed without an exit status")
        self._exit.set()
        if self.span is not None:
            self.span.closed(self.returncode)

    def lose(self, reason: str) -> None:
        """The process is gone, and no server knows its exit status."""
        if self.returncode is None and self.lost is None:
            self.lost = reason
            self.end = EndReport("lost", evidence=reason)
        self.fail(ProcessLost(reason))

    def give_up_window(self) -> None:
        """Let the process run although its output is not taken."""
        if self.flow.has_window:
            self._control.settle(self.process_id, None)

    def fail(self, error: ExecServerError) -> None:
        """No more events will come; output that is here can still be read."""
        if not self.is_settled:
            self.error = error
            self.output.mark(self._order.heard, Failed(str(error)))
            self.output.end(error)
            self._exit.set()
            self._wake()
            self.give_up_window()
            if self.span is not None:
                self.span.failed(error)

    def __del__(self) -> None:
        if not self.is_settled and self.flow.has_window:
            # This may run in another thread, and after the loop has closed.
            self._control.dropped.append((self.process_id, self.flow))
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._control.forget_dropped)

"""A process that outlives the server: its output is in a journal, its keeper is the durable one."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from exec_server.process.child import Child
from exec_server.process.child_parts import ChildHome, NumberedSize, Sandbox
from exec_server.process.durable.durable_job import DurableJob
from exec_server.process.durable.durable_stdin import DurableStdin
from exec_server.process.durable.journal_log import Record
from exec_server.process.durable.journal_pump import JournalPump
from exec_server.process.durable.keeper_hello import HeldJob
from exec_server.process.durable.state_directory import StoredJob, StoredStatus
from exec_server.process.durable.stored_control import StoredControl
from exec_server.process.echo_first import SMALL_INPUT, EchoFirst
from exec_server.process.end_report import Order, order_of
from exec_server.process.spawn import Facts
from exec_server.protocol import process
from exec_server.sandbox.denial import is_denied
from exec_server.sandbox.model import Backend
from exec_server.state.output_log import Chunk

logger = logging.getLogger(__name__)

KEEPER_DIED = "the keeper died"
MACHINE_RESTARTED = "machine restarted"
# A reason is noted as its place here, so that it never changes.
_REASONS = (KEEPER_DIED, MACHINE_RESTARTED)
# A note that the disk had no room for is tried again this much later.
_RETRY_SECONDS = 1.0
# So much of the last output decides whether a sandbox refused something.
_JUDGED_BYTES = 1 << 20


class DurableChild(Child):
    """A `Child` on a journal. It is made for a start, or for a job that an earlier server left."""

    is_durable = True

    def __init__(
        self,
        params: process.StartParams,
        job: DurableJob,
        home: ChildHome,
        on_closed: Callable[[Child], None],
    ) -> None:
        # Its journal retains its output, which does not rest; streams make way for its input.
        echo_first = EchoFirst()
        echo_first.on_small_input = home.echo_first.streams_make_way
        own = home._replace(retention=None, echo_first=echo_first)
        super().__init__(params, own, job, on_closed)
        self.job = job
        self._asked_window = params.flow_window
        self._wants_stdin = params.pipe_stdin
        self._stdin_state = "open" if params.tty or params.pipe_stdin else "none"
        job.describe = self._described
        self._lost_at: int | None = None
        # True if an earlier server has seen its end.
        self.was_over = False
        self._retry: asyncio.TimerHandle | None = None
        # True if its screen is wanted from the first output on.
        self.wants_screen = params.screen
        # True once this server has left it to its keeper.
        self._is_left = False

    def _described(self) -> dict[str, Any]:
        """What the job's file says besides what the job itself knows."""
        return {
            "sandbox": self.sandbox.backend if self.sandbox is not None else None,
            "refusal": self.sandbox.refusal if self.sandbox is not None else None,
            "started_at": self.started_at,
        }

    def new_record_file(self) -> Path | None:
        return self.job.new_record_file()

    def store_control(self, control: StoredControl) -> None:
        if not self._is_left:
            self.job.store_control(control)

    def stored_control(self) -> StoredControl | None:
        return self.job.stored_control()

    # Its descriptors.

    def _own(self, fds: list[int], loop: asyncio.AbstractEventLoop) -> None:
        log = self.log = self.job.log
        parts = [tuple(fds)] if self.is_tty else [(fd,) for fd in fds]
        for part, stream in zip(parts, self.streams, strict=True):
            middle = process.output_middle(stream)
            pump = JournalPump(
                part,
                stream,
                log,
                gate=self._outlet.gate,
                window=self._window_gate,
                chunk_bytes=self._limits.chunk_bytes,
                on_record=functools.partial(self._on_record, stream, middle),
                on_end=self._maybe_close,
            )
            self._pumps.append(pump)
        if self.is_tty:
            self.stored_screen = self.job.stored_screen()
        if self._stdin_state != "none":
            self.stdin = DurableStdin(
                self.job, is_terminal=self.is_tty, is_closing=self._stdin_state == "closing"
            )

    @property
    def over_since(self) -> int:
        """When it ended or was found lost; in milliseconds since 1970."""
        return self.ended_at or self._lost_at or self.started_at

    def accept_input(self, data: bytes, write_id: str | None) -> asyncio.Future[None] | None:
        assert isinstance(self.stdin, DurableStdin)
        if self.answers_soon and len(data) <= SMALL_INPUT:
            self._echo_first.small_input(self)
        return self.stdin.write(data, write_id)

    # Events.

    def limit_output(self, most: int) -> None:
        super().limit_output(most)
        self._most_output = most

    def _on_record(self, stream: process.Stream, middle: bytes, record: Record) -> None:
        if self._output_limit is not None and self.log.total_bytes > self._most_output:
            # The journal has it already.
            self._output_limit.reach()
        # While no client is attached and none looks on, the bytes need not be read.
        is_seen = self._outlet.is_attached or self.taps
        data = self.job.log.read(record) if is_seen else b""
        self._tell_output(record.seq, stream, middle, data)

    def reaped(
        self, status: int | None, reason: str | None = None, facts: Facts | None = None
    ) -> None:
        self._reason = reason
        self._note_facts(facts)
        self._learn(facts)
        if status is None:
            self.lost = self.lost or KEEPER_DIED
        elif self.ended_at is None:
            self.ended_at = time.time_ns() // 1_000_000
        self._exit_status = status
        self._is_reaped = True
        self.tell_reaped()
        self.is_terminated = self.is_terminated or status is None
        if self._has_begun:
            self._on_exit()

    def _note(self, order: Order) -> None:
        super()._note(order)
        if self.tells_report:
            self.job.note_order(order.described())

    def _learn(self, facts: dict[str, Any] | None) -> None:
        """The facts of the keeper, which also knows the orders of earlier servers."""
        self.end_facts |= facts or {}
        if told := self.end_facts.pop("orders", None):
            self.orders = [order_of(each) for each in told]

    def _on_exit(self) -> None:
        if self.lost is None:
            super()._on_exit()
            return
        for pump in tuple(self._pumps):
            pump.drain(_JUDGED_BYTES)
        self._on_lost()

    def _on_lost(self) -> None:
        assert self.lost is not None
        logger.warning("process %.64r is lost: %s", self.process_id, self.lost)
        seq = self.job.log.note("lost", _REASONS.index(self.lost))
        if not seq:
            self._again(self._on_lost)
            return
        self._lost_at = self.job.log.written_at
        self.state = "exited"
        self._make_report()
        self._outlet.push(self._texts.lost(seq, reason=self.lost, end=self.end))
        self._after_exit(seq)

    def _on_classified(self, code: int) -> None:
        if self.state == "running" and not self.job.log.note("exited", self._exit_status or 0):
            self._again(lambda: self._on_classified(code))
            return
        super()._on_classified(code)

    def _number(self, event: Literal["exited", "closed"]) -> int:
        if event == "closed" and not self.job.log.note("closed"):
            # The disk has failed. No other event follows, so the number is not given out twice.
            return self.job.log.next_seq
        return self.job.log.notes[event].seq

    def _maybe_close(self) -> None:
        was_closed = self.state == "closed"
        super()._maybe_close()
        if self.state == "closed" and not was_closed:
            # Everything is on the disk.
            self.job.release()

    def _again(self, call: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._retry = loop.call_later(_RETRY_SECONDS, call)

    def _outputs(self) -> tuple[bytes, bytes, bytes]:
        return _joined(self.job.log.last(_JUDGED_BYTES))

    def grant(self, asked: int) -> None:
        super().grant(asked)
        self.job.log.grant(self._granted)
        if self.log.is_full:
            self._window_gate.close()

    def release(self) -> None:
        super().release()
        self.job.give_up_window()

    # Jobs of earlier servers.

    def restore(self, saved: StoredJob) -> None:
        """The facts that do not change."""
        self.started_at = saved.started_at
        self._mark = saved.mark
        self.log = self.job.log
        self.wants_screen = saved.screen
        if self.is_tty:
            self.stored_screen = self.job.stored_screen()
            sizes, self.sizes_dropped = self.stored_screen.sizes()
            self.sizes += [NumberedSize(*size) for size in sizes]
        if saved.output_limit is not None:
            self.limit_output(saved.output_limit)
        self.was_over = not self.job.log.notes.keys().isdisjoint(("exited", "lost"))
        if saved.sandbox is not None:
            backend: Any = saved.sandbox
            self.sandbox = _EarlierSandbox(backend, saved.refusal)

    def go_on(self, kept: HeldJob, fds: list[int], status: StoredStatus | None) -> None:
        """The keeper still has it: own its descriptors, and go on from where the journal ends."""
        self.pid = kept.pid
        self._stdin_state = kept.input
        self._own(fds, asyncio.get_running_loop())
        size = self.current_size()
        if size is not None and size != self.terminal_size:
            # The earlier server was killed before it could note it.
            self.resize(*size)
        if self._asked_window is not None:
            self.grant(self._asked_window)
        self._has_begun = True
        self.ended_at = status.ended_at if status is not None else None
        notes = self.job.log.notes
        if "exited" in notes:
            self._restore_exit(notes["exited"].value, status)
        for pump in self._pumps:
            pump.resume()
        if "exited" in notes:
            return
        if kept.status is not None:
            why = () if status is None else (status.reason, status.facts)
            self.reaped(kept.status, *why)
        elif self._is_reaped:
            # It has ended since the keeper was asked.
            self._on_exit()

    def finish(self, status: StoredStatus | None, lost: str) -> None:
        """The keeper does not have it: it has ended with *status*, or is *lost*."""
        self._has_begun = True
        notes = self.job.log.notes
        self._is_reaped = True
        if "lost" in notes:
            self._restore_loss(_REASONS[notes["lost"].value % len(_REASONS)])
        elif "exited" in notes or status is not None:
            self.ended_at = status.ended_at if status is not None else None
            code = status.status if status is not None else notes["exited"].value
            if "exited" not in notes:
                self.job.log.note("exited", code)
            self._restore_exit(code, status)
        else:
            self.job.log.note("lost", _REASONS.index(lost))
            self._restore_loss(lost)
        if "closed" not in notes:
            self.job.log.note("closed")
        self.state = "closed"
        self.log.end()

    def _restore_loss(self, reason: str) -> None:
        self.lost = reason
        self.state = "exited"
        self._lost_at = self.job.log.written_at
        self._make_report()

    def _restore_exit(self, status: int, stored: StoredStatus | None) -> None:
        self._is_reaped = True
        self._exit_status = status
        self.exit_code = code = self._code_of(status)
        self.is_sandbox_denied = self.sandbox is not None and is_denied(code, *self._outputs())
        self.state = "exited"
        if stored is not None:
            self._reason = stored.reason
            self._learn(stored.facts)
        self._make_report()

    # Its end.

    def let_go(self) -> None:
        """This server ends; the keeper goes on with the process."""
        self._is_left = True
        self._stop_timers()
        self._close_pumps()
        if isinstance(self.stdin, DurableStdin):
            self.stdin.let_go()
        self._give_back()
        self._wake()
        self.forget()

    def discard(self) -> None:
        super().discard()
        self.job.remove()

    def abandon(self) -> None:
        self._stop_timers()
        super().abandon()
        self.job.remove()

    def _stop_timers(self) -> None:
        for timer in (self._retry, self._late_output):
            if timer is not None:
                timer.cancel()


class _EarlierSandbox(Sandbox):
    """The confinement of a job that an earlier server has started."""

    def __init__(self, backend: Backend, refusal: str | None) -> None:
        self.backend = backend
        self.refusal = refusal


def _joined(chunks: list[Chunk]) -> tuple[bytes, bytes, bytes]:
    stderr = b"".join(chunk.data for chunk in chunks if chunk.stream == "stderr")
    stdout = b"".join(chunk.data for chunk in chunks if chunk.stream != "stderr")
    return stdout, stderr, b"".join(chunk.data for chunk in chunks)

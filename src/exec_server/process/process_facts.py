"""What is known of one process: what was asked for, what it is, and how it ended."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from exec_server.limits import Limits
from exec_server.process.child_parts import NumberedSize, Sandbox
from exec_server.process.end_report import Ending, Order, end_report, usage_of
from exec_server.process.spawn import Facts, Granted
from exec_server.process.start_terms import NO_TERMS
from exec_server.protocol import process
from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.participants import Kind
from exec_server.sandbox.model import NOT_RUN

if TYPE_CHECKING:
    from exec_server.process.denial_watch import DenialWatch
    from exec_server.process.durable.stored_screen import StoredScreen

logger = logging.getLogger(__name__)

# The exit code when the wait status was lost, because the keeper died; and what the client is told.
UNKNOWN_EXIT = -1
LOST = "the process keeper died, and this process was killed with it"
# A terminal process that a signal ended reports this, as the reference does, unless its client has
# asked for the signal.
_TERMINAL_SIGNAL_EXIT = 1
# So many orders are remembered; the newest counts.
_MAX_ORDERS = 8


class ProcessFacts:
    """What a session, its clients and those who look on can know of a process."""

    def __init__(self, params: process.StartParams, limits: Limits) -> None:
        self.process_id = params.process_id
        self.argv = params.argv
        self.is_tty = params.tty
        self.cwd = params.cwd
        self.name = params.name
        # In milliseconds since 1970; the end of a process that is not durable is not kept.
        self.ended_at: int | None = None
        self.started_at = time.time_ns() // 1_000_000
        self.hides_signals = params.tty and not params.exit_signals
        # True if the client wants to know the pid, and the signal that ends the process.
        self.tells_details = params.details
        self.pid: int | None = None
        self.exit_code: int | None = None
        # The signal that has ended the process, if one has and the client wants to know it.
        self.end_signal: int | None = None
        # Why it ended and what it used, once it has, if the client wants to know it; the orders
        # that may have ended it; and the facts that were found out.
        self.tells_report = params.report
        self.end: EndReport | None = None
        self.usage: Usage | None = None
        self.orders: list[Order] = []
        self.end_facts: dict[str, Any] = {}
        self.is_terminated = False
        # The reason why the process was lost, if it was.
        self.failure: str | None = None
        # The reason why the exit status is unknown; only a durable process has one.
        self.lost: str | None = None
        # The bytes that clients have sent to it.
        self.input_bytes = 0
        self.sandbox: Sandbox | None = None
        # What was refused to it, if the client wants to know.
        self.denials: DenialWatch | None = None
        # What it was started with, if it can be started again under a wider sandbox.
        self.params = params if params.denials else None
        self.terms = NO_TERMS
        self.is_sandbox_denied = False
        # What it may use, as the keeper was asked and as it has granted; None without limits.
        self.asked_limits: Facts | None = None
        self.granted: Granted | None = None
        # True if the client wants to know what became of its limits.
        self.tells_limits = params.limits is not None
        # What the keeper knows of the end.
        self.facts: Facts | None = None
        # The mark of all processes of this start, see the keeper; 0 if there is none.
        self.mark = 0
        # Who types at first, if the start says it.
        self.driver_kind: Kind = params.driver or "agent"
        # How long a driver whose session was lost with an earlier server keeps its place.
        self.absent_seconds = limits.detached_session_seconds
        # The sizes that its terminal has had, the newest last.
        self.sizes = [
            NumberedSize(0, params.rows or limits.default_rows, params.cols or limits.default_cols)
        ]
        self.sizes_dropped = 0
        # Where the next server finds its sizes; None if it does not outlive the server.
        self.stored_screen: StoredScreen | None = None
        self._exit_status: int | None = None
        # The reason why the command must not run, once there is one; and why it was killed.
        self._refusal: str | None = None
        self._reason: str | None = None

    @property
    def over_since(self) -> int | None:
        """When a durable process has ended; in milliseconds since 1970."""
        return None

    @property
    def streams(self) -> tuple[process.Stream, ...]:
        return ("pty",) if self.is_tty else ("stdout", "stderr")

    # Its end.

    def _note_facts(self, facts: Facts | None) -> None:
        self.facts = facts
        if facts is not None and "limit" in facts:
            # What it has left behind may hold the pipes, and ends as well.
            self.is_terminated = True
            logger.warning(
                "process %.64r has reached its limit `%s`", self.process_id, facts["limit"]
            )

    def _note(self, order: Order) -> None:
        """Remember who may have ended the process."""
        if self.tells_report:
            self.orders.append(order)
            del self.orders[:-_MAX_ORDERS]

    def _code_of(self, status: int | None) -> int:
        if self._refusal is not None:
            return NOT_RUN
        if status is None:
            return UNKNOWN_EXIT
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return code
        if self.tells_details:
            self.end_signal = -code
        return _TERMINAL_SIGNAL_EXIT if self.hides_signals else 128 - code

    def _make_report(self) -> None:
        """It has ended: conclude why, if the client wants to know it."""
        if not self.tells_report:
            return
        sandbox = self.sandbox
        ending = Ending(
            self._exit_status,
            facts=self.end_facts,
            orders=self.orders,
            lost=self.lost or (None if self.failure is None else LOST),
            refusal=self._refusal or (None if sandbox is None else sandbox.refusal),
            reason=self._reason,
            is_wrapped=sandbox is not None and sandbox.backend == "bubblewrap",
        )
        self.end = end_report(ending)
        # Without facts, as of a keeper of an earlier release, nothing is known.
        self.usage = usage_of(self.end_facts) if "wall" in self.end_facts else None

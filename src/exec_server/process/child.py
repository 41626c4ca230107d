"""One managed process: its pumps, its exit, and the events they become.

The module is long because the order of these events is one decision: output, exit, close, window
and termination all change what the next event is.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import signal
import struct
import termios
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from exec_server.errors import ControlLost
from exec_server.limits import MIB
from exec_server.memory import keep_freed_memory
from exec_server.process.child_parts import (
    ChildHome,
    InputGuard,
    Network,
    NumberedSize,
    ProcessInput,
    Reader,
)
from exec_server.process.echo_first import SMALL_INPUT
from exec_server.process.end_report import Order
from exec_server.process.limiting.output_limit import OutputLimit
from exec_server.process.process_facts import LOST, ProcessFacts
from exec_server.process.pump import SMALL_READ, OutputGate, Pump
from exec_server.process.spawn import Facts, ProgramStarter, Spawned
from exec_server.process.stdin import Stdin
from exec_server.process.tap import Tap
from exec_server.protocol import process
from exec_server.protocol.ends import EndedBy
from exec_server.sandbox.denial import is_denied
from exec_server.state.output_log import OutputLog, ProcessLog
from exec_server.state.write_ids import WriteIds

if TYPE_CHECKING:
    from pathlib import Path

    from exec_server.process.durable.stored_control import StoredControl

logger = logging.getLogger(__name__)

State = Literal["running", "exited", "closed"]

# Output of up to this size that was written just before the exit is sent before it; more is late
# output.
_DRAIN_BYTES = 1 << 20
# Output that follows the exit of a sandboxed process within this time still helps to explain it.
_LATE_OUTPUT_SECONDS = 0.020
_SERVER = EndedBy("server")
_MAX_SIZES = 1000


class Child(ProcessFacts):
    """One process of a session, from the request to start it to its close.

    This object exists before the operating system's child does, because the spawner has to know
    whom it tells of the exit, and that may come at once. It goes through three steps:

        made           nothing runs; network and sandbox are being prepared
        adopt          the program runs; its pid and its descriptors are known, nothing is read
        begin_events   output is read; events are numbered when they happen, pushed in that order

    Events wait for the last step, so that the answer to the start can leave before the first one.
    """

    # True for a process that outlives the server; see `DurableChild`.
    is_durable = False

    def __init__(
        self,
        params: process.StartParams,
        home: ChildHome,
        spawner: ProgramStarter,
        on_closed: Callable[[Child], None],
    ) -> None:
        limits = home.limits
        super().__init__(params, limits)
        self.log: ProcessLog = OutputLog(
            max_bytes=limits.retained_bytes,
            max_chunks=limits.retained_chunks,
            budget=home.retention,
        )
        # Called when it has ended.
        self.on_exit: Callable[[Child], None] | None = None
        self.write_ids = WriteIds(capacity=limits.remembered_write_ids)
        # The writes that wait for room in the queue, by their ids.
        self.waiting_writes: dict[str, asyncio.Future[None]] = {}
        self.stdin: ProcessInput | None = None
        self.network: Network | None = None
        # Called once, when the program has ended or could not be started.
        self.on_reaped: Callable[[], None] | None = None
        self._output_limit: OutputLimit | None = None
        self.state: State = "running"
        self._outlet = home.outlet
        self.spawner = spawner
        self._limits = limits
        self._on_closed = on_closed
        self._windows = home.windows
        # The bytes that the window has taken from the budget of all processes; they are given back.
        self._granted = 0
        # The gate is closed while the window is full.
        self._window_gate = OutputGate()
        self._pumps: list[Reader] = []
        self._waiters: set[asyncio.Future[None]] = set()
        self._has_begun = False
        self._is_reaped = False
        self._is_bulk = False
        # Lets its answers to small input go before the bulk output of others.
        self._echo_first = home.echo_first
        # False if small input did not lead to output soon, or if its last output was large.
        self.answers_soon = True
        self._late_output: asyncio.TimerHandle | None = None
        self._texts = process.EventTexts(self.process_id)
        self._output_head = self._texts.output_head
        # Those who look on; almost always none.
        self.taps: tuple[Tap, ...] = ()
        # Asked before input and sizes of the session, if others take part; almost always None.
        self.guard: InputGuard | None = None
        # Takes the answers of other terminals out of the input, if it has a model that answers.
        self.input_filter: Callable[[bytes], bytes] | None = None

    def adopt(self, spawned: Spawned) -> None:
        """The program runs: own its descriptors."""
        loop = asyncio.get_running_loop()
        self.pid = spawned.pid
        self.log.begin()
        self.mark = spawned.mark
        self.granted = spawned.granted
        if self.granted is not None and "outputBytes" in self.granted:
            self.limit_output(int(self.granted["outputBytes"][0]))
        if logger.isEnabledFor(logging.INFO):
            # A server that logs less need not load it.
            from exec_server.audit.masking import PLAIN

            words = PLAIN.command(self.argv)
            logger.info(
                "process %.64r started with pid %d: %.1000r", self.process_id, spawned.pid, words
            )
        if self.network is not None:
            self.network.started()
        self._own(spawned.fds, loop)

    def limit_output(self, most: int) -> None:
        self._output_limit = OutputLimit(most, partial(self._reach_limit, "outputBytes"))

    def _reach_limit(self, name: str) -> None:
        if self.pid is not None and not self._is_reaped:
            self.spawner.reach_limit(self.pid, name)

    def _own(self, fds: list[int], loop: asyncio.AbstractEventLoop) -> None:
        """Make the pumps and the input; the input follows the outputs, a terminal comes twice."""
        for fd, stream in zip(fds, self.streams, strict=False):
            self._pumps.append(self._make_pump(fd, stream, loop))
        if self.is_tty or len(fds) > 2:
            self.stdin = Stdin(
                fds[-1],
                loop=loop,
                max_writes=self._limits.stdin_queue_writes,
                max_bytes=self._limits.stdin_queue_bytes,
                is_terminal=self.is_tty,
            )

    def _make_pump(self, fd: int, stream: process.Stream, loop: asyncio.AbstractEventLoop) -> Pump:
        on_output = self._on_output if self._output_limit is None else self._on_limited_output
        return Pump(
            fd,
            loop=loop,
            gate=self._outlet.gate,
            window=self._window_gate,
            bulk_gate=self._echo_first.gate,
            chunk_bytes=self._limits.chunk_bytes,
            is_terminal=self.is_tty,
            on_data=partial(on_output, stream, process.output_middle(stream)),
            on_end=self._maybe_close,
        )

    def new_record_file(self) -> Path | None:
        """The file for what a sandbox refuses to it, if that has to outlive the server."""
        return None

    def push(self, event: bytes) -> None:
        """Send an event that has no number: it is not repeated."""
        self._outlet.push(event)

    def begin_events(self) -> None:
        """The answer to the start has left: read output, tell of the exit."""
        self._has_begun = True
        for pump in self._pumps:
            pump.resume()
        if self.denials is not None:
            self.denials.begin()
        if self._is_reaped:
            self._on_exit()
        elif self._refusal is not None:
            self.signal(signal.SIGKILL)

    # Events.

    def _on_output(self, stream: process.Stream, middle: bytes, data: bytes) -> None:
        self._tell_output(self.log.append(stream, data), stream, middle, data)

    def _on_limited_output(self, stream: process.Stream, middle: bytes, data: bytes) -> None:
        assert self._output_limit is not None
        if passed := self._output_limit.passed(data):
            self._on_output(stream, middle, passed)

    def _tell_output(self, seq: int, stream: process.Stream, middle: bytes, data: bytes) -> None:
        """Output has its number: push it to the client."""
        if self.taps:
            for tap in self.taps:
                tap.output(seq, stream, data)
        if self._granted and self.log.is_full:
            self._window_gate.close()
        if self._outlet.is_attached:
            try:
                before = b"%b%d%b" % (self._output_head, seq, middle)
                self._outlet.push_bulk(before, data, process.OUTPUT_TAIL)
            except MemoryError:
                # The client must not miss an event. It can resume, and read it from the log.
                logger.warning("no memory for an event; the client has to resume its session")
                self._outlet.interrupt()
        if self._echo_first.typist is self:
            self._echo_first.typist = None
        self.answers_soon = len(data) < SMALL_READ
        if not self.answers_soon:
            self._echo_first.bulk_passed(len(data))
        if not self._is_bulk and self.log.total_bytes > self._limits.retained_bytes:
            self._is_bulk = True
            for pump in self._pumps:
                pump.expect_bulk(self._limits.bulk_chunk_bytes)
        if self._waiters:
            self._wake()

    def reaped(
        self, status: int | None, reason: str | None = None, facts: Facts | None = None
    ) -> None:
        """The program has exited; the keeper reports its wait status, and why it has killed it."""
        self._note_facts(facts)
        self._exit_status = status
        self._reason = reason
        self.end_facts |= facts or {}
        self._is_reaped = True
        self.tell_reaped()
        if status is None:
            self.failure = f"exec-server: {LOST}"
            # A process that could not be found without the keeper may hold the output for ever.
            self.is_terminated = True
        if self._has_begun:
            self._on_exit()

    def tell_reaped(self) -> None:
        told, self.on_reaped = self.on_reaped, None
        if told is not None:
            told()

    def _on_exit(self) -> None:
        for pump in tuple(self._pumps):
            pump.drain(_DRAIN_BYTES)
        if (reason := self._refusal or self.failure or self._reason) is not None:
            self._say_reason(reason)
        code = self._code_of(self._exit_status)
        if self.sandbox is not None and code and not self._has_all_output():
            # The last output may explain why the process ended.
            self._late_output = asyncio.get_running_loop().call_later(
                _LATE_OUTPUT_SECONDS, self._on_classified, code
            )
        else:
            self._on_classified(code)

    def _has_all_output(self) -> bool:
        return self.is_terminated or all(pump.is_ended for pump in self._pumps)

    def _on_classified(self, code: int) -> None:
        """All output has come that decides whether the sandbox refused something."""
        self._late_output = None
        self.exit_code = code
        logger.info("process %.64r ended with status %d", self.process_id, code)
        self.is_sandbox_denied = self.sandbox is not None and is_denied(code, *self._outputs())
        self.state = "exited"
        self._make_report()
        seq = self._number("exited")
        lost = None if self.failure is None else LOST
        self._outlet.push(
            self._texts.exited(
                seq,
                exit_code=code,
                sandbox_denied=self.is_sandbox_denied,
                lost=lost,
                signal=self.end_signal,
                end=self.end,
                usage=self.usage,
            )
        )
        self._after_exit(seq)

    def _number(self, event: Literal["exited", "closed"]) -> int:
        return self.log.take_seq()

    def _after_exit(self, seq: int) -> None:
        for tap in self.taps:
            tap.exited(seq)
        if self.on_exit is not None:
            self.on_exit(self)
        if self.is_terminated:
            # A descendant that left the process group may hold the pipes for ever; do not wait for
            # it.
            self._close_pumps()
        self._maybe_close()
        self._wake()

    def _outputs(self) -> tuple[bytes, bytes, bytes]:
        """The retained stdout, stderr, and both in order; output of a terminal counts as stdout."""
        chunks = self.log.after(0).chunks
        stderr = b"".join(chunk.data for chunk in chunks if chunk.stream == "stderr")
        stdout = b"".join(chunk.data for chunk in chunks if chunk.stream != "stderr")
        return stdout, stderr, b"".join(chunk.data for chunk in chunks)

    def _say_reason(self, text: str) -> None:
        """Write *text* as output of the process, which never ran or was lost."""
        stream: process.Stream = "pty" if self.is_tty else "stderr"
        line = text.encode() + (b"\r\n" if self.is_tty else b"\n")
        self._on_output(stream, process.output_middle(stream), line)

    def _maybe_close(self) -> None:
        if self._late_output is not None and self._has_all_output():
            self._late_output.cancel()
            self._on_classified(self._code_of(self._exit_status))
            return
        if self.state != "exited" or not all(pump.is_ended for pump in self._pumps):
            return
        self.state = "closed"
        if self._echo_first.typist is self:
            self._echo_first.typist = None
        seq = self._number("closed")
        self._outlet.push(self._texts.closed(seq))
        self._close_stdin()
        self.close_network()
        self._wake()
        self._settle_window()
        self.log.end()
        self._close_taps()
        self._on_closed(self)

    # The window.

    def grant(self, asked: int) -> None:
        """Keep output until it is acknowledged, within a window. Call it before `begin_events`."""
        self.log.window = self._granted = self._windows.take(asked)
        # An acknowledgement frees many chunks at once.
        keep_freed_memory(4 * MIB)

    def acknowledge(self, seq: int) -> None:
        """The client has taken all output up to *seq*."""
        self.log.acknowledge(seq)
        self._settle_window()

    def release(self) -> None:
        """There will be no acknowledgements any more: keep only the newest output, never wait."""
        self.log.release()
        self._settle_window()

    def _settle_window(self) -> None:
        if not self.log.is_full and not self._window_gate.is_open:
            self._window_gate.open()
        is_done = self.log.window is None or self.state == "closed"
        if is_done and self.log.is_within_retention:
            self._give_back()

    def _give_back(self) -> None:
        self._windows.give_back(self._granted)
        self._granted = 0

    # Requests.

    def changed(self) -> asyncio.Future[None]:
        """A future that is done as soon as there is news."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(future)
        # A poll that times out removes its future; otherwise a silent process would collect them.
        future.add_done_callback(self._waiters.discard)
        return future

    def _wake(self) -> None:
        for future in tuple(self._waiters):
            if not future.done():
                future.set_result(None)

    def accept_input(self, data: bytes, write_id: str | None) -> asyncio.Future[None] | None:
        """Queue *data* for stdin; a future if that has to wait. A durable process needs the id."""
        stdin, echo_first = self.stdin, self._echo_first
        assert stdin is not None
        if self.answers_soon and len(data) <= SMALL_INPUT:
            if echo_first.bytes_due > 0 and echo_first.on_small_input is None:
                # The usual case of `small_input`: nothing has to rest now.
                echo_first.typist = self
            else:
                echo_first.small_input(self)
        return stdin.write(data)

    def signal(self, signum: int, by: EndedBy | None = None) -> None:
        """Signal the process group; *by* is the client that asks for it."""
        if self.pid is not None and not self._is_reaped:
            if by is not None:
                self._note(Order(signum, by))
            self.spawner.signal_group(self.pid, signum)

    def terminate(self, *, tree: bool = False, by: EndedBy = _SERVER) -> bool:
        """Kill the process group; True if the program was still running.

        *by* is the client that asks for it.
        With *tree* all other processes that the program has started end as well, even if it has
        exited; otherwise they live on until the session ends, as in the reference, whose clients
        terminate every process that has exited. Nothing leaves a sandbox in this way.
        """
        if self._is_reaped:
            if tree:
                self._end_tree()
            return False
        self.is_terminated = True
        if self.network is not None:
            self.network.stop_asking()
        self._note(Order(signal.SIGKILL, by, ends=True))
        self.signal(signal.SIGKILL)
        if tree or self.sandbox is not None:
            self._end_tree()
        return True

    def _end_tree(self) -> None:
        if self.mark:
            self.spawner.end_tree(self.mark)

    def refuse(self, reason: str) -> None:
        """Kill a process that has not begun to run its command; *reason* becomes its output."""
        if self._is_reaped or self.is_terminated:
            return
        self._refusal = reason
        # Before `adopt` it has no pid; then `begin_events` kills it.
        self.signal(signal.SIGKILL)

    def _close_taps(self) -> None:
        taps, self.taps = self.taps, ()
        for tap in taps:
            tap.closed()
        if self.guard is not None:
            self.guard.close()

    def current_size(self) -> tuple[int, int] | None:
        """The rows and columns of its terminal; None if it has none, or has ended."""
        if not self.is_tty or not self._pumps or self._pumps[0].is_ended:
            return None
        packed = fcntl.ioctl(self._pumps[0].fileno(), termios.TIOCGWINSZ, bytes(8))
        rows, cols, _, _ = struct.unpack("HHHH", packed)
        return rows, cols

    def refuse_waiting_input(self, error: ControlLost) -> None:
        """Fail the writes that wait for room in the queue: their writer drives no longer."""
        if isinstance(self.stdin, Stdin):
            self.stdin.refuse_waiting(error)

    def store_control(self, control: StoredControl) -> None:
        """Remember who drives, if the process outlives the server."""

    def stored_control(self) -> StoredControl | None:
        """Who has driven a process of an earlier server, if it was shared."""
        return None

    @property
    def terminal_size(self) -> tuple[int, int]:
        """Its rows and columns."""
        return self.sizes[-1][1:]

    def resize(self, rows: int, cols: int) -> None:
        if self.is_tty and not self._pumps[0].is_ended:
            fcntl.ioctl(
                self._pumps[0].fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0)
            )
            self.sizes.append(NumberedSize(self.log.next_seq - 1, rows, cols))
            if self.stored_screen is not None:
                self.stored_screen.add_size(self.sizes[-1])
            if len(self.sizes) > _MAX_SIZES:
                # The first one stays: models are made with it.
                del self.sizes[1]
                self.sizes_dropped += 1
            for tap in self.taps:
                tap.resized(rows, cols)

    def abandon(self) -> None:
        """Kill it and release everything without another event."""
        self.terminate(tree=True)
        if self._late_output is not None:
            self._late_output.cancel()
        self._close_pumps()
        self._close_stdin()
        self.close_network()
        self._give_back()
        self._wake()
        self._close_taps()
        self.forget()

    def forget(self) -> None:
        """No request names it any more: free its output and what refers back to this object."""
        self.log.clear()
        self._pumps.clear()
        self.sandbox = None
        if self.denials is not None:
            self.denials.close()

    def let_go(self) -> None:
        """The server ends, and the process goes on without it, which only a durable one can."""
        raise AssertionError("this process is not durable")

    def discard(self) -> None:
        """Its time is over: forget it, wherever it is kept."""
        self.forget()

    def close_network(self) -> None:
        # The network holds this object, too.
        network, self.network = self.network, None
        if network is not None:
            network.close()

    def _close_pumps(self) -> None:
        for pump in self._pumps:
            pump.close()

    def _close_stdin(self) -> None:
        if self.stdin is not None:
            self.stdin.close()

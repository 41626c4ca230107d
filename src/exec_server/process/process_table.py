"""A session's processes: start, read, write, signal, terminate.

The module is long because every `process/*` method is a method of one table.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from exec_server.errors import InternalError, InvalidParams, InvalidRequest
from exec_server.limits import Limits
from exec_server.memory import give_back_memory
from exec_server.process.child import Child
from exec_server.process.child_parts import ChildHome, Outlet
from exec_server.process.echo_first import EchoFirst
from exec_server.process.process_answers import (
    has_news,
    process_info,
    read_result,
    start_result,
    starting_info,
)
from exec_server.process.process_launcher import OpenBridge, OpenNetwork, ProcessLauncher
from exec_server.process.spawn import Spawned, Spawner
from exec_server.process.start_terms import NO_TERMS, StartTerms
from exec_server.protocol import denials, network, process
from exec_server.protocol.ends import EndedBy
from exec_server.state.expiry import Expiry
from exec_server.state.retention import RetentionBudget
from exec_server.state.window import WindowBudget
from exec_server.timers import Alarm

if TYPE_CHECKING:
    from exec_server.process.denial_watch import DenialWatch
    from exec_server.process.durable.durable_child import DurableChild
    from exec_server.process.durable.durable_jobs import LeftJob, SessionJobs

logger = logging.getLogger(__name__)

# An event loop's clock cannot wait longer than this.
_LONGEST_WAIT = 365 * 24 * 3600.0

# Starts a process under terms, or under narrower ones.
Begin = Callable[[process.StartParams, StartTerms], Awaitable[process.StartResult]]

_ACCEPTED = process.WriteResult("accepted")
_NO_STATE = "this server keeps no state: start it with --state DIR"


class Starting:
    """An id whose program does not run yet."""

    def __init__(self, params: process.StartParams, child: Child) -> None:
        self.params = params
        self.child = child
        self.is_cancelled = False


class ProcessTable:
    """All processes of one session that are not yet forgotten."""

    def __init__(
        self,
        *,
        spawner: Spawner,
        outlet: Outlet,
        limits: Limits,
        login_shell: str,
        server_env: Mapping[str, str],
        windows: WindowBudget,
        retention: RetentionBudget | None = None,
        echo_first: EchoFirst | None = None,
        open_network: OpenNetwork | None = None,
        open_bridge: OpenBridge | None = None,
        durable: SessionJobs | None = None,
    ) -> None:
        self._durable = durable
        self._spawner = spawner.for_session()
        self._limits = limits
        self._home = ChildHome(outlet, limits, windows, retention, echo_first or EchoFirst())
        self._launcher = ProcessLauncher(
            spawner=self._spawner,
            limits=limits,
            login_shell=login_shell,
            server_env=server_env,
            open_network=open_network,
            open_bridge=open_bridge,
        )
        self._loop = asyncio.get_running_loop()
        self._entries: dict[str, Starting | Child] = {}
        self._closed: Expiry[str] = Expiry(window=limits.closed_process_seconds)
        self._alarm = Alarm(self._closed.next_deadline, self._expire)
        # Called when a process has ended.
        self.on_exit: Callable[[Child], None] | None = None
        # Called when a process begins whose screen is wanted from the first output on.
        self.on_screen: Callable[[Child], None] | None = None
        # Called before the first event of a process; without parameters for one that was restored.
        self.on_start: Callable[[Child, process.StartParams | None], None] | None = None
        # How many seconds an ended process can be read, if the client asked for longer than usual.
        self.retained_seconds: float | None = None

    def __len__(self) -> int:
        return len(self._entries)

    # process/start

    def start(
        self,
        params: process.StartParams,
        terms: StartTerms = NO_TERMS,
        answer: asyncio.Future[process.StartResult] | None = None,
    ) -> asyncio.Future[process.StartResult]:
        """Start a program; the future has the answer, and the first event follows the answer.

        A handler has to return this very future to its Peer, see `_begin_after_answer`; it may
        bring one along as *answer*. Checks come in the reference's order.
        """
        checked = self._launcher.check(params, terms)
        if params.process_id in self._entries:
            raise InvalidRequest(f"process {params.process_id} already exists")
        child = self._new_durable_child(params) if params.durable else self._new_child(params)
        starting = Starting(params, child)
        child.on_exit = self.on_exit
        spawned = self._launcher.spawn(checked, child, is_wanted=lambda: not starting.is_cancelled)
        child.on_reaped = terms.release
        child.terms = msgspec.structs.replace(terms, release=None)
        self._entries[params.process_id] = starting
        answer = answer or self._loop.create_future()
        # This is not a task of the request: a start whose client has vanished still takes its
        # place in the session, where the resumed client finds it.
        spawned.add_done_callback(partial(self._started, starting, child, answer))
        return answer

    def _new_child(self, params: process.StartParams) -> Child:
        return Child(params, self._home, self._spawner, self._retain_closed)

    def _new_durable_child(self, params: process.StartParams) -> Child:
        if self._durable is None:
            raise InvalidRequest(_NO_STATE)
        return self._durable.new_child(params, self._home, self._retain_closed)

    async def restore(self, jobs: Iterable[LeftJob]) -> None:
        """Go on with the durable processes that an earlier server has left."""
        assert self._durable is not None
        for left in jobs:
            try:
                child = self._durable.restored(left, self._home, self._retain_closed)
            except (OSError, InternalError) as exc:
                logger.error("process %.64r could not be restored: %s", left.saved.process_id, exc)
                continue
            child.on_exit = self.on_exit
            if self.on_exit is not None and child.state != "running" and not child.was_over:
                # It has ended while no server ran.
                self.on_exit(child)
            self._entries[child.process_id] = child
            self._durable.add(child)
            if child.wants_screen and child.state != "closed" and self.on_screen is not None:
                self.on_screen(child)
            if child.state == "closed":
                self._retain_closed(child)
            elif self.on_start is not None:
                self.on_start(child, None)

    def _started(
        self,
        starting: Starting,
        child: Child,
        answer: asyncio.Future[process.StartResult],
        spawned: asyncio.Future[Spawned],
    ) -> None:
        process_id = child.process_id
        error = spawned.exception()
        if error is not None:
            child.tell_reaped()
        if error is None:
            child.adopt(spawned.result())
            if starting.is_cancelled:
                child.abandon()
                error = InvalidRequest(f"process {process_id} start was cancelled")
        if error is not None:
            child.close_network()
            if child.denials is not None:
                child.denials.close()
        if error is None:
            if starting.params.flow_window is not None:
                child.grant(starting.params.flow_window)
            self._entries[process_id] = child
            if self._durable is not None and child.is_durable:
                self._durable.add(child)
            if starting.params.screen and self.on_screen is not None:
                self.on_screen(child)
            if self.on_start is not None:
                self.on_start(child, starting.params)
            self._begin_after_answer(child)
        elif not starting.is_cancelled:
            del self._entries[process_id]
        if answer.done():
            return
        if error is None:
            answer.set_result(start_result(child))
        else:
            answer.set_exception(error)

    def _begin_after_answer(self, child: Child) -> None:
        """Let the events of *child* flow once the answer to its start has been sent.

        The answer is set in this turn of the event loop. Peer promises to send the answer of a
        handler that returned a future in the next turn after the future is done (rpc/peer.py
        says so, too); events begin in the turn after that one.
        """
        self._loop.call_soon(self._loop.call_soon, child.begin_events)

    # process/read

    def read(
        self, params: process.ReadParams
    ) -> process.ReadResult | Awaitable[process.ReadResult]:
        """Retained output after a cursor; waits for news if there is none."""
        child = self._readable(params.process_id)
        cursor = params.after_seq or 0
        if not params.wait_ms or has_news(child, cursor):
            return read_result(child, cursor, params.max_bytes)
        return self._read_later(child, cursor, params.max_bytes, params.wait_ms / 1000)

    async def _read_later(
        self, child: Child, cursor: int, max_bytes: int | None, wait: float
    ) -> process.ReadResult:
        try:
            async with asyncio.timeout(min(wait, _LONGEST_WAIT)):
                while not has_news(child, cursor):
                    await child.changed()
        except TimeoutError:
            pass
        return read_result(child, cursor, max_bytes)

    def find(self, process_id: str) -> Child:
        """The process with this id, once its program runs. Raises InvalidRequest."""
        return self._readable(process_id)

    def _readable(self, process_id: str) -> Child:
        entry = self._entries.get(process_id)
        if entry is None:
            raise InvalidRequest(f"unknown process id {process_id}")
        if isinstance(entry, Starting):
            raise InvalidRequest(f"process id {process_id} is starting")
        return entry

    def get(self, process_id: str) -> Child | None:
        """The process of that id, unless it is still being started."""
        entry = self._entries.get(process_id)
        return entry if isinstance(entry, Child) else None

    def children(self) -> tuple[Child, ...]:
        """All processes that were started and are not forgotten."""
        return tuple(entry for entry in self._entries.values() if isinstance(entry, Child))

    # process/write, process/closeStdin

    def write(
        self, params: process.WriteParams, check: Callable[[], None] | None = None
    ) -> process.WriteResult | Awaitable[process.WriteResult]:
        """Queue bytes for stdin; wait while the queue is full.

        *check* raises if the writer, who is not this session, may not write.
        """
        write_id = params.write_id if type(params.write_id) is str else None
        if write_id == "":
            raise InvalidParams("writeId must not be empty")
        child = self._entries.get(params.process_id)
        if child is None:
            return process.WriteResult("unknownProcess")
        if isinstance(child, Starting):
            return process.WriteResult("starting")
        stdin, write_ids = child.stdin, child.write_ids
        if stdin is None:
            return process.WriteResult("stdinClosed")
        # This comes before the question whether stdin is closed: a repeated write was accepted in
        # time.
        if write_id in write_ids.known:
            return _ACCEPTED
        if stdin.is_closing:
            return process.WriteResult("stdinClosed")
        if check is not None:
            check()
        elif child.guard is not None:
            child.guard.check_owner_input()
        if child.is_terminated:
            raise InternalError("failed to write to process stdin")
        if child.waiting_writes and write_id in child.waiting_writes:
            # The same write comes again while the first one still waits for room: it is done once.
            return self._write_later(asyncio.shield(child.waiting_writes[write_id]))
        data = params.chunk.data
        if child.input_filter is not None:
            data = child.input_filter(data)
        child.input_bytes += len(data)
        accepted = child.accept_input(data, write_id) if data or not params.chunk.data else None
        if accepted is not None:
            if write_id is not None:
                child.waiting_writes[write_id] = accepted
            # This is a callback, not code after the wait, because the waiting request may be
            # cancelled.
            accepted.add_done_callback(partial(_remember, child, write_id))
            return self._write_later(accepted)
        if write_id is not None:
            write_ids.add(write_id)
        return _ACCEPTED

    def _write_later(self, accepted: asyncio.Future[None]) -> asyncio.Future[process.WriteResult]:
        """The answer once the write is accepted; a cancelled request takes its write back.

        This is no coroutine: one that has not begun when the connection is lost would not take its
        write back, and a write that came before it, and comes again, would be accepted after it.
        """
        answer: asyncio.Future[process.WriteResult] = accepted.get_loop().create_future()
        answer.add_done_callback(lambda _: accepted.cancel())
        accepted.add_done_callback(partial(_answer_write, answer))
        return answer

    def close_stdin(
        self, params: process.CloseStdinParams, *, is_owner: bool = True
    ) -> process.WriteResult:
        """End the child's input after the queued bytes; repeating it does no harm."""
        child = self._entries.get(params.process_id)
        if child is None:
            return process.WriteResult("unknownProcess")
        if isinstance(child, Starting):
            return process.WriteResult("starting")
        if child.stdin is None:
            return process.WriteResult("stdinClosed")
        if is_owner and child.guard is not None:
            child.guard.check_owner_input()
        child.stdin.end()
        return _ACCEPTED

    # process/ack

    def acknowledge(self, params: process.AckParams) -> None:
        """Output was taken, or (no number) will not be acknowledged; unknown ids are ignored."""
        child = self._entries.get(params.process_id)
        if not isinstance(child, Child):
            return
        if params.seq is None:
            child.release()
        else:
            child.acknowledge(params.seq)
            self._forget_acknowledged(child)

    def _forget_acknowledged(self, child: Child) -> None:
        """Free what the client of an ended process has taken, unless it may ask for it later.

        It may ask what a terminal shows: the model is made from this output.
        """
        if child.state == "closed" and self.retained_seconds is None and not child.is_tty:
            child.log.forget_acknowledged()

    def resume_windows(self, taken: Mapping[str, int]) -> None:
        """A client resumes the processes in *taken* and gives up the windows of all others."""
        for process_id, child in self._entries.items():
            if isinstance(child, Child) and child.log.window is not None:
                if process_id in taken:
                    child.acknowledge(taken[process_id])
                else:
                    child.release()

    def release_durable(self) -> None:
        """No client has come back: durable processes wait for their readers no longer."""
        for child in self.durable_children():
            if child.log.window is not None:
                child.release()

    # The rest.

    def signal(self, process_id: str, signum: int, by: EndedBy) -> None:
        """Signal the process's group; does nothing for an unknown or ended process."""
        child = self._entries.get(process_id)
        if isinstance(child, Child):
            child.signal(signum, by)
            if child.denials is not None:
                child.denials.interrupt(child.spawner.after_signals)

    def terminate(self, params: process.TerminateParams, by: EndedBy) -> process.TerminateResult:
        entry = self._entries.get(params.process_id)
        if entry is None:
            return process.TerminateResult(False)
        if isinstance(entry, Starting):
            entry.is_cancelled = True
            del self._entries[params.process_id]
            return process.TerminateResult(True)
        return process.TerminateResult(entry.terminate(tree=params.tree, by=by))

    def resize(self, params: process.ResizeParams) -> None:
        child = self._readable(params.process_id)
        if not child.is_tty:
            raise InvalidRequest(f"process {params.process_id} has no terminal")
        if child.guard is not None:
            child.guard.check_owner_size(params.rows, params.cols)
        child.resize(params.rows, params.cols)

    # process/grant

    def grant_denied(self, params: denials.GrantParams) -> denials.GrantResult:
        """Allow what was refused: now, while the process runs, or to the whole session."""
        watch = self._watch_of(params.process_id)
        result, kind, path = watch.grant(params.grant, params.scope)
        if params.scope == "session":
            self._launcher.granted[path] = kind
        return result

    async def restart(self, params: denials.GrantParams, begin: Begin) -> denials.GrantResult:
        """Grant, end the process if it runs, and start it again with the same id, as a new one.

        *begin* starts it: it has the terms of the first start, and those of the client that asks.
        """
        child = self._readable(params.process_id)
        watch = self._watch_of(params.process_id)
        _, kind, path = watch.grant(params.grant, "session")
        child.terminate(tree=True)
        while child.state != "closed":
            await child.changed()
        if self._entries.get(child.process_id) is not child or child.params is None:
            raise InvalidRequest(f"process {params.process_id} cannot be started again")
        self._closed.discard(child.process_id)
        del self._entries[child.process_id]
        child.discard()
        before = dict(self._launcher.granted)
        self._launcher.granted[path] = kind
        try:
            started = begin(child.params, child.terms)
        finally:
            if params.scope != "session":
                self._launcher.granted = before
        return denials.GrantResult(0, False, (await started).process_id)

    def refused_host(self, event: network.PolicyDecisionEvent) -> None:
        """The proxy of a process has decided; a refusal is one of its denials."""
        watch = self._watch_over(event.process_id)
        if event.decision != "allow" and watch is not None:
            watch.refused_host(event.protocol, event.host, event.port, event.reason)

    def ask_host(
        self, process_id: str, protocol: str, host: str, port: int
    ) -> asyncio.Future[bool] | None:
        """Whether a host that no rule of a process allows is granted; None if it will not be."""
        if self._launcher.is_host_granted(host, port):
            granted: asyncio.Future[bool] = self._loop.create_future()
            granted.set_result(True)
            return granted
        watch = self._watch_over(process_id)
        return None if watch is None else watch.ask_host(protocol, host, port)

    def _watch_over(self, process_id: str) -> DenialWatch | None:
        """The watch over a process, which may be starting."""
        entry = self._entries.get(process_id)
        child = entry.child if isinstance(entry, Starting) else entry
        return None if child is None else child.denials

    def _watch_of(self, process_id: str) -> DenialWatch:
        watch = self._readable(process_id).denials
        if watch is None:
            raise InvalidRequest(f"process {process_id} was started without `denials`")
        return watch

    def list(self) -> process.ListResult:
        return process.ListResult([_described(entry) for entry in self._entries.values()])

    def close(self) -> None:
        """Kill and forget everything."""
        self._alarm.cancel()
        self._launcher.close()
        entries, self._entries = self._entries, {}
        for entry in entries.values():
            if isinstance(entry, Child):
                give_back_memory(entry.log.retained_cost)
                entry.abandon()
                self._forget_durable(entry)
            else:
                entry.is_cancelled = True
        # Processes that were left in the background by others, which are forgotten already.
        self._spawner.end_all()
        if self._durable is not None:
            self._durable.end_all()

    def leave_durable(self) -> None:
        """This server ends: leave the durable processes to their keeper."""
        for process_id, entry in tuple(self._entries.items()):
            if isinstance(entry, Child) and entry.is_durable:
                entry.let_go()
                del self._entries[process_id]
        self._durable = None

    def running_children(self) -> tuple[Child, ...]:
        """The processes whose exit was not reported."""
        entries = self._entries.values()
        return tuple(
            entry for entry in entries if isinstance(entry, Child) and entry.state == "running"
        )

    def started_children(self) -> tuple[Child, ...]:
        """The processes that were started, also those that have ended and are remembered."""
        return tuple(entry for entry in self._entries.values() if isinstance(entry, Child))

    def durable_children(self) -> tuple[DurableChild, ...]:
        return () if self._durable is None else tuple(self._durable)

    def prune(self, is_wanted: Callable[[DurableChild], bool]) -> int:
        """Forget the durable processes that have ended and that are wanted to go."""
        gone = [
            child
            for child in self.durable_children()
            if child.state == "closed" and is_wanted(child)
        ]
        for child in gone:
            self._closed.discard(child.process_id)
            del self._entries[child.process_id]
            child.discard()
            self._forget_durable(child)
        return len(gone)

    def _forget_durable(self, child: Child) -> None:
        if self._durable is not None and child.is_durable:
            self._durable.discard(child)

    def _retain_closed(self, child: Child) -> None:
        if self._entries.get(child.process_id) is child:
            over = child.over_since
            window = self._closed_window() if over is None else self._durable_window(over)
            self._closed.add(child.process_id, now=self._loop.time(), window=window)
            self._alarm.set()
            self._forget_acknowledged(child)

    def _closed_window(self) -> float | None:
        usual, asked = self._limits.closed_process_seconds, self.retained_seconds
        if asked is None or len(self._closed) >= self._limits.retained_processes:
            return None
        return max(usual, asked)

    def _durable_window(self, over_since: int) -> float:
        """How long a durable process is kept; it may have ended long before this server began."""
        age = max(0.0, time.time() - over_since / 1000)
        return max(0.0, self._limits.job_keep_seconds - age)

    def _expire(self, now: float) -> None:
        for process_id in tuple(self._closed.expire(now=now)):
            child = self._entries[process_id]
            assert isinstance(child, Child)
            if not child.log.is_settled and not child.is_durable:
                # Its client may come back and read it; otherwise the session ends and takes it
                # along.
                self._closed.add(process_id, now=now)
            else:
                del self._entries[process_id]
                give_back_memory(child.log.retained_cost)
                child.discard()
                self._forget_durable(child)


def _answer_write(
    answer: asyncio.Future[process.WriteResult], accepted: asyncio.Future[None]
) -> None:
    if answer.done():
        return
    if accepted.cancelled():
        answer.cancel()
    elif (error := accepted.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(_ACCEPTED)


def _remember(child: Child, write_id: str | None, accepted: asyncio.Future[None]) -> None:
    if write_id is None:
        return
    del child.waiting_writes[write_id]
    if not accepted.cancelled() and accepted.exception() is None:
        child.write_ids.add(write_id)


def _described(entry: Starting | Child) -> process.ProcessInfo:
    return starting_info(entry.params) if isinstance(entry, Starting) else process_info(entry)


def signal_number(name: str) -> int:
    """The number of `interrupt`, or of a POSIX name such as SIGTERM or TERM."""
    if name == "interrupt":
        return signal.SIGINT
    full = name if name.startswith("SIG") else f"SIG{name}"
    try:
        return signal.Signals[full].value
    except KeyError:
        raise InvalidParams(f"unknown signal `{name}`, expected `interrupt`") from None

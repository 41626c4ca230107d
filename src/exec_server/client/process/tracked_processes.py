"""TrackedProcesses: the processes that a client follows, and those that it wants killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from exec_server.client.connection_link import ConnectionLink
from exec_server.client.process.tracked_process import OnDisconnect, OnGap, TrackedProcess
from exec_server.client.session_link import DISCONNECTED
from exec_server.client.session_token import Cursor
from exec_server.errors import (
    ConnectionClosed,
    ExecServerError,
    InvalidRequest,
    ProcessFailed,
    RpcError,
    SessionLost,
)
from exec_server.limits import Limits
from exec_server.protocol import process
from exec_server.protocol.denials import DeniedEvent
from exec_server.protocol.method import NOTHING
from exec_server.state.event_order import ProcessEvent
from exec_server.state.reconnect import is_retryable

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession

# Why a process that is not durable is lost, although the session goes on.
SERVER_RESTARTED = "the server was restarted"


class TrackedProcesses:
    """Routes events to processes, and recovers them after a lost connection."""

    def __init__(self, session: ClientSession, *, limits: Limits) -> None:
        self._session = session
        self._limits = limits
        self._flow = session.flow
        # The references are weak: a process whose handle was dropped is not followed.
        self.handles: WeakValueDictionary[str, TrackedProcess] = WeakValueDictionary()
        # The same, with the processes that have ended.
        self.known: WeakValueDictionary[str, TrackedProcess] = WeakValueDictionary()
        # Processes that have to be killed, until the server has answered.
        self.orphans: set[str] = set()
        # Those whose end was asked for, and the connection that carries the request.
        self._killing: dict[str, ConnectionLink] = {}
        # Where an earlier client of this session has stopped reading.
        self.earlier: dict[str, Cursor] = {}

    def follow(
        self,
        process_id: str,
        *,
        is_terminal: bool,
        on_disconnect: OnDisconnect,
        on_gap: OnGap,
        after: Cursor | None = None,
        window: int | None = None,
    ) -> TrackedProcess:
        """Begin to follow a process: its events are delivered from now on."""
        if process_id in self.handles or process_id in self.orphans:
            raise InvalidRequest(f"process {process_id} already exists")
        tracked = TrackedProcess(
            process_id,
            is_terminal=is_terminal,
            flow=self._flow,
            limits=self._limits,
            on_disconnect=on_disconnect,
            on_gap=on_gap,
            after=after,
            window=window,
        )
        self.handles[process_id] = self.known[process_id] = tracked
        return tracked

    @property
    def has_living(self) -> bool:
        """True if a process is followed whose end has not come."""
        return bool(self.handles)

    def drop(self, process_id: str) -> None:
        """Stop following a process, which is left alone."""
        self.handles.pop(process_id, None)
        self._flow.drop(process_id)

    # Where readers stand.

    def continue_from(self, cursors: dict[str, Cursor]) -> None:
        """Continue the session of an earlier client, which has read up to *cursors*."""
        self.earlier = dict(cursors)
        if self._limits.flow_window > 0:
            windows = (
                (process_id, min(cursor.stdout, cursor.stderr))
                for process_id, cursor in cursors.items()
                if cursor.has_window
            )
            self._flow.expect(windows, grace=self._limits.recovery_window)

    def cursors(self) -> dict[str, Cursor]:
        """Where another client would continue, for each process that has more to read."""
        cursors = dict(self.earlier)
        for process_id, tracked in self.known.items():
            cursors.pop(process_id, None)
            if tracked.is_started and (taken := tracked.taken) is not None:
                cursors[process_id] = taken
        return cursors

    # Requests.

    async def ensure(self, tracked: TrackedProcess, params: process.StartParams) -> None:
        """Start a program once, even if the answer is lost several times."""
        loop = asyncio.get_running_loop()
        # A closed process is listed only for a while; after that the list proves nothing.
        deadline = loop.time() + self._limits.recovery_window
        while True:
            instance = self._session.server_instance
            try:
                tracked.answered(await self._session.call(process.START, params))
                return
            except ConnectionClosed as exc:
                if not exc.may_have_run:
                    raise
                lost = exc
            try:
                info = await self.find(tracked.process_id)
                if info is not None:
                    tracked.sandbox_type = info.sandbox_type or None
                    tracked.sandbox_rung = info.sandbox_rung or None
                    tracked.is_durable = bool(info.durable)
                    tracked.pid = info.pid
                    await self.catch_up(tracked)
                    return
            except ExecServerError as exc:
                # It can no longer be found out what became of the start.
                kind = SessionLost if isinstance(exc, SessionLost) else ConnectionClosed
                raise kind(f"{lost}; {exc}", may_have_run=True) from exc
            has_changed = self._session.server_instance != instance
            if loop.time() > deadline or (has_changed and not params.durable):
                # Only durable processes are known to the next server, so it proves nothing either.
                raise lost

    async def find(self, process_id: str) -> process.ProcessInfo | None:
        """A process of this session, after its start is complete; None if there is none."""
        while True:
            listed = (await self._session.call(process.LIST, NOTHING, repeat=True)).processes
            info = next((each for each in listed if each.process_id == process_id), None)
            if info is None or info.state != "starting":
                return info
            await asyncio.sleep(self._limits.recovery_pause)

    async def catch_up(self, tracked: TrackedProcess) -> None:
        """Fetch the output of a process after its cursor."""
        tracked.expect_answer()
        await self._fetch(tracked, partial(self._session.call, process.READ, repeat=True))
        self._forget_if_settled(tracked)

    async def _fetch(
        self,
        tracked: TrackedProcess,
        read: Callable[[process.ReadParams], Awaitable[process.ReadResult]],
    ) -> None:
        """Read what comes after the cursor. With a window it is read in pages, so that even a short
        connection makes progress; otherwise at once, because some of it may be missing."""
        process_id = tracked.process_id
        while (page := tracked.page_bytes) is not None:
            answer = await read(process.ReadParams(process_id, tracked.cursor, page, 0))
            if tracked.recover_page(answer):
                return
        has_more = True
        while has_more:
            answer = await read(process.ReadParams(process_id, tracked.cursor, None, 0))
            tracked.recover(answer)
            # A durable process may have kept more than fits into one answer.
            has_more = bool(answer.has_more)

    def abandon(self, process_id: str, link: ConnectionLink | None = None) -> None:
        """Stop following a process and have it killed over this connection or the next one.

        *link* is a connection that is not in use yet. The request is sent over it at once, because
        the caller may disconnect as soon as it is told that the process has failed.
        """
        self.drop(process_id)
        self._flow.settle(process_id, None)
        self.orphans.add(process_id)
        link = link or self._session.connection
        if link is not None:
            self._kill(link, process_id)

    def _kill(self, link: ConnectionLink, process_id: str) -> None:
        self._killing[process_id] = link
        params = process.TerminateParams(process_id, tree=True)
        answer = link.send(process.TERMINATE, params)
        answer.add_done_callback(partial(self._killed, process_id))

    def _killed(self, process_id: str, answer: asyncio.Future[Any]) -> None:
        self._killing.pop(process_id, None)
        # A request that is lost is repeated over the next connection.
        if not answer.cancelled() and not isinstance(answer.exception(), ConnectionClosed):
            self.orphans.discard(process_id)

    # The reports of the session.

    def event_received(self, event: ProcessEvent) -> None:
        tracked = self.handles.get(event.process_id)
        if tracked is not None:
            tracked.receive(event)
            self._forget_if_settled(tracked)

    def denied(self, event: DeniedEvent) -> None:
        tracked = self.known.get(event.process_id)
        if tracked is not None and tracked.on_denied is not None:
            tracked.on_denied(event.denial)

    def _forget_if_settled(self, tracked: TrackedProcess) -> None:
        if tracked.is_settled:
            self.drop(tracked.process_id)

    def connected(self, link: ConnectionLink) -> None:
        for process_id in tuple(self.orphans):
            if self._killing.get(process_id) is not link:
                self._kill(link, process_id)
        self._flow.connected()

    def connection_lost(self) -> None:
        for tracked in tuple(self.handles.values()):
            if tracked.on_disconnect == "hold":
                tracked.disconnected()
            elif tracked.is_started:
                self.drop(tracked.process_id)
                tracked.fail(ConnectionClosed(DISCONNECTED))

    async def restore(self, link: ConnectionLink, *, is_restarted: bool) -> None:
        """Catch up with all processes over a connection that is not in use yet.

        If the server *is_restarted*, the session has come over with its durable processes alone.
        """
        handles = [tracked for tracked in self.handles.values() if tracked.is_started]
        for tracked in handles:
            tracked.expect_answer()
        # The number of calls in flight is bounded.
        width = self._limits.recovery_reads
        for start in range(0, len(handles), width):
            batch = handles[start : start + width]
            reads = await asyncio.gather(
                *(self._restore(link, tracked, is_restarted) for tracked in batch),
                return_exceptions=True,
            )
            for error in reads:
                if error is not None:
                    raise error

    async def _restore(
        self, link: ConnectionLink, tracked: TrackedProcess, is_restarted: bool
    ) -> None:
        """Fetch what a process has written meanwhile; if that is not possible, it alone fails."""
        process_id = tracked.process_id
        seconds = self._session.options.initialize_timeout
        try:
            await self._fetch(tracked, partial(link.call, process.READ, seconds=seconds))
        except (RpcError, ProcessFailed) as exc:
            if is_retryable(exc):
                raise
            if is_restarted and isinstance(exc, InvalidRequest):
                self.drop(process_id)
                tracked.lose(SERVER_RESTARTED)
                return
            # The reference does the same: a process that cannot be followed is killed.
            self.abandon(process_id, link)
            tracked.fail(ProcessFailed(f"failed to recover process {process_id}: {exc}"))
        self._forget_if_settled(tracked)

    def session_lost(self, error: ConnectionClosed) -> None:
        handles = tuple(self.handles.values())
        self.handles.clear()
        self._flow.session_lost()
        for tracked in handles:
            tracked.fail(type(error)(str(error)))

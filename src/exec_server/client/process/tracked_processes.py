"""The processes that a client follows, and those it wants to be rid of."""

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
from exec_server.protocol.method import NOTHING
from exec_server.state.event_order import ProcessEvent
from exec_server.state.reconnect import is_retryable

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession


class TrackedProcesses:
    """Routes events to handles, and brings handles over a lost connection."""

    def __init__(self, session: ClientSession, *, limits: Limits) -> None:
        self._session = session
        self._limits = limits
        self._flow = session.flow
        # Weak: nobody follows a process whose handle was dropped.
        self.handles: WeakValueDictionary[str, TrackedProcess] = WeakValueDictionary()
        # Those of ended processes, too, as long as somebody holds them.
        self.known: WeakValueDictionary[str, TrackedProcess] = WeakValueDictionary()
        # Processes to be killed, until the server has answered that.
        self.orphans: set[str] = set()
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
        """A new handle, to which the events of its process go from now on."""
        if process_id in self.handles or process_id in self.orphans:
            raise InvalidRequest(f"process {process_id} already exists")
        handle = TrackedProcess(
            process_id,
            is_terminal=is_terminal,
            flow=self._flow,
            limits=self._limits,
            on_disconnect=on_disconnect,
            on_gap=on_gap,
            after=after,
            window=window,
        )
        self.handles[process_id] = self.known[process_id] = handle
        return handle

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
        for process_id, handle in self.known.items():
            cursors.pop(process_id, None)
            if handle.is_started and (taken := handle.taken) is not None:
                cursors[process_id] = taken
        return cursors

    # What is asked of the server.

    async def ensure(self, handle: TrackedProcess, params: process.StartParams) -> None:
        """Start a program once, however often the answer is lost."""
        loop = asyncio.get_running_loop()
        # A process that has closed is listed for a while only; the id settles nothing after that.
        deadline = loop.time() + self._limits.recovery_window
        while True:
            try:
                handle.confined(await self._session.call(process.START, params))
                return
            except ConnectionClosed as exc:
                if not exc.may_have_run:
                    raise
                lost = exc
            try:
                if await self.find(handle.process_id) is not None:
                    await self.catch_up(handle)
                    return
            except ExecServerError as exc:
                # Nobody can tell any more what became of the start.
                kind = SessionLost if isinstance(exc, SessionLost) else ConnectionClosed
                raise kind(f"{lost}; {exc}", may_have_run=True) from exc
            if loop.time() > deadline:
                raise lost

    async def find(self, process_id: str) -> process.ProcessInfo | None:
        """A process of this session, once it is no longer just starting."""
        while True:
            listed = (await self._session.call(process.LIST, NOTHING, repeat=True)).processes
            info = next((each for each in listed if each.process_id == process_id), None)
            if info is None or info.state != "starting":
                return info
            await asyncio.sleep(self._limits.recovery_pause)

    async def catch_up(self, handle: TrackedProcess) -> None:
        """Fetch what a process has said since the handle's cursor."""
        handle.expect_answer()
        await self._fetch(handle, partial(self._session.call, process.READ, repeat=True))
        self._forget_if_settled(handle)

    async def _fetch(
        self,
        handle: TrackedProcess,
        read: Callable[[process.ReadParams], Awaitable[process.ReadResult]],
    ) -> None:
        """Read what lies after the handle's cursor: page by page, so that a connection that does
        not last brings it forward, or all at once where something may be missing."""
        process_id = handle.process_id
        while (page := handle.page_bytes) is not None:
            answer = await read(process.ReadParams(process_id, handle.cursor, page, 0))
            if handle.recover_page(answer):
                return
        handle.recover(await read(process.ReadParams(process_id, handle.cursor, None, 0)))

    def abandon(self, process_id: str) -> None:
        """Stop following a process and have it killed over this connection or the next one."""
        self.drop(process_id)
        self._flow.settle(process_id, None)
        self.orphans.add(process_id)
        link = self._session.connection
        if link is not None:
            self._kill(link, process_id)

    def _kill(self, link: ConnectionLink, process_id: str) -> None:
        answer = link.send(process.TERMINATE, process.TerminateParams(process_id))
        answer.add_done_callback(partial(self._killed, process_id))

    def _killed(self, process_id: str, answer: asyncio.Future[Any]) -> None:
        # A lost one is sent again over the next connection.
        if not answer.cancelled() and not isinstance(answer.exception(), ConnectionClosed):
            self.orphans.discard(process_id)

    # What becomes of the connection.

    def event_received(self, event: ProcessEvent) -> None:
        handle = self.handles.get(event.process_id)
        if handle is not None:
            handle.receive(event)
            self._forget_if_settled(handle)

    def _forget_if_settled(self, handle: TrackedProcess) -> None:
        if handle.is_settled:
            self.drop(handle.process_id)

    def connected(self, link: ConnectionLink) -> None:
        for process_id in tuple(self.orphans):
            self._kill(link, process_id)
        self._flow.connected()

    def connection_lost(self) -> None:
        for handle in tuple(self.handles.values()):
            if handle.on_disconnect == "hold":
                handle.disconnected()
            elif handle.is_started:
                self.drop(handle.process_id)
                handle.fail(ConnectionClosed(DISCONNECTED))

    async def restore(self, link: ConnectionLink) -> None:
        """Catch up with all processes over a connection that nobody else uses yet."""
        handles = [handle for handle in self.handles.values() if handle.is_started]
        for handle in handles:
            handle.expect_answer()
        # Not all at once: there is a bound to the calls in flight.
        width = self._limits.recovery_reads
        for start in range(0, len(handles), width):
            batch = handles[start : start + width]
            reads = await asyncio.gather(
                *(self._restore(link, handle) for handle in batch), return_exceptions=True
            )
            for error in reads:
                if error is not None:
                    raise error

    async def _restore(self, link: ConnectionLink, handle: TrackedProcess) -> None:
        """Fetch what a process has said meanwhile; what cannot be had fails it alone."""
        process_id = handle.process_id
        seconds = self._session.options.initialize_timeout
        try:
            await self._fetch(handle, partial(link.call, process.READ, seconds=seconds))
        except (RpcError, ProcessFailed) as exc:
            if is_retryable(exc):
                raise
            # Like the reference, which does not leave behind what nobody can follow.
            self.abandon(process_id)
            handle.fail(ProcessFailed(f"failed to recover process {process_id}: {exc}"))
        self._forget_if_settled(handle)

    def session_lost(self, error: ConnectionClosed) -> None:
        handles = tuple(self.handles.values())
        self.handles.clear()
        self._flow.session_lost()
        for handle in handles:
            handle.fail(type(error)(str(error)))

"""fs/watch: the watches of one session, which outlive its connections."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.errors import InvalidRequest
from exec_server.files.agents.agent_process import Agent, AgentOrder, StartedAgent
from exec_server.files.operations.oserrors import os_error, rpc_error
from exec_server.limits import Limits
from exec_server.protocol.file_watch import (
    FileChange,
    FilesChangedEvent,
    WatchParams,
    WatchResult,
)

if TYPE_CHECKING:
    from exec_server.files.file_service import FileService, FileTerms


class _AgentChanges(msgspec.Struct):
    """A line of an agent."""

    changes: list[FileChange] = []
    rescan: list[str] = []
    ready: bool = False
    failed: str | None = None
    errno: int = 0
    ended: str | UnsetType = UNSET


_decode = msgspec.json.Decoder(_AgentChanges).decode


class Resumable(Protocol):
    """What waits until the client has caught up."""

    def resume(self) -> None: ...


class Watches:
    """The watches of a session; *push* sends an event to the attached client, if there is one."""

    def __init__(
        self,
        service: FileService,
        *,
        push: Callable[[FilesChangedEvent], None],
        park: Callable[[Resumable], bool],
    ) -> None:
        self._service = service
        self.limits: Limits = service.limits
        self.push = push
        # Keeps a watch until the client has caught up, and returns True if it is behind.
        self.park = park
        self._watches: dict[str, _SessionWatch] = {}

    async def start(self, params: WatchParams, terms: FileTerms) -> WatchResult:
        """Start a watch, or go on with one. Raises RpcError."""
        request = _request(params, self.limits)
        # It is made in any case: a request that goes on with a watch is judged like the first.
        order = self._service.agent_order("watch", request, params.sandbox, terms)
        found = self._watches.get(params.watch_id)
        if found is not None:
            return await found.resume_after(params, order)
        if len(self._watches) >= self.limits.session_watches:
            raise InvalidRequest(
                f"at most {self.limits.session_watches} watches may exist per session"
            )
        found = self._watches[params.watch_id] = _SessionWatch(self, params, order)
        try:
            await found.begin(await self._service.start_agent(order))
        except BaseException:
            found.close()
            self.forget(found)
            raise
        return found.started(params.after)

    def drop(self, watch_id: str) -> None:
        """End a watch, if there is one."""
        found = self._watches.pop(watch_id, None)
        if found is not None:
            found.close()

    def forget(self, watch: _SessionWatch) -> None:
        if self._watches.get(watch.id) is watch:
            del self._watches[watch.id]

    def detach(self) -> None:
        """The connection is lost: events are kept until the client asks for them."""
        for each in self._watches.values():
            each.is_attached = False

    def close(self) -> None:
        for watch_id in tuple(self._watches):
            self.drop(watch_id)


class _SessionWatch:
    """One watch, with its last events."""

    def __init__(self, owner: Watches, params: WatchParams, order: AgentOrder) -> None:
        self.id = params.watch_id
        self.is_attached = True
        self._owner = owner
        self._root = params.path.text
        self._order = order
        self._agent: Agent | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._seq = 0
        self._kept: deque[FilesChangedEvent] = deque()
        self._kept_changes = 0
        self._is_closed = False

    async def begin(self, started: StartedAgent) -> None:
        """Wait until everything is watched. Raises RpcError."""
        self._agent = Agent(started, on_line=self._take, on_end=self._fail)
        if self._is_closed:
            self._agent.close()
        await asyncio.shield(self._ready)

    def started(self, after: int | None) -> WatchResult:
        if after is not None:
            # The client knows another watch by this name, of a server that has ended.
            self._seq = after
            self._report(_AgentChanges(rescan=[self._root]))
        return WatchResult(self._seq, resumed=False)

    async def resume_after(self, params: WatchParams, order: AgentOrder) -> WatchResult:
        """Send what came after the last event that the client has."""
        if order != self._order:
            raise InvalidRequest(f"watch `{self.id}` already exists, for something else")
        await asyncio.shield(self._ready)
        self.is_attached = True
        after = self._seq if params.after is None else min(params.after, self._seq)
        first = self._kept[0].seq if self._kept else self._seq + 1
        if after + 1 < first:
            self._owner.push(FilesChangedEvent(self.id, first - 1, rescan=[self._root]))
        for event in tuple(self._kept):
            if event.seq > after:
                self._owner.push(event)
        return WatchResult(self._seq, resumed=True)

    def _take(self, line: bytes) -> None:
        try:
            said = _decode(line)
        except msgspec.MsgspecError:
            self._fail("it printed nonsense")
            return
        if said.failed is not None:
            self._refuse(said)
        elif said.ready:
            if not self._ready.done():
                self._ready.set_result(None)
        else:
            self._report(said)

    def _refuse(self, said: _AgentChanges) -> None:
        if not self._ready.done():
            error = (
                rpc_error(os_error(said.errno)) if said.errno else InvalidRequest(said.failed or "")
            )
            self._ready.set_exception(error)

    def _report(self, said: _AgentChanges) -> None:
        self._seq += 1
        event = FilesChangedEvent(self.id, self._seq, said.changes, said.rescan, said.ended)
        self._keep(event)
        if self.is_attached:
            self._owner.push(event)
        if isinstance(said.ended, str):
            self.close()
            if self.is_attached:
                self._owner.forget(self)
        elif self.is_attached and self._agent is not None and self._owner.park(self):
            self._agent.pause()

    def _keep(self, event: FilesChangedEvent) -> None:
        self._kept.append(event)
        self._kept_changes += 1 + len(event.changes)
        while self._kept_changes > self._owner.limits.watch_kept_changes and len(self._kept) > 1:
            self._kept_changes -= 1 + len(self._kept.popleft().changes)

    def resume(self) -> None:
        if self._agent is not None:
            self._agent.resume()

    def _fail(self, text: str) -> None:
        if not self._ready.done():
            self._ready.set_exception(InvalidRequest(f"the watch failed: {text}"))
        elif not self._is_closed:
            self._report(_AgentChanges(ended=f"the watch failed: {text}"))

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if not self._ready.done():
            self._ready.set_exception(InvalidRequest("the watch was ended"))
        # It may be that no request waits for it.
        self._ready.exception()
        if self._agent is not None:
            self._agent.close()


def _request(params: WatchParams, limits: Limits) -> bytes:
    request = {
        "path": os.fsdecode(params.path.native),
        "recursive": params.recursive,
        "ignore": params.ignore,
        "mostDirectories": limits.watch_directories,
    }
    return json.dumps(request).encode() + b"\n"

"""fs/search: the searches of one connection, which end with it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.errors import InvalidRequest
from exec_server.files.agents.agent_process import Agent, StartedAgent
from exec_server.files.agents.match_batches import AgentFound
from exec_server.files.agents.ripgrep_output import ripgrep_options
from exec_server.files.agents.ripgrep_run import RipgrepRun
from exec_server.limits import Limits
from exec_server.protocol.file_search import (
    FileHits,
    SearchEnd,
    SearchFoundEvent,
    SearchParams,
    as_matches,
    packed,
)
from exec_server.protocol.method import NOTHING, Nothing
from exec_server.sandbox.bubblewrap import find

if TYPE_CHECKING:
    from exec_server.files.file_service import FileService, FileTerms

Notify = Callable[[SearchFoundEvent], None]


_decode = msgspec.json.Decoder(AgentFound).decode


class Searches:
    """The searches of a connection; *notify* sends their results."""

    def __init__(self, service: FileService, notify: Notify) -> None:
        self._service = service
        self._limits: Limits = service.limits
        self._notify = notify
        self._running: dict[str, _Search] = {}
        self._is_paused = False

    def start(self, params: SearchParams, terms: FileTerms) -> Awaitable[Nothing]:
        """Start a search. Raises RpcError."""
        # A path of another platform is refused here.
        request = _request(params, self._limits)
        # Another search with the same name gives way.
        self.cancel(params.search_id)
        if len(self._running) >= self._limits.searches:
            raise InvalidRequest(f"at most {self._limits.searches} searches may run per connection")
        found = self._running[params.search_id] = _Search(params, self)
        return self._start(found, params, terms, request)

    async def _start(
        self, found: _Search, params: SearchParams, terms: FileTerms, request: dict[str, Any]
    ) -> Nothing:
        rg = _ripgrep_command(request) if terms.owner is None else ()
        try:
            order = self._service.agent_order("search", b"", params.sandbox, terms)
            if rg:
                order = order._replace(program=rg)
            else:
                order = order._replace(request=json.dumps(request).encode() + b"\n")
            started = await self._service.start_agent(order)
        except BaseException:
            self._running.pop(params.search_id, None)
            raise
        agent = found.ripgrep(started, request) if rg else found.agent(started)
        if self._running.get(params.search_id) is not found:
            agent.close()
            return NOTHING
        seconds = self._limits.search_seconds
        if params.max_seconds is not None:
            seconds = min(max(params.max_seconds, 0.0), seconds)
        found.run(agent, seconds, is_paused=self._is_paused)
        return NOTHING

    def cancel(self, search_id: str) -> None:
        """End a search, if it still runs."""
        found = self._running.get(search_id)
        if found is not None:
            found.end(SearchEnd("cancelled"))

    def tell(self, search: _Search, found: list[FileHits], end: SearchEnd | UnsetType) -> None:
        """Send results; with *end* the search is forgotten."""
        if self._running.get(search.id) is not search:
            return
        if isinstance(end, SearchEnd):
            del self._running[search.id]
        if search.is_packed and found:
            event = SearchFoundEvent(search.id, [], packed(found), end=end)
        else:
            event = SearchFoundEvent(search.id, as_matches(found), end=end)
        self._notify(event)

    def writing_paused(self) -> None:
        self._is_paused = True
        for each in self._running.values():
            each.pause()

    def writing_resumed(self) -> None:
        self._is_paused = False
        for each in tuple(self._running.values()):
            each.resume()

    def close(self) -> None:
        """End all searches; the connection is lost."""
        running, self._running = self._running, {}
        for each in running.values():
            each.close()


class _Search:
    """One search, from its request to its last result."""

    def __init__(self, params: SearchParams, owner: Searches) -> None:
        self.id = params.search_id
        self.is_packed = params.packed
        self._owner = owner
        self._agent: Agent | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._count = 0

    def agent(self, started: StartedAgent) -> Agent:
        """Take the results of an agent."""
        return Agent(started, on_line=self.take, on_end=self.fail)

    def ripgrep(self, started: StartedAgent, request: dict[str, Any]) -> Agent:
        """Take the results of rg itself."""
        root, most = os.fsencode(request["path"]), request["maxMatches"]
        return RipgrepRun(started, root, most, on_found=self._found, on_done=self._done)

    def run(self, agent: Agent, seconds: float, *, is_paused: bool) -> None:
        self._agent = agent
        if is_paused:
            agent.pause()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self.end, SearchEnd("time"))

    def take(self, line: bytes) -> None:
        try:
            said = _decode(line)
        except msgspec.MsgspecError:
            self.fail("it printed nonsense")
            return
        if isinstance(said.end, SearchEnd):
            self._done(said.found, said.end)
        else:
            self._found(said.found)

    def _found(self, found: list[FileHits]) -> None:
        self._count += sum(each.match_count for each in found)
        self._owner.tell(self, found, UNSET)

    def _done(self, found: list[FileHits], end: SearchEnd) -> None:
        self.close()
        self._owner.tell(self, found, end)

    def fail(self, text: str) -> None:
        self.end(SearchEnd("failed", f"the search failed: {text}"))

    def end(self, end: SearchEnd) -> None:
        self.close()
        end.matches = self._count
        self._owner.tell(self, [], end)

    def pause(self) -> None:
        if self._agent is not None:
            self._agent.pause()

    def resume(self) -> None:
        if self._agent is not None:
            self._agent.resume()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._agent is not None:
            self._agent.close()


def _request(params: SearchParams, limits: Limits) -> dict[str, Any]:
    most = limits.search_matches
    return {
        "path": os.fsdecode(params.path.native),
        "pattern": params.pattern,
        "mode": params.mode,
        "literal": params.literal,
        "ignoreCase": params.ignore_case,
        "wholeWords": params.whole_words,
        "globs": params.globs,
        "hidden": params.hidden,
        "ignored": params.ignored,
        "before": params.before,
        "after": params.after,
        "maxMatches": most if params.max_matches is None else min(params.max_matches, most),
        "ripgrep": _ripgrep(),
    }


def _ripgrep_command(request: dict[str, Any]) -> tuple[bytes, ...]:
    """The command line that does a search alone; empty if an agent has to do it."""
    if request["mode"] != "content" or not request["ripgrep"]:
        return ()
    words = (*request["ripgrep"], *ripgrep_options(request), "--", request["path"])
    return tuple(map(os.fsencode, words))


def _ripgrep() -> list[str]:
    """Where the system's ripgrep is; in a sandbox it may be invisible.

    The PATH may have directories that sandboxed commands can write, and a search without a sandbox
    runs the program outside of all of them.
    """
    found = find("rg")
    return [os.path.realpath(found)] if found else []

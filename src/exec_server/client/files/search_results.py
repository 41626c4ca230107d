"""`client.fs.search`: the results of a search, as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from exec_server.client.files.file_streams import about_path, native_text
from exec_server.errors import ConnectionClosed, InvalidRequest, ProtocolError, RpcError
from exec_server.limits import MIB
from exec_server.protocol.file_search import (
    CANCEL_SEARCH,
    SEARCH,
    CancelSearchParams,
    SearchEnd,
    SearchFoundEvent,
    SearchParams,
)

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession
    from exec_server.protocol.paths import PathUri


# Hits that were not taken, whatever the server sends; a server finds no more than 100,000 lines.
_MOST_WAITING = 256 * MIB
# What a hit costs besides its texts.
_HIT_COST = 200


class SearchHit(NamedTuple):
    """A line with a match, a line around one, or a name."""

    path: str
    # The line's number, from 1 on; None for a name.
    line: int | None
    # The line without its end, or the path below the root.
    text: str
    # Where the matches are in `text`.
    ranges: tuple[tuple[int, int], ...]
    # True for a line that has no match itself.
    is_context: bool


class FileSearch:
    """A search: an asynchronous iterator of hits. `end` says how it ended.

    Iterate to the end, or use `async with`, which cancels the rest. It belongs to one connection
    and fails with it. Raises InvalidRequest if the pattern is wrong.
    """

    def __init__(
        self, session: ClientSession, search_id: str, prepare: Callable[[], Awaitable[SearchParams]]
    ) -> None:
        """Use `client.fs.search`. *prepare* makes the request when the search starts."""
        self._session = session
        self._id = search_id
        self._prepare = prepare
        # Where it searches, once that is known.
        self._path: PathUri | None = None
        self._hits: deque[SearchHit] = deque()
        # The size of the hits that wait, roughly.
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        self._is_started = False
        self._end: SearchEnd | None = None

    @property
    def end(self) -> SearchEnd | None:
        """How the search has ended; None before that."""
        return self._end

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SearchHit:
        try:
            await self._start()
            while not self._hits:
                if self._error is not None:
                    raise self._error
                if self._end is not None:
                    raise StopAsyncIteration
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        hit = self._hits.popleft()
        self._waiting_bytes -= _size(hit)
        return hit

    def cancel(self) -> None:
        """End the search; hits that have come already are discarded. Idempotent."""
        self._hits.clear()
        self._waiting_bytes = 0
        if self._is_started and self._end is None and self._error is None:
            self._session.send(CANCEL_SEARCH, CancelSearchParams(self._id))
            self._end = SearchEnd("cancelled")
        self._session.searches.forget(self._id)
        self._changed.set()

    async def _start(self) -> None:
        if self._is_started:
            return
        params = await self._prepare()
        self._path = params.path
        self._is_started = True
        # The first results may overtake the answer.
        self._session.searches.add(self._id, self)
        try:
            await self._session.call(SEARCH, params)
        except RpcError as exc:
            self.cancel()
            raise about_path(exc, params.path) from None
        except BaseException:
            self.cancel()
            raise

    # Called by the client's session.

    def _found(self, event: SearchFoundEvent) -> None:
        # Hits of one file follow one another.
        uri, path = "", ""
        for each in event.matches:
            if each.path != uri:
                uri, path = each.path, native_text(each.path)
            hit = SearchHit(path, each.line, each.text, tuple(each.ranges), each.is_context)
            self._hits.append(hit)
            self._waiting_bytes += _size(hit)
        if self._waiting_bytes > _MOST_WAITING:
            self.cancel()
            self._fail(InvalidRequest("the hits of the search were not taken fast enough"))
            return
        if isinstance(event.end, SearchEnd):
            self._end = event.end
            if self._end.reason == "failed":
                error = InvalidRequest(self._end.message)
                self._error = error if self._path is None else about_path(error, self._path)
        self._changed.set()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._changed.set()


def _size(hit: SearchHit) -> int:
    return len(hit.path) + len(hit.text) + _HIT_COST * (1 + len(hit.ranges))


class FileSearches:
    """The searches of a client that are under way."""

    def __init__(self) -> None:
        self._searches: dict[str, FileSearch] = {}

    def __bool__(self) -> bool:
        return bool(self._searches)

    def add(self, search_id: str, search: FileSearch) -> None:
        if search_id in self._searches:
            raise ProtocolError(f"two searches are called {search_id}")
        self._searches[search_id] = search

    def forget(self, search_id: str) -> None:
        self._searches.pop(search_id, None)

    def event_received(self, event: SearchFoundEvent) -> None:
        search = self._searches.get(event.search_id)
        if search is None:
            return
        if isinstance(event.end, SearchEnd):
            self.forget(event.search_id)
        search._found(event)

    def connection_lost(self) -> None:
        searches, self._searches = self._searches, {}
        for each in searches.values():
            each._fail(ConnectionClosed("the connection was lost"))

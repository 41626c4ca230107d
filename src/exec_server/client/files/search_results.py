"""`client.fs.search`: the results of a search, as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from exec_server.client.files.file_streams import about_path, native_text
from exec_server.errors import ConnectionClosed, InvalidRequest, ProtocolError, RpcError
from exec_server.limits import MIB, Limits
from exec_server.protocol.base64 import Blob
from exec_server.protocol.file_search import (
    CANCEL_SEARCH,
    SEARCH,
    SEARCH_FOUND,
    CancelSearchParams,
    FileHits,
    SearchEnd,
    SearchFoundEvent,
    SearchMatch,
    SearchParams,
    unpacked,
)

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession
    from exec_server.protocol.paths import PathUri


# Hits that were not taken, whatever the server sends; a server finds no more than 100,000 lines.
_MOST_WAITING = 256 * MIB
# What a hit or its file costs besides its texts.
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


# What `SearchHit._make` does, without a call of Python for each of them.
_new_hit: Callable[[tuple[Any, ...]], SearchHit] = partial(tuple.__new__, SearchHit)


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
        # What was received and not taken, with the rough size of each part; and what is taken from.
        self._hits: deque[tuple[Iterator[SearchHit], int]] = deque()
        self._waiting_bytes = 0
        self._current: Iterator[SearchHit] = iter(())
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
        hit = next(self._current, None)
        return await self._next_part() if hit is None else hit

    async def _next_part(self) -> SearchHit:
        """The first hit of what comes next."""
        try:
            await self._start()
            while True:
                while self._hits:
                    self._current, size = self._hits.popleft()
                    self._waiting_bytes -= size
                    hit = next(self._current, None)
                    if hit is not None:
                        return hit
                if self._error is not None:
                    raise self._error
                if self._end is not None:
                    raise StopAsyncIteration
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise

    def cancel(self) -> None:
        """End the search; hits that have come already are discarded. Idempotent."""
        self._current = iter(())
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
        if event.matches:
            self._keep(_hits_of_matches(event.matches), sum(map(_size, event.matches)))
        if isinstance(event.data_base64, Blob):
            found = _unpacked(event.data_base64, self._session.limits)
            costs = sum(1 + len(each.texts) + sum(map(len, each.ranges)) for each in found)
            size = len(event.data_base64.data) + _HIT_COST * costs
            self._keep(chain.from_iterable(map(_hits_of_file, found)), size)
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

    def _keep(self, hits: Iterator[SearchHit], size: int) -> None:
        self._hits.append((hits, size))
        self._waiting_bytes += size

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._changed.set()


def _size(match: SearchMatch) -> int:
    return len(match.path) + len(match.text) + _HIT_COST * (1 + len(match.ranges))


def _unpacked(blob: Blob, limits: Limits) -> list[FileHits]:
    try:
        return unpacked(blob, limits)
    except ValueError as exc:
        raise ProtocolError(f"{SEARCH_FOUND.name}: {exc}") from exc


def _hits_of_matches(matches: list[SearchMatch]) -> Iterator[SearchHit]:
    # Hits of one file follow one another.
    uri, path = "", ""
    for each in matches:
        if each.path != uri:
            uri, path = each.path, native_text(each.path)
        yield SearchHit(path, each.line, each.text, tuple(each.ranges), each.is_context)


def _hits_of_file(found: FileHits) -> Iterator[SearchHit]:
    """The hits of a file, which are made one after the other by C code."""
    lines: Iterable[int | None] = found.lines or repeat(None, len(found.texts))
    around: Iterable[bool] = repeat(False, len(found.texts))
    if found.context:
        places = set(found.context)
        around = [place in places for place in range(len(found.texts))]
    rows = zip(repeat(native_text(found.path)), lines, found.texts, found.ranges, around)
    return map(_new_hit, rows)


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

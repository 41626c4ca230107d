"""`client.fs.watch`: changes of files, as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import msgspec

from exec_server.client.files.file_streams import about_path, native_text
from exec_server.errors import ConnectionClosed, InvalidRequest, RpcError
from exec_server.protocol.file_watch import (
    UNWATCH,
    WATCH,
    FilesChangedEvent,
    UnwatchParams,
    WatchParams,
)

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession
    from exec_server.client.connection_link import ConnectionLink

# A caller that does not take its changes is told to look at everything again after this many.
_MOST_WAITING = 100_000


class Change(NamedTuple):
    """One path, and how it was found after the change."""

    path: str
    # A directory that is removed is removed with everything below it.
    kind: Literal["created", "modified", "removed"]
    type: Literal["file", "directory", "symlink", "other", "missing"]


class Changes(NamedTuple):
    """What has changed since the last report."""

    # The number of the report.
    seq: int
    changes: tuple[Change, ...]
    # Directories in which anything may have changed, because notices were lost.
    rescan: tuple[str, ...]


class FileWatch:
    """A watch: `async with`, then an asynchronous iterator of `Changes`.

    It survives lost connections: what has changed meanwhile follows, or a `rescan`. It ends with
    InvalidRequest if the server ends it, for example because the directory is gone.
    """

    def __init__(
        self, session: ClientSession, watch_id: str, prepare: Callable[[], Awaitable[WatchParams]]
    ) -> None:
        """Use `client.fs.watch`. *prepare* makes the request when the watch starts."""
        self._session = session
        self._id = watch_id
        self._prepare = prepare
        self._params: WatchParams | None = None
        self._seq = 0
        self._waiting: deque[Changes] = deque()
        self._count = 0
        self._changed = asyncio.Event()
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        self._params = await self._prepare()
        self._session.file_watches.add(self._id, self)
        try:
            # A watch that exists already is resumed, so that the request can be repeated.
            await self._session.call(WATCH, self._params, repeat=True)
        except RpcError as exc:
            self.close()
            raise about_path(exc, self._params.path) from None
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Changes:
        if self._params is None:
            raise TypeError("a watch is a block: `async with client.fs.watch(path) as watch:`")
        while not self._waiting:
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()
        found = self._waiting.popleft()
        self._count -= _weight(found)
        return found

    def close(self) -> None:
        """End the watch. Idempotent."""
        if self._session.file_watches.forget(self._id) and self._error is None:
            self._session.send(UNWATCH, UnwatchParams(self._id))
        self._fail(InvalidRequest("the watch was ended"))

    # Called by the client's session.

    def _take(self, event: FilesChangedEvent) -> None:
        if event.seq <= self._seq:
            # It was sent again after a lost connection.
            return
        self._seq = event.seq
        changes = tuple(Change(native_text(c.path), c.kind, c.type) for c in event.changes)
        rescan = tuple(map(native_text, event.rescan))
        found = Changes(event.seq, changes, rescan)
        if self._count + _weight(found) > _MOST_WAITING:
            self._waiting.clear()
            self._count = 0
            assert self._params is not None
            found = Changes(event.seq, (), (native_text(self._params.path.text),))
        if found.changes or found.rescan:
            self._waiting.append(found)
            self._count += _weight(found)
        if isinstance(event.ended, str):
            self._session.file_watches.forget(self._id)
            self._fail(InvalidRequest(event.ended))
        self._changed.set()

    async def _restore(self, link: ConnectionLink) -> None:
        """Ask for what has changed since the last report, over a new connection."""
        assert self._params is not None
        params = msgspec.structs.replace(self._params, after=self._seq)
        try:
            await link.call(WATCH, params, seconds=self._session.options.call_timeout)
        except RpcError as exc:
            self._session.file_watches.forget(self._id)
            self._fail(exc)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._changed.set()


def _weight(found: Changes) -> int:
    """How many paths wait in a report."""
    return len(found.changes) + len(found.rescan)


class FileWatches:
    """The watches of a client, which are made again after a lost connection."""

    def __init__(self) -> None:
        self._watches: dict[str, FileWatch] = {}

    def __bool__(self) -> bool:
        return bool(self._watches)

    def add(self, watch_id: str, watch: FileWatch) -> None:
        self._watches[watch_id] = watch

    def forget(self, watch_id: str) -> bool:
        """Forget a watch; False if it is forgotten already."""
        return self._watches.pop(watch_id, None) is not None

    def event_received(self, event: FilesChangedEvent) -> None:
        watch = self._watches.get(event.watch_id)
        if watch is not None:
            watch._take(event)

    async def restore(self, link: ConnectionLink) -> None:
        for watch in tuple(self._watches.values()):
            await watch._restore(link)

    def session_lost(self, error: ConnectionClosed) -> None:
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            watch._fail(error)

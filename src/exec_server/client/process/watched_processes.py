"""All processes that a client looks on at: routes their events, and watches again after a loss."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from exec_server.client.connection_link import ConnectionLink
from exec_server.client.process.control import ControlView
from exec_server.client.process.watched_process import WatchedProcess
from exec_server.errors import ConnectionClosed, ExecServerError, RpcError
from exec_server.protocol import sharing
from exec_server.state.reconnect import is_retryable

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession

_ENDED = "the watch was ended"


class WatchedProcesses:
    """The watches of one client, and what it knows of the participants of its processes."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._watches: dict[str, WatchedProcess] = {}
        self._views: WeakValueDictionary[str, ControlView] = WeakValueDictionary()

    @property
    def has_open(self) -> bool:
        return bool(self._watches)

    def view(self, label: str) -> ControlView:
        """What is known about the participants of a process; it lives as long as it is held."""
        known = self._views.get(label)
        if known is None:
            known = self._views[label] = ControlView(label)
        return known

    async def begin(self, watched: WatchedProcess) -> None:
        # This comes before the request leaves, because events may overtake its answer.
        self._watches[watched.watch_id] = watched
        try:
            result = await self._session.call(sharing.WATCH, watched._params, repeat=True)
        except BaseException:
            self._watches.pop(watched.watch_id, None)
            raise
        watched._began(result)

    async def refresh(self, watched: WatchedProcess) -> None:
        if watched.watch_id in self._watches:
            params = self._again(watched)
            watched._began(await self._session.call(sharing.WATCH, params, repeat=True))

    def _again(self, watched: WatchedProcess) -> sharing.WatchParams:
        """The request to watch once more; what was not shown comes again."""
        after = None if watched.shows_pictures else watched.last_seq
        watched._params = msgspec.structs.replace(
            watched._params, after_seq=after, run=watched._params.run + 1
        )
        watched._forget()
        return watched._params

    async def end(self, watched: WatchedProcess) -> None:
        """Stop watching, also at the server."""
        if self._watches.pop(watched.watch_id, None) is None:
            return
        params = sharing.UnwatchParams(watched.watch_id)
        # The server may have forgotten it; without a connection it is over by itself.
        with contextlib.suppress(ExecServerError):
            if self._session.connection is not None:
                await self._session.call(sharing.UNWATCH, params)
        watched._finish(ConnectionClosed(_ENDED))

    def acknowledge(self, watch_id: str, seq: int) -> None:
        self._session.acknowledge(watch_id, seq)

    # The reports of the session.

    def event_received(
        self, event: sharing.WatchedEvent | sharing.PresenceEvent | sharing.ControlChangedEvent
    ) -> None:
        if isinstance(event, sharing.WatchedEvent):
            if (watched := self._watches.get(event.watch_id)) is not None:
                watched._received(event)
        elif (view := self._views.get(event.process_id)) is not None:
            view.received(event)

    async def restore(self, link: ConnectionLink) -> None:
        """Watch again over a connection that is not in use yet."""
        for watched in tuple(self._watches.values()):
            params = self._again(watched)
            seconds = self._session.options.initialize_timeout
            try:
                result = await link.call(sharing.WATCH, params, seconds=seconds)
            except RpcError as exc:
                if is_retryable(exc):
                    raise
                self._watches.pop(watched.watch_id, None)
                watched._finish(exc)
                continue
            watched._began(result)

    def session_lost(self, error: ConnectionClosed) -> None:
        watches, self._watches = self._watches, {}
        for watched in watches.values():
            watched._finish(type(error)(str(error)))
        for view in tuple(self._views.values()):
            view.end(error)

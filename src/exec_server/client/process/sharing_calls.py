"""Looking on at processes and driving them: the calls of a client about it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, cast

from exec_server.client.client_session import ClientSession
from exec_server.client.process.watched_process import WatchedProcess
from exec_server.protocol import sharing
from exec_server.protocol.participants import Kind
from exec_server.protocol.sharing import ControlAction, ControlState, Participant, ScreenPicture

if TYPE_CHECKING:
    from exec_server.client.process.processes import Processes

NOT_SHARED = "its processes cannot be watched"


class SharingCalls:
    """The part of a client that is about watchers and drivers."""

    _session: ClientSession

    async def watch(
        self,
        process_id: str,
        *,
        session_id: str | None = None,
        kind: Kind = "agent",
        name: str = "",
        window: int | None = None,
        after_seq: int | None = None,
        pictures: bool = True,
    ) -> WatchedProcess:
        """Look on at a process of any session of the same principal; an admin at every process.

        *session_id* is that of its session, as `jobs` lists it. It can be left out for a process of
        this session, and if only one session has such a process. *kind* and *name* say who looks
        on: a person may take the input from an agent, an agent never from a person.

        The first thing that a watcher of a terminal sees is a picture of its screen, if the server
        has a model of it; otherwise it is the retained output. Output after *after_seq* comes
        without a picture, and without *pictures* there are none at all. *window* is how many bytes
        may be under way to a slow reader.

        Raises InvalidRequest if there is no such process. An extension: other servers raise
        MethodNotFound.
        """
        await self._session.require("processWatch", NOT_SHARED)
        params = sharing.WatchParams(
            process_id,
            f"watch-{uuid.uuid4().hex}",
            session_id=session_id,
            kind=kind,
            name=name,
            window=window,
            after_seq=after_seq,
            pictures=pictures,
        )
        view = self._session.watched.view(params.watch_id)
        watched = WatchedProcess(cast("Processes", self), self._session.watched, params, view)
        await self._session.watched.begin(watched)
        return watched

    async def screen_picture(
        self, process_id: str, *, session_id: str | None = None
    ) -> ScreenPicture | None:
        """The screen of a terminal as control sequences; None without a model of it.

        The process and its session are those of `watch`.
        """
        await self._session.require("processWatch", NOT_SHARED)
        params = sharing.WatchParams(process_id, "once", session_id=session_id, once=True)
        return (await self._session.call(sharing.WATCH, params, repeat=True)).screen

    async def control(
        self,
        process_id: str,
        action: ControlAction = "state",
        *,
        to: Participant | str | None = None,
        epoch: int | None = None,
        kind: Kind | None = None,
        name: str | None = None,
    ) -> ControlState:
        """Take, offer or give back the input of a process of this session, or of a watch.

        *kind* and *name* say who this client is for the processes that it has started. Raises
        ControlRefused if a person drives, or the driver has changed since *epoch*, and ControlLost
        for an offer of one that does not drive.
        """
        await self._session.require("processWatch", NOT_SHARED)
        chosen = to.id if isinstance(to, Participant) else to
        params = sharing.ControlParams(process_id, action, chosen, epoch, kind, name)
        state = await self._session.call(sharing.CONTROL, params)
        self._session.watched.view(process_id).told(state)
        return state

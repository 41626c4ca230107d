"""Watches on processes of any session, and the shared processes themselves."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from exec_server.errors import InvalidRequest
from exec_server.process.child import Child
from exec_server.process.durable.stored_control import StoredControl
from exec_server.protocol import process, sharing
from exec_server.protocol.ends import EndedBy
from exec_server.screens.screen_tap import ScreenDump
from exec_server.server.session import Session
from exec_server.server.sharing.output_watcher import Paint, Watcher, picture_of
from exec_server.server.sharing.participant import Seat
from exec_server.server.sharing.screen_pictures import ScreenPictures, version_of
from exec_server.server.sharing.shared_process import SharedProcess

if TYPE_CHECKING:
    from exec_server.server.context import Context

logger = logging.getLogger(__name__)

# Each costs a walk through a list for every output.
_MOST_WATCHERS = 256
_MOST_WATCHES = 256
# The seat of a driver whose session was lost with an earlier server.
_ABSENT = "absent"


class ProcessWatch:
    """What a session does with a process of its own or of another session."""

    def __init__(
        self, shared: SharedProcess, table: Any, seat: Seat, watcher: Watcher, session: Session
    ) -> None:
        self.shared = shared
        self.seat = seat
        self.watcher = watcher
        # The processes of the session that has started it.
        self._table = table
        self._session = session

    @property
    def child(self) -> Child:
        return self.shared.child

    # Requests that name the watch instead of a process.

    def read(self, params: process.ReadParams) -> Any:
        return self._table.read(self._meant(params))

    def write(self, params: process.WriteParams) -> Any:
        if isinstance(params.write_id, str) and params.write_id:
            # Ids of two writers may be alike.
            params = structs.replace(params, write_id=f"{self.seat.id}:{params.write_id}")
        check = partial(self.shared.check_input, self.seat)
        return self._table.write(self._meant(params), check)

    def close_stdin(self, params: process.CloseStdinParams) -> process.WriteResult:
        self.shared.check_input(self.seat)
        result: process.WriteResult = self._table.close_stdin(self._meant(params), is_owner=False)
        return result

    def resize(self, params: process.ResizeParams) -> None:
        if not self.child.is_tty:
            raise InvalidRequest(f"process {self.child.process_id} has no terminal")
        self.shared.resize(self.seat, params.rows, params.cols)

    def signal(self, signum: int, by: EndedBy) -> None:
        self._table.signal(self.child.process_id, signum, by)

    def terminate(self, params: process.TerminateParams, by: EndedBy) -> process.TerminateResult:
        result: process.TerminateResult = self._table.terminate(self._meant(params), by)
        return result

    def _meant(self, params: Any) -> Any:
        return structs.replace(params, process_id=self.child.process_id)

    # The session.

    def writing_resumed(self) -> None:
        if self.seat.take_debt():
            self.seat.tell_presence(self.shared.state_for(self.seat))
        self.watcher.catch_up()

    def detached(self) -> None:
        """The connection is lost. A driver keeps its place until its session ends."""
        self.watcher.stop()
        if self.shared.driver is self.seat:
            self.seat.is_away = True
            self.shared.tell_presence(but=self.seat)
        else:
            self.end()

    def end(self) -> None:
        """The watch is over."""
        self.watcher.stop()
        self._session.watches.pop(self.seat.label, None)
        self.shared.leave(self.seat)


class Sharing:
    """All shared processes of a server."""

    def __init__(
        self, sessions: Callable[[], Collection[Session]], pictures: ScreenPictures
    ) -> None:
        self._sessions = sessions
        self._paint: Paint = pictures.paint

    # process/watch

    def watch(
        self, ctx: Context, params: sharing.WatchParams
    ) -> asyncio.Future[sharing.WatchResult]:
        session = ctx.require(sharing.WATCH.family)
        owner, child = self._find(ctx, session, params)
        if not params.once:
            self._check_room(session, child, params)
        return asyncio.ensure_future(self._watch(ctx, session, owner, child, params))

    async def _watch(
        self,
        ctx: Context,
        session: Session,
        owner: Session,
        child: Child,
        params: sharing.WatchParams,
    ) -> sharing.WatchResult:
        dump = None
        if child.is_tty and params.pictures and params.after_seq is None:
            dump = await self._paint(child)
        if ctx.session is not session or not session.is_attached:
            raise InvalidRequest("the connection was lost")
        shared = self.shared(owner, child)
        if params.once:
            return self._result(shared, shared.owner, dump, params)
        session.hears_sharing = True
        self._check_room(session, child, params)
        watch = self._place(ctx, session, owner, shared, params, _first_seq(dump, params))
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, watch.watcher.begin)
        return self._result(shared, watch.seat, dump, params)

    def _place(
        self,
        ctx: Context,
        session: Session,
        owner: Session,
        shared: SharedProcess,
        params: sharing.WatchParams,
        after_seq: int,
    ) -> ProcessWatch:
        """Seat a watcher; one that was there before, in this session, keeps its seat."""
        earlier = session.watches.get(params.watch_id)
        if earlier is not None:
            earlier.watcher.stop()
            seat = earlier.seat
            seat.is_away = False
        else:
            seat = Seat(
                uuid.uuid4().hex[:12],
                session=session,
                label=params.watch_id,
                principal=ctx.principal,
                name=params.name,
                kind=ctx.who.kind_of(params.kind),
            )
        watcher = Watcher(
            shared.child,
            session,
            params.watch_id,
            run=params.run,
            window=params.window,
            paint=self._paint if params.pictures else None,
            after_seq=after_seq,
        )
        session.watches[params.watch_id] = watch = ProcessWatch(
            shared, owner.processes, seat, watcher, session
        )
        if shared.child.state != "closed":
            shared.child.taps += (watcher,)
        if earlier is None:
            shared.join(seat)
        else:
            shared.tell_presence(but=seat)
        return watch

    def _result(
        self,
        shared: SharedProcess,
        seat: Seat,
        dump: ScreenDump | None,
        params: sharing.WatchParams,
    ) -> sharing.WatchResult:
        child = shared.child
        size = child.current_size() if child.is_tty else None
        return sharing.WatchResult(
            argv=child.argv,
            tty=child.is_tty,
            seq=_first_seq(dump, params),
            control=shared.state_for(seat),
            screen=None if dump is None else picture_of(dump),
            rows=None if size is None else size[0],
            cols=None if size is None else size[1],
        )

    def _check_room(self, session: Session, child: Child, params: sharing.WatchParams) -> None:
        known = session.watches.get(params.watch_id)
        if known is not None and known.child is not child:
            raise InvalidRequest(f"watch {params.watch_id} already exists")
        if session.processes.get(params.watch_id) is not None:
            raise InvalidRequest(f"{params.watch_id} is the id of a process")
        if known is None and (
            len(child.taps) >= _MOST_WATCHERS or len(session.watches) >= _MOST_WATCHES
        ):
            raise InvalidRequest("there are too many watchers")

    def _find(
        self, ctx: Context, session: Session, params: sharing.WatchParams
    ) -> tuple[Session, Child]:
        """The process that is meant, and its session. Raises InvalidRequest if there is none."""
        process_id = params.process_id
        own = session.processes.get(process_id)
        if own is not None and params.session_id in (None, session.id):
            return session, own
        found = [
            (each, child)
            for each in self._sessions()
            if params.session_id in (None, each.id)
            and (child := each.processes.get(process_id)) is not None
        ]
        allowed = [each for each in found if _may_see(ctx, each[0])]
        if not allowed and found:
            # As if there were none: the processes of other principals are not confirmed.
            ctx.server.refused(ctx, f"watch process {process_id} of `{found[0][0].owner}`")
        if params.session_id is None and len(allowed) > 1:
            raise InvalidRequest(f"several sessions have a process {process_id}: name the session")
        if not allowed:
            raise InvalidRequest(f"unknown process id {process_id}")
        return allowed[0]

    # process/unwatch, process/control

    def unwatch(self, session: Session, watch_id: str) -> None:
        watch = session.watches.get(watch_id)
        if watch is None:
            raise InvalidRequest(f"unknown watch {watch_id}")
        watch.end()

    def control(self, session: Session, params: sharing.ControlParams) -> sharing.ControlState:
        session.hears_sharing = True
        watch = session.watches.get(params.process_id)
        if watch is not None:
            return watch.shared.control(watch.seat, params)
        child = session.processes.get(params.process_id)
        if child is None:
            raise InvalidRequest(f"unknown process id {params.process_id}")
        shared = self.shared(session, child)
        return shared.control(shared.owner, params)

    # Shared processes.

    def shared(self, owner: Session, child: Child) -> SharedProcess:
        """*child* of the session *owner*, as a shared process from now on."""
        if isinstance(child.guard, SharedProcess):
            return child.guard
        return self._share(owner, child, None)

    def owner_moved(self, owner: Session) -> None:
        """The client of *owner* has come or gone: tell those who share its processes."""
        for child in owner.processes.children():
            if isinstance(child.guard, SharedProcess):
                child.guard.tell_presence()

    def restore(self, owner: Session, child: Child) -> None:
        """A durable process of an earlier server: go on with its epoch and its driver."""
        stored = child.stored_control()
        if stored is not None:
            self._share(owner, child, stored)

    def _share(self, owner: Session, child: Child, stored: StoredControl | None) -> SharedProcess:
        seat = Seat(
            sharing.OWNER,
            session=owner,
            label=child.process_id,
            principal=owner.owner,
            name="" if stored is None else stored.owner_name,
            kind=child.driver_kind if stored is None else stored.owner_kind,
        )
        shared = SharedProcess(child, seat, epoch=1 if stored is None else stored.epoch)
        shared.screen_version = partial(version_of, child)
        shared.on_changed = partial(_store, shared)
        child.guard = shared
        if stored is not None and stored.driver_kind is not None:
            self._wait_for_absent(shared, stored)
        return shared

    def _wait_for_absent(self, shared: SharedProcess, stored: StoredControl) -> None:
        """The driver's session has ended with the earlier server: the input waits for a while."""
        assert stored.driver_kind is not None
        seat = Seat(
            _ABSENT,
            session=None,
            label="",
            principal=stored.driver_principal,
            name=stored.driver_name,
            kind=stored.driver_kind,
        )
        shared.seat_absent(seat)
        loop = asyncio.get_running_loop()
        loop.call_later(shared.child.absent_seconds, shared.leave, seat)


def _may_see(ctx: Context, session: Session) -> bool:
    return session.owner == ctx.principal or ctx.who.is_admin


def _first_seq(dump: ScreenDump | None, params: sharing.WatchParams) -> int:
    return dump.seq if dump is not None else params.after_seq or 0


def _store(shared: SharedProcess) -> None:
    """Let the next server know who drives, if the process outlives this one."""
    driver, owner = shared.driver, shared.owner
    is_owner = driver is owner
    shared.child.store_control(
        StoredControl(
            epoch=shared.epoch,
            owner_kind=owner.kind,
            owner_name=owner.name,
            driver_kind=None if is_owner else driver.kind,
            driver_name="" if is_owner else driver.name,
            driver_principal="" if is_owner else driver.principal,
        )
    )

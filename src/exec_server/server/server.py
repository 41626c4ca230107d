"""ExecServer: serves connections, keeps sessions, lets them expire, and stops.

The module is long because connections, sessions and the end of both share their tables.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exec_server.access.principal import Principal, Quotas, Scope
from exec_server.errors import QuotaReached
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.printable import ShortDigest, short_digest
from exec_server.protocol.lifecycle import InitializeParams
from exec_server.protocol.streams import StreamInfo
from exec_server.rpc.router import Route, Router
from exec_server.server.context import Context, FindPrincipal
from exec_server.server.floors.quotas import NO_QUOTAS, ServerQuotas, WhenFull
from exec_server.server.floors.refusal_lines import RefusalLines
from exec_server.server.handlers import (
    denials,
    environment,
    fs,
    http,
    jobs,
    lifecycle,
    process,
    protocol,
    screen,
    sharing,
    streams,
)
from exec_server.server.late_services import LateServices
from exec_server.server.principals.refused_requests import RefusedRequest
from exec_server.server.principals.restricted_routes import restricted_routes
from exec_server.server.session import Session
from exec_server.server.session_factory import SessionFactory
from exec_server.server.take_over import claim_of, displace, needs_probe
from exec_server.state.attachment import Attachments, SessionId, unknown_session
from exec_server.state.retention import RetentionBudget
from exec_server.timers import Alarm
from exec_server.transport.connection import Connection

if TYPE_CHECKING:
    from exec_server.recording.recorder import TerminalRecorder
    from exec_server.server.kept_sessions import KeptSessions
    from exec_server.server.server_audit import ServerAudit
    from exec_server.server.streams.stream_table import StreamTable

logger = logging.getLogger(__name__)

ROUTES = Router(
    lifecycle, environment, process, screen, sharing, denials, jobs, fs, http, streams, protocol
).routes


class ExecServer(LateServices):
    """The server without a listener; `serve` gives it connections."""

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT_LIMITS,
        resumable: bool = True,
        proxy_private_ips_via_upstream: bool = False,
        state_directory: Path | None = None,
        audit: ServerAudit | None = None,
        find_principal: FindPrincipal | None = None,
        quotas: Quotas = NO_QUOTAS,
        when_full: WhenFull = "refuse",
        stream_allow: Sequence[str] = (),
        recorder: TerminalRecorder | None = None,
    ) -> None:
        """With a *state_directory*, processes can outlive the server; call `restore` then.

        *find_principal* says whose connection it is, and what its requests cannot go beyond.
        *quotas* are those of all principals together. A start for which there is no room is refused
        or waits, as *when_full* says. The *recorder*, which the caller closes, records terminals.
        *stream_allow* are the rules of `--stream-allow`.
        """
        super().__init__(limits, audit, stream_allow)
        self.find_principal = find_principal
        self.on_rule_refused: Callable[[Principal, str, str], None] = RefusalLines().refused
        # It names this run of the server.
        self.instance = uuid.uuid4().hex
        self.routes = ROUTES
        # On stdio a lost connection cannot come back, so its session ends with it.
        self._resumable = resumable
        self.quotas = ServerQuotas(quotas, when_full)
        self._attachments: Attachments[Context] = Attachments(
            window=limits.detached_session_seconds, new_id=lambda: str(uuid.uuid4())
        )
        self._sessions: dict[SessionId, Session] = {}
        self._factory = SessionFactory(
            self, recorder=recorder, reaches_private=proxy_private_ips_via_upstream
        )
        self._contexts: set[Context] = set()
        self._alarm = Alarm(self._attachments.next_deadline, self._expire)
        self._idle = asyncio.Event()
        self._idle.set()
        self.on_stop: Callable[[], None] | None = None
        # Called when a principal was refused: what it lacks, or what belongs to another one.
        self.on_refused: Callable[[RefusedRequest], None] | None = None
        # Wraps the routes that refuse a restricted principal; the usual ones are in `routes`.
        self.watch_refusals: Callable[[Route], Route] = lambda route: route
        self._restricted: dict[frozenset[Scope], dict[str, Route]] = {}
        if state_directory is not None and resumable and sys.platform == "linux":
            self.jobs = self._open_jobs(state_directory)

    def _open_jobs(self, path: Path) -> KeptSessions:
        from exec_server.server.kept_sessions import KeptSessions

        return KeptSessions(
            path,
            limits=self.limits,
            sessions=self._sessions,
            attachments=self._attachments,
            alarm=self._alarm,
        )

    async def restore(self) -> None:
        """Go on with the durable processes of an earlier server, before the first connection.

        Raises ConfigurationError if another server uses the state directory.
        """
        if self.jobs is not None:
            await self.jobs.restore(self._make_session)
            for session in self.sessions:
                for child in session.processes.durable_children():
                    if child.stored_control() is not None:
                        self.sharing.restore(session, child)
        for session in self._sessions.values():
            for child in session.processes.durable_children():
                if child.state == "running":
                    child.on_reaped = self.quotas.hold(session.owner)

    # Connections.

    def serve(self, connection: Connection) -> None:
        """Answer *connection* until it is lost. Its session is then detached."""
        if self.audit is not None:
            connection = self.audit.connection(connection)
        context = Context(self, connection)
        try:
            self.quotas.check_connections(
                context.who,
                own=lambda: sum(
                    each.refusal is None and each.who.name == context.who.name
                    for each in self._contexts
                ),
                total=len(self._contexts),
            )
        except QuotaReached as exc:
            context.refusal = exc
            self._loop.call_later(self.limits.http_head_timeout, connection.close, exc.message)
        self._contexts.add(context)
        self._idle.clear()
        if self.audit is not None:
            self.audit.opened(context)
        logger.info("connection from %s (%s)", connection.peer_name, connection.transport_name)

    def release(self, context: Context) -> None:
        """Detach the session of a lost connection."""
        self._contexts.discard(context)
        if self.audit is not None:
            self.audit.closed(context)
        logger.info("connection from %s ended", context.connection.peer_name)
        if not self._contexts:
            self._idle.set()
        session, context.session = context.session, None
        if session is None:
            return
        session.detach()
        if session.id not in self._sessions:
            # `stop` has ended it already.
            return
        logger.info("session %s detached", ShortDigest(session.id))
        if not self._resumable:
            self._end(session.id)
            self._attachments.end(session.id)
            return
        self._detach(session)

    def _detach(self, session: Session) -> None:
        self._attachments.detach(
            session.id,
            now=self._loop.time(),
            window=self._retained_seconds(session),
            is_kept=session.is_kept,
        )
        self._alarm.set()
        if "sharing" in self.__dict__:
            self.sharing.owner_moved(session)
        if self.jobs is not None:
            self.jobs.detached(session)

    async def wait_idle(self) -> None:
        """Wait until no connection is left."""
        await self._idle.wait()

    # Principals.

    def routes_for(self, who: Principal) -> dict[str, Route]:
        """The routes of a connection of *who*: the usual ones, unless it is restricted."""
        if who.is_admin:
            return self.routes
        if who.may not in self._restricted:
            self._restricted[who.may] = restricted_routes(self.routes, who.may, self.watch_refusals)
        return self._restricted[who.may]

    def refused(self, context: Context, what: str, *, scope: Scope | None = None) -> None:
        """Report that the principal of *context* was refused something, for lack of *scope*.

        Without a scope it has asked for something that belongs to another principal.
        """
        report = RefusedRequest(
            principal=context.principal,
            peer=context.connection.peer_name,
            what=what,
            scope=scope,
        )
        logger.info("%s", report)
        if self.on_refused is not None:
            self.on_refused(report)

    def _is_foreign(self, context: Context, session_id: str) -> bool:
        """True if the session belongs to another principal, and *context* is not an admin's."""
        session = self._sessions.get(SessionId(session_id))
        if session is None or self._may_have(context, session):
            return False
        self.refused(context, f"resume session {short_digest(session_id)} of `{session.owner}`")
        return True

    @staticmethod
    def _may_have(context: Context, session: Session) -> bool:
        return session.owner == context.principal or context.who.is_admin

    # Sessions.

    def open_session(self, context: Context, params: InitializeParams) -> Session:
        """A new session, or the one that the client asks for, if it may have it."""
        asked, claim = params.resume_session_id, claim_of(params)
        if asked is not None:
            if self._is_foreign(context, asked):
                # As if there were none: the ids of other principals' sessions are not confirmed.
                raise unknown_session(asked)
            holder = self._attachments.holder(asked)
            if holder is not None and self._may_take_over(SessionId(asked), params):
                self.displace(holder)
            now = self._loop.time()
            resumed = self._attachments.resume(asked, context, now=now, claim=claim)
            session = self._sessions[resumed]
            if self.jobs is not None:
                self.jobs.save(session)
        else:
            session = self._new_session(context)
        context.session = session
        logger.info(
            "session %s attached to %s", ShortDigest(session.id), context.connection.peer_name
        )
        return session

    def attach(self, context: Context) -> None:
        """Send the events of the context's session to its connection from now on."""
        if context.session is not None:
            context.session.attach(context.connection, context.peer)
            if context.peer.is_writing_paused:
                context.session.pause_output()
            if "sharing" in self.__dict__:
                # The answer leaves first.
                session = context.session
                self._loop.call_soon(self._loop.call_soon, self.sharing.owner_moved, session)

    # Streams.

    def streams_of(self, session: Session, context: Context) -> StreamTable:
        """The byte streams of *session*, which *context* holds."""
        return self._streams.table_of(session, is_paused=context.peer.is_writing_paused)

    def stream_infos(self, context: Context, *, is_all: bool) -> Iterator[StreamInfo]:
        """The streams of one session, or of all sessions of a principal; an admin has all."""
        for session in self.sessions_of(context, is_all=is_all):
            if session.streams is not None:
                yield from session.streams.infos(short_digest(session.id))

    def sessions_of(self, context: Context, *, is_all: bool) -> Iterator[Session]:
        """The session of *context*, or all that its principal may have."""
        for session in self._sessions.values():
            if session is context.session or (is_all and self._may_have(context, session)):
                yield session

    def generation(self, session: Session) -> int:
        """The number of times that *session* was attached to a connection."""
        return self._attachments.generation(session.id)

    def doubtful_holder(self, context: Context, params: InitializeParams) -> Context | None:
        """The holder of the session that a client wants, if a probe has to decide about it."""
        asked, take_over = params.resume_session_id, params.take_over
        if asked is None or take_over is None or not needs_probe(take_over):
            return None
        session = self._sessions.get(SessionId(asked))
        if session is not None and not self._may_have(context, session):
            return None
        holder = self._attachments.holder(asked)
        return None if holder is None or self._may_take_over(SessionId(asked), params) else holder

    def _may_take_over(self, session_id: SessionId, params: InitializeParams) -> bool:
        asked = params.take_over
        if asked is None:
            return False
        return asked.force or self._attachments.is_own(
            session_id, generation=asked.generation, claim=claim_of(params)
        )

    def displace(self, holder: Context) -> None:
        """Detach the session of *holder*, and end its connection."""
        session, holder.session = holder.session, None
        if session is not None:
            displace(session, holder.peer)
            self._detach(session)

    def _new_session(self, context: Context) -> Session:
        owner, sessions = context.principal, self._sessions
        self.quotas.check_sessions(
            context.who,
            own=lambda: sum(session.owner == owner for session in sessions.values()),
            total=len(sessions),
        )
        retention = self.quotas.retention(context.who)
        session = self._make_session(self._attachments.create(context), retention=retention)
        session.owner = owner
        return session

    def _make_session(
        self,
        session_id: SessionId,
        mark: int | None = None,
        retention: RetentionBudget | None = None,
    ) -> Session:
        """A session; *mark* is that of an earlier server, which had it before."""
        session = self._sessions[session_id] = self._factory.make(session_id, mark, retention)
        return session

    def retain(self, session: Session, seconds: float) -> float:
        """Set the retention of a session after a lost connection. Returns the granted time."""
        own = self.limits.detached_session_seconds
        if not self._resumable:
            return 0.0
        granted = min(seconds, max(self.limits.max_detached_session_seconds, own))
        if session.is_kept:
            granted = seconds = session.retained_seconds or own
        session.retained_seconds = granted if seconds > 0 else None
        session.processes.retained_seconds = session.retained_seconds
        return own if session.retained_seconds is None else granted

    def _retained_seconds(self, session: Session) -> float | None:
        """The retention of a session that is detached now; None is the default."""
        is_full = self._attachments.detached_count >= self.limits.retained_sessions
        has_work = session.has_processes or bool(session.streams)
        return session.retained_seconds if has_work and not is_full else None

    def _expire(self, now: float) -> None:
        for session_id in self._attachments.expire(now=now):
            logger.info("session %s expired", ShortDigest(session_id))
            self._end(session_id)

    def _end(self, session_id: SessionId) -> None:
        self._sessions.pop(session_id).close()

    @property
    def connection_count(self) -> int:
        return len(self._contexts)

    @property
    def sessions(self) -> Collection[Session]:
        return self._sessions.values()

    @property
    def holds_sessions(self) -> bool:
        """True if there is a session, attached or detached."""
        return bool(self._sessions)

    # What `LocalPeers` asks.

    @property
    def has_confined(self) -> bool:
        """True if there may be a sandboxed process."""
        return self._spawner.has_confined or (self.jobs is not None and self.jobs.has_confined)

    @property
    def has_lost_keeper(self) -> bool:
        """True if a sandboxed process may not be below this process."""
        is_apart = self.jobs is not None and self.jobs.has_confined
        return self._spawner.has_lost_keeper or is_apart

    # The end.

    def stop_request(self) -> asyncio.Future[None]:
        """A future that is done when a client asks to stop the server."""
        asked = self._loop.create_future()

        def ask() -> None:
            # The answer leaves first.
            self._loop.call_soon(self._loop.call_soon, _settle, asked)

        self.on_stop = ask
        return asked

    async def stop(self) -> None:
        """End every connection, session and process tree, within a limited time."""
        self._alarm.cancel()
        for context in tuple(self._contexts):
            context.connection.close("server is shutting down")
        # A lost connection leaves these sessions alone from now on.
        sessions = dict(self._sessions)
        self._sessions.clear()
        if self.jobs is not None:
            # The keeper takes over at once.
            await self.jobs.leave(sessions.values())
        if "files" in self.__dict__:
            self.files.stop()
        if "screens" in self.__dict__:
            self.screens.stop()
        try:
            await self._spawner.stop(
                within=self.limits.keeper_stop_timeout, grace=self.limits.orphan_grace
            )
        finally:
            for session in sessions.values():
                if self.audit is not None:
                    self.audit.left(session)
                session.close()
        if "outbound" in self.__dict__:
            await self.outbound.stop()
        try:
            async with asyncio.timeout(self.limits.close_timeout):
                await self._idle.wait()
        except TimeoutError:
            for context in tuple(self._contexts):
                context.connection.abort()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

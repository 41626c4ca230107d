"""Sessions with durable jobs: kept without an end, saved, and restored by the next server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from exec_server.limits import Limits
from exec_server.process.durable.durable_child import DurableChild
from exec_server.process.durable.durable_jobs import DurableJobs, LeftSession, SessionJobs
from exec_server.process.durable.state_directory import StoredSession
from exec_server.protocol import jobs
from exec_server.server.context import Context
from exec_server.server.principals.admission import own_principal
from exec_server.server.session import Session
from exec_server.state.attachment import Attachments, SessionId
from exec_server.timers import Alarm

logger = logging.getLogger(__name__)


class MakeSession(Protocol):
    def __call__(self, session_id: SessionId, mark: int | None = None) -> Session: ...


class KeptSessions:
    """The durable jobs of a server, and the sessions that hold them."""

    def __init__(
        self,
        path: Path,
        *,
        limits: Limits,
        sessions: dict[SessionId, Session],
        attachments: Attachments[Context],
        alarm: Alarm,
    ) -> None:
        self._jobs = DurableJobs(path, limits=limits, default_owner=own_principal())
        self._limits = limits
        self._sessions = sessions
        self._attachments = attachments
        self._alarm = alarm
        self._loop = asyncio.get_running_loop()
        # How many jobs went on when the server stopped.
        self.left_running = 0
        self._ends_jobs = False

    @property
    def path(self) -> Path:
        return self._jobs.state.path

    @property
    def children(self) -> tuple[DurableChild, ...]:
        return self._jobs.children

    @property
    def running(self) -> int:
        """The number of durable jobs that have not ended."""
        return self._jobs.running

    @property
    def journal_bytes(self) -> int:
        """The output of all durable jobs that is kept on the disk."""
        return sum(child.job.log.retained_bytes for child in self.children)

    def make_room(self) -> None:
        """Keep all journals together within their bound, which is otherwise done now and then."""
        self._jobs.make_room()

    @property
    def has_confined(self) -> bool:
        return self._jobs.spawner.has_confined

    def jobs_of(self, session: Session, mark: int | None) -> SessionJobs:
        """The durable jobs of a new session."""
        found = self._jobs.for_session(session.id, mark)
        found.on_first = lambda: self._keep(session)
        found.on_none = lambda: self._release(session)
        return found

    async def restore(self, make_session: MakeSession) -> None:
        """Make the sessions of earlier servers again, with their processes."""
        for left in await self._jobs.load():
            await self._restore(left, make_session)
        if self._sessions:
            logger.info("adopted %d sessions with durable jobs", len(self._sessions))

    async def _restore(self, left: LeftSession, make_session: MakeSession) -> None:
        saved = left.saved
        session_id = self._attachments.restore(saved.id, generation=saved.generation)
        session = make_session(session_id, saved.mark)
        session.owner = saved.owner
        await session.processes.restore(left.jobs)
        self.detached(session)
        if not session.is_kept:
            # Nothing of it could be restored.
            self._sessions.pop(session_id).close()
            self._attachments.end(session_id)

    # While the server runs.

    def _keep(self, session: Session) -> None:
        """The session has its first durable job."""
        seconds = max(
            self._limits.max_detached_session_seconds, self._limits.detached_session_seconds
        )
        session.retained_seconds = session.processes.retained_seconds = seconds
        self.save(session, is_kept=True)

    def detached(self, session: Session) -> None:
        """A session has no client: its durable processes wait the usual time for their readers."""
        if session.is_kept:
            generation = self._attachments.generation(session.id)
            seconds = self._limits.detached_session_seconds
            self._loop.call_later(seconds, self._let_run, session, generation)

    def _let_run(self, session: Session, generation: int) -> None:
        if session.id not in self._sessions or session.is_attached:
            return
        if self._attachments.generation(session.id) == generation:
            session.processes.release_durable()

    def _release(self, session: Session) -> None:
        """The last durable job of the session is forgotten."""
        self._jobs.state.remove_session(session.id)
        if session.id in self._sessions and not session.is_attached:
            now = self._loop.time()
            self._attachments.detach(session.id, now=now, window=session.retained_seconds)
            self._alarm.set()

    def save(self, session: Session, *, is_kept: bool = False) -> None:
        """Write what the next server has to know of a session with durable jobs."""
        if session.jobs is None or not (is_kept or session.is_kept):
            return
        saved = StoredSession(
            id=session.id,
            owner=session.owner,
            retention=session.retained_seconds or 0.0,
            generation=self._attachments.generation(session.id),
            mark=session.jobs.mark,
        )
        try:
            self._jobs.state.save_session(saved)
        except OSError as exc:
            logger.error("a session could not be saved: %s", exc)

    # Requests.

    def prune(self, owner: str | None, params: jobs.PruneParams) -> jobs.PruneResult:
        """Forget ended jobs of *owner*, or of all, as far as *params* allow it."""
        now = time.time()

        def is_meant(child: DurableChild) -> bool:
            age = now - child.over_since / 1000
            is_old = params.older_than_seconds is None or age >= params.older_than_seconds
            return is_old and params.process_id in (None, child.process_id)

        removed = sum(
            session.processes.prune(is_meant)
            for session in tuple(self._sessions.values())
            if owner in (None, session.owner) and params.session_id in (None, session.id)
        )
        return jobs.PruneResult(removed)

    # The end.

    def end_jobs(self) -> None:
        """Let the jobs end with the server."""
        self._ends_jobs = True

    async def leave(self, sessions: Iterable[Session]) -> None:
        """The server stops: end the jobs if that was asked for, or leave them to their keeper."""
        try:
            if self._ends_jobs:
                await self._jobs.end_all()
        finally:
            self.left_running = self.running
            for session in sessions:
                session.processes.leave_durable()
            self._jobs.close()
        if self.left_running:
            logger.info("%s", self.farewell)

    @property
    def farewell(self) -> str:
        """What a person should know after the stop; empty if no job goes on."""
        if not self.left_running:
            return ""
        jobs_go = (
            "1 durable job goes"
            if self.left_running == 1
            else f"{self.left_running} durable jobs go"
        )
        them = "it" if self.left_running == 1 else "them"
        return f"{jobs_go} on; the next server on {self.path} adopts {them}"

"""The durable jobs of a server: those of earlier servers, new ones, and the room on the disk."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from exec_server.errors import ConfigurationError, InvalidRequest
from exec_server.limits import Limits
from exec_server.process.child import Child
from exec_server.process.child_parts import ChildHome
from exec_server.process.durable.durable_child import (
    KEEPER_DIED,
    MACHINE_RESTARTED,
    DurableChild,
)
from exec_server.process.durable.durable_job import DurableJob
from exec_server.process.durable.durable_spawner import DurableSpawner, kill_marked
from exec_server.process.durable.journal_log import Bounds
from exec_server.process.durable.keeper_hello import HeldJob
from exec_server.process.durable.state_directory import (
    StateDirectory,
    StoredJob,
    StoredSession,
    StoredStatus,
    boot_id,
)
from exec_server.process.keeping.kept_descriptors import close_all
from exec_server.protocol import process
from exec_server.sandbox import own_places

logger = logging.getLogger(__name__)

MANAGED_NETWORK = (
    "a durable process cannot have a managed network: its proxy is a part of the server"
)
# A mark of a durable process: the session's random number, then that of the start.
_START_BITS = 24
_SESSION_BITS = 62 - _START_BITS
_SESSION_MASK = ((1 << 63) - 1) & ~((1 << _START_BITS) - 1)
# How often it is looked whether all journals together are too large.
_LOOK_SECONDS = 5.0


class LeftJob(NamedTuple):
    """A job of an earlier server, as it was found."""

    name: str
    saved: StoredJob
    # None if no keeper has it any more.
    kept: HeldJob | None
    status: StoredStatus | None


class LeftSession(NamedTuple):
    saved: StoredSession
    jobs: list[LeftJob]


class DurableJobs:
    """The state directory *path*, and the keeper of the jobs in it.

    Nothing is written before the first job; no sandbox may reach the directory.
    """

    def __init__(self, path: Path, *, limits: Limits, default_owner: str) -> None:
        self.state = StateDirectory(path)
        self.spawner = DurableSpawner(self.state, child_descriptors=limits.child_descriptors)
        self._limits = limits
        self._default_owner = default_owner
        self._boot_id = boot_id()
        self._children: dict[DurableChild, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        own_places.hide(self.state.path, self.state.make)

    @property
    def children(self) -> tuple[DurableChild, ...]:
        return tuple(self._children)

    @property
    def running(self) -> int:
        """The number of jobs that have not ended."""
        return sum(child.state == "running" for child in self._children)

    async def load(self) -> list[LeftSession]:
        """Own the directory, if it exists, and find what earlier servers have left.

        Raises ConfigurationError if another server uses it, or a keeper of another release has it
        that this server does not understand.
        """
        if not self.state.open(create=False):
            return []
        kept = {job.name: job for job in await self.spawner.connect()}
        sessions = {each.id: LeftSession(each, []) for each in self.state.sessions()}
        for name, saved in self.state.jobs():
            if saved is None:
                self._drop_damaged(name)
                continue
            if saved.session_id not in sessions:
                sessions[saved.session_id] = LeftSession(self._new_session(saved), [])
            left = LeftJob(name, saved, kept.get(name), self.state.status(name))
            sessions[saved.session_id].jobs.append(left)
            kept.pop(name, None)
        for unknown in kept.values():
            # No client can name it.
            logger.error("job %s has no readable description; it is ended", unknown.name)
            self.spawner.end_tree(unknown.mark)
            self.spawner.release(unknown.name)
        self._kill_orphans(job for session in sessions.values() for job in session.jobs)
        for session in sessions.values():
            if not session.jobs:
                self.state.remove_session(session.saved.id)
        return [session for session in sessions.values() if session.jobs]

    def _drop_damaged(self, name: str) -> None:
        """Keep the output of a job that no client can name for as long as that of others."""
        folder = self.state.job_folder(name)
        if self.state.age_of_job(name) < self._limits.job_keep_seconds:
            logger.error("job.json in %s is damaged: no client can name the job", folder)
            return
        logger.warning("%s is removed: it is old, and its job.json is damaged", folder)
        self.state.remove_job(name)

    def _new_session(self, job: StoredJob) -> StoredSession:
        """A session in place of one whose file is gone."""
        logger.error("session of process %.64r has no readable file", job.process_id)
        return StoredSession(
            id=job.session_id,
            owner=self._default_owner,
            retention=self._limits.max_detached_session_seconds,
            generation=1,
            mark=job.mark & _SESSION_MASK,
        )

    def _kill_orphans(self, jobs: Iterable[LeftJob]) -> None:
        """End the processes of jobs whose keeper was killed while no server was there."""
        marks = {
            job.saved.mark
            for job in jobs
            if job.kept is None and job.status is None and job.saved.boot_id == self._boot_id
        }
        if marks:
            kill_marked(marks)

    def for_session(self, session_id: str, mark: int | None = None) -> SessionJobs:
        """The jobs of one session; *mark* is that of an earlier server."""
        if mark is None:
            mark = 1 << 62 | secrets.randbits(_SESSION_BITS) << _START_BITS
        return SessionJobs(self, session_id, mark)

    def new_job(self, saved: StoredJob, name: str | None = None) -> DurableJob:
        limits = self._limits
        return DurableJob(
            saved,
            state=self.state,
            spawner=self.spawner,
            bounds=Bounds(limits.job_journal_bytes, limits.job_journal_records),
            hold_seconds=limits.detached_session_seconds,
            name=name,
        )

    def open(self) -> None:
        """Make the directory for the first job. Raises InvalidRequest if that is impossible."""
        try:
            self.state.open(create=True)
        except ConfigurationError as exc:
            raise InvalidRequest(str(exc)) from exc

    def lost_reason(self, job: StoredJob) -> str:
        return KEEPER_DIED if job.boot_id == self._boot_id else MACHINE_RESTARTED

    @property
    def boot_id(self) -> str:
        return self._boot_id

    # The room on the disk.

    def add(self, child: DurableChild) -> None:
        self._children[child] = None
        if self._timer is None:
            self._look_later()

    def discard(self, child: DurableChild) -> None:
        self._children.pop(child, None)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        with contextlib.suppress(OSError):
            self.make_room()
        if self._children:
            self._look_later()

    def make_room(self) -> None:
        """Keep all journals together within their bound: first shrink those of ended jobs."""
        sizes = {child: child.job.log.retained_bytes for child in self._children}
        excess = sum(sizes.values()) - self._limits.job_journal_total_bytes
        if excess <= 0:
            return
        share = self._limits.job_journal_total_bytes // max(1, len(sizes))
        by_age = sorted(sizes, key=lambda child: (child.state != "closed", child.started_at))
        for child in by_age:
            if excess <= 0:
                return
            excess -= child.job.log.shrink(min(share, sizes[child]))

    # The end.

    async def end_all(self) -> None:
        """End all jobs, whose exits are recorded."""
        limits = self._limits
        await self.spawner.stop(grace=limits.orphan_grace, within=limits.keeper_stop_timeout)

    def close(self) -> None:
        """Leave the jobs to the keeper, and the directory to the next server."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.spawner.close()
        self.state.close()
        own_places.reveal(self.state.path)


class SessionJobs:
    """The durable jobs of the session *session_id*, whose processes share the bits of *mark*."""

    def __init__(self, jobs: DurableJobs, session_id: str, mark: int) -> None:
        self.jobs = jobs
        self.session_id = session_id
        self.mark = mark
        # Called before the first job, and after the last one is forgotten.
        self.on_first: Callable[[], None] = lambda: None
        self.on_none: Callable[[], None] = lambda: None
        self._children: dict[DurableChild, None] = {}
        self._marks: set[int] = set()

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[DurableChild]:
        return iter(tuple(self._children))

    def new_child(
        self,
        params: process.StartParams,
        home: ChildHome,
        on_closed: Callable[[Child], None],
    ) -> DurableChild:
        """A process that is about to start. Raises InvalidRequest if it cannot be durable."""
        if params.network_proxy is not None or params.enforce_managed_network:
            raise InvalidRequest(MANAGED_NETWORK)
        self.jobs.open()
        saved = StoredJob(
            session_id=self.session_id,
            process_id=params.process_id,
            argv=params.argv,
            cwd=params.cwd,
            tty=params.tty,
            rows=params.rows or home.limits.default_rows,
            cols=params.cols or home.limits.default_cols,
            exit_signals=params.exit_signals,
            details=params.details,
            report=params.report,
            flow_window=params.flow_window,
            name=params.name,
            driver=params.driver,
            screen=params.screen,
            mark=self._new_mark(),
            started_at=0,
            boot_id=self.jobs.boot_id,
        )
        return DurableChild(params, self.jobs.new_job(saved), home, on_closed)

    def _new_mark(self) -> int:
        while (mark := self.mark | secrets.randbits(_START_BITS)) in self._marks:
            pass
        return mark

    def restored(
        self,
        left: LeftJob,
        home: ChildHome,
        on_closed: Callable[[Child], None],
    ) -> DurableChild:
        """A process of an earlier server: it goes on, has ended or is lost. Raises OSError."""
        saved = left.saved
        job = self.jobs.new_job(saved, left.name)
        job.open()
        for damage in job.log.damage:
            logger.error("journal of process %.64r is damaged: %s", saved.process_id, damage)
        child = DurableChild(_params(saved), job, home, on_closed)
        child.restore(saved)
        if (file := job.record_file()) is not None:
            # Only jobs with such a file need this.
            from exec_server.process.denial_watch import DenialWatch

            child.denials = DenialWatch.restored(saved.process_id, file, push=child.push)
        if saved.sandbox is not None:
            self.jobs.spawner.has_confined = True
        fds = None
        if left.kept is not None:
            fds = self.jobs.spawner.adopt(left.kept, child.reaped)
        if left.kept is not None and fds is not None and "lost" not in job.log.notes:
            child.go_on(left.kept, fds, left.status)
        else:
            close_all(fds or ())
            job.release()
            child.finish(self.jobs.state.status(left.name), self.jobs.lost_reason(saved))
        return child

    def add(self, child: Child) -> None:
        assert isinstance(child, DurableChild)
        if not self._children:
            self.on_first()
        self._children[child] = None
        self._marks.add(child.job.saved.mark)
        self.jobs.add(child)

    def discard(self, child: Child) -> None:
        assert isinstance(child, DurableChild)
        self.jobs.discard(child)
        self._marks.discard(child.job.saved.mark)
        if self._children.pop(child, child) is None and not self._children:
            self.on_none()

    def end_all(self) -> None:
        """Kill everything that the jobs of the session have left."""
        self.jobs.spawner.end_tree(self.mark, _SESSION_MASK)


def _params(saved: StoredJob) -> process.StartParams:
    """The request that has started a job, as far as it still matters."""
    return process.StartParams(
        saved.process_id,
        saved.argv,
        saved.cwd,
        {},
        saved.tty,
        rows=saved.rows,
        cols=saved.cols,
        exit_signals=saved.exit_signals,
        details=saved.details,
        report=saved.report,
        flow_window=saved.flow_window,
        name=saved.name,
        driver=saved.driver,
        screen=saved.screen,
        durable=True,
    )

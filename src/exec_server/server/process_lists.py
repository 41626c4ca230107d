"""The answer to `job/list`: processes of all sessions of a principal."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from exec_server.process.child import Child
from exec_server.protocol import jobs
from exec_server.server.session import Session


def list_jobs(sessions: Iterable[Session], owner: str | None, *, every: bool) -> jobs.JobListResult:
    """The durable processes of all sessions of *owner*, or *every* process; None: all owners."""
    found = [
        _described(session, child, tells_owner=owner is None)
        for session in sessions
        if owner in (None, session.owner)
        for child in session.processes.children()
        if every or child.is_durable
    ]
    return jobs.JobListResult(sorted(found, key=lambda job: job.started_at))


def _described(session: Session, child: Child, *, tells_owner: bool) -> jobs.JobInfo:
    is_lost = child.lost is not None and child.state != "running"
    info = jobs.JobInfo(
        session_id=session.id,
        process_id=child.process_id,
        argv=child.argv,
        cwd=child.cwd,
        tty=child.is_tty,
        state="lost" if is_lost else child.state,
        exit_code=child.exit_code,
        lost=child.lost if is_lost else None,
        pid=child.pid if child.state == "running" else None,
        started_at=child.started_at,
        ended_at=child.ended_at,
        next_seq=child.log.next_seq,
        attached=session.is_attached,
        owner=session.owner if tells_owner else None,
        output_bytes=child.log.total_bytes,
        name=child.name,
        durable=child.is_durable,
        end=child.end or UNSET,
        usage=child.usage or UNSET,
    )
    if child.denials is not None:
        info.denied = child.denials.total
    if child.guard is not None:
        info.viewers, info.driver = child.guard.viewers, child.guard.other_driver
    return info

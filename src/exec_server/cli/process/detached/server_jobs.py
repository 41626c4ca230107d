"""The durable jobs that a server lists: their short ids, and how to continue with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from exec_server.cli import server_access
from exec_server.cli.process.detached.detach import ServerAccess
from exec_server.cli.process.detached.saved_sessions import SHORTEST_ID, SavedSession, SessionStore
from exec_server.client.session_token import Cursor, SessionToken
from exec_server.errors import ConfigurationError, InvalidParams, ScopeRefused
from exec_server.protocol.jobs import JobInfo

# Between the id of a process and the beginning of its session's id, where two sessions have a
# process of the same id.
_IN_SESSION = "@"


async def ask_jobs(
    server: str, access: ServerAccess, *, all_principals: bool = False
) -> list[JobInfo]:
    """The jobs and running processes of this principal, or of all, on *server*, the oldest first.

    Raises MethodNotFound if the server has no such jobs, ScopeRefused if only an admin may ask for
    all of them, and the errors of a connection.
    """
    async with access.open(server) as client:
        found = await client.jobs(all_principals=all_principals, every=True)
    # A process that is not durable and has ended is of no use to others.
    found = [job for job in found if job.durable or job.state == "running"]
    return sorted(found, key=lambda job: job.started_at)


async def ask_for_job(server: str, text: str, access: ServerAccess) -> JobInfo | None:
    """The job with the id *text*: one of this principal's own or, for an admin, any other one."""
    found = find_job(await ask_jobs(server, access), text, server=server)
    if found is not None:
        return found
    try:
        everyones = await ask_jobs(server, access, all_principals=True)
    except (ScopeRefused, InvalidParams):
        # Older servers do not know the question.
        return None
    return find_job(everyones, text, server=server)


def job_ids(jobs: Sequence[JobInfo]) -> list[str]:
    """A short id for each of *jobs*, which are all jobs of a server; `find_job` accepts it."""
    counts = Counter(job.process_id for job in jobs)
    return [
        _short(job.process_id, counts)
        if counts[job.process_id] == 1
        else f"{job.process_id}{_IN_SESSION}{job.session_id[:SHORTEST_ID]}"
        for job in jobs
    ]


def _short(process_id: str, known: Counter[str]) -> str:
    for length in range(SHORTEST_ID, len(process_id)):
        start = process_id[:length]
        if not any(each != process_id and each.startswith(start) for each in known):
            return start
    return process_id


def find_job(jobs: Sequence[JobInfo], text: str, *, server: str) -> JobInfo | None:
    """The job whose id or name is *text*, or is the only one to begin with it; None without one.

    A name may be used again: it is that of the job that runs or, if none does, of the newest one.
    Raises ConfigurationError if there are several.
    """
    start, _, session = text.rpartition(_IN_SESSION)
    found = [
        job
        for job in jobs
        if job.process_id.startswith(text)
        or (start and job.process_id == start and job.session_id.startswith(session))
    ]
    exact = [job for job in found if job.process_id in (text, start)]
    named = [job for job in jobs if job.name == text]
    found = exact or _current(named) or found
    if len(found) > 1:
        names = dict(zip(map(id, jobs), job_ids(jobs), strict=True))
        fit = "have the name" if named and not exact else "begin with"
        several = ", ".join(names[id(job)] for job in found)
        raise ConfigurationError(
            f"several jobs on {server_access.shown(server)} {fit} `{text}`: {several}"
        )
    return found[0] if text and found else None


def _current(named: list[JobInfo]) -> list[JobInfo]:
    if running := [job for job in named if job.state == "running"]:
        return running
    return [max(named, key=lambda job: job.started_at)] if named else []


def as_session(
    job: JobInfo, store: SessionStore, *, server: str, access: ServerAccess
) -> SavedSession:
    """A record of *job*, as the program that has started it would have saved one."""
    cursors = {job.process_id: Cursor(is_terminal=job.tty)}
    return SavedSession(
        id=store.free_id(job.process_id),
        server=server,
        session_token=str(SessionToken(job.session_id, cursors)),
        process_id=job.process_id,
        argv=job.argv,
        tty=job.tty,
        started_at=job.started_at / 1000,
        token_file=access.token_path,
        pin=access.pin,
        durable=job.durable,
        name=job.name,
    )

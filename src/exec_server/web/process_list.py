"""The processes and durable jobs of an environment, as the page lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.errors import ExecServerError, InvalidRequest, MethodNotFound, ScopeRefused
from exec_server.protocol.ends import EndReport, Usage

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.protocol.jobs import JobInfo
    from exec_server.web.places import PagePlaces, Place

# More would not be looked at; the newest are shown.
MAX_LISTED = 500


def end_facts(end: EndReport | UnsetType | None, usage: Usage | UnsetType | None) -> dict[str, Any]:
    """Why a process ended and what it used, if the server says."""
    return {
        "end": msgspec.to_builtins(end) if isinstance(end, EndReport) else None,
        "usage": msgspec.to_builtins(usage) if isinstance(usage, Usage) else None,
    }


async def list_processes(place: Place, places: PagePlaces) -> list[dict[str, Any]]:
    """Those of the page's own session, and all of the same principal that the server lists."""
    client = place.client
    shown = {each.process_id: each for each in places.shown.values() if each.place is place}
    jobs = await _jobs(client)
    known = {job.process_id for job in jobs}
    found = [_job_facts(job, own_session=client.session_id) for job in jobs]
    found += [each for each in await _own(client) if each["processId"] not in known]
    for facts in found:
        opened = shown.get(facts["processId"])
        facts["shown"] = None if opened is None else opened.id
        if opened is not None and facts["startedAt"] is None:
            facts["startedAt"] = opened.started_at
    found.sort(key=lambda each: (each["state"] != "running", -(each["startedAt"] or 0)))
    return found[:MAX_LISTED]


async def find_listed_job(place: Place, session_id: str, process_id: str) -> JobInfo:
    """The durable job with these ids. Raises InvalidRequest if it is gone."""
    for job in await place.client.jobs():
        if (job.session_id, job.process_id) == (session_id, process_id):
            return job
    raise InvalidRequest("the server does not list this job any more")


async def _jobs(client: ExecServerClient) -> list[JobInfo]:
    try:
        return await client.jobs(every=True)
    except (MethodNotFound, ScopeRefused):
        return []


async def _own(client: ExecServerClient) -> list[dict[str, Any]]:
    try:
        listed = await client.list_processes()
    except (MethodNotFound, ScopeRefused):
        return []
    return [
        {
            "processId": each.process_id,
            "sessionId": None,
            "argv": each.argv,
            "state": "exited" if each.state == "closed" else each.state,
            "terminal": each.tty,
            "pid": each.pid,
            "exitCode": each.exit_code,
            "lost": None if each.lost is UNSET else each.lost,
            "durable": each.durable is True,
            "startedAt": None if each.started_at is UNSET else each.started_at,
            "endedAt": None,
            "attached": True,
            **end_facts(each.end, each.usage),
        }
        for each in listed
    ]


def _job_facts(job: JobInfo, *, own_session: str | None) -> dict[str, Any]:
    return {
        "processId": job.process_id,
        "sessionId": None if job.session_id == own_session else job.session_id,
        "argv": job.argv,
        "name": job.name,
        "state": "exited" if job.state == "closed" else job.state,
        "terminal": job.tty,
        "pid": job.pid,
        "exitCode": job.exit_code,
        "lost": job.lost,
        "durable": job.durable,
        "startedAt": job.started_at,
        "endedAt": job.ended_at,
        "attached": job.attached,
        **end_facts(job.end, job.usage),
    }


def error_facts(exc: ExecServerError | OSError | ValueError) -> dict[str, Any]:
    """An error as the page gets it: words, and a number if it came from the server."""
    return {"message": str(exc) or type(exc).__name__, "code": getattr(exc, "code", None)}

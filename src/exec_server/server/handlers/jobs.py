"""`job/*` and `server/stop`."""

from __future__ import annotations

from exec_server.errors import InvalidRequest
from exec_server.protocol import jobs
from exec_server.protocol.method import NOTHING, Nothing
from exec_server.rpc.router import handles
from exec_server.server import process_lists
from exec_server.server.context import Context

_NO_STOP = "this server is a part of another program, which alone can stop it"


@handles(jobs.LIST)
def list_jobs(ctx: Context, params: jobs.JobListParams) -> jobs.JobListResult:
    ctx.require(jobs.LIST.family)
    owner = _owner(ctx, jobs.LIST.name, is_all=params.all)
    return process_lists.list_jobs(ctx.server.sessions, owner, every=params.every)


@handles(jobs.PRUNE)
def prune(ctx: Context, params: jobs.PruneParams) -> jobs.PruneResult:
    ctx.require(jobs.PRUNE.family)
    owner = _owner(ctx, jobs.PRUNE.name, is_all=params.all)
    kept = ctx.server.jobs
    return jobs.PruneResult(0) if kept is None else kept.prune(owner, params)


def _owner(ctx: Context, method: str, *, is_all: bool) -> str | None:
    """Whose jobs are meant; None stands for all principals, which an admin may ask for."""
    if is_all:
        ctx.require_scope("admin", f"{method} of all principals")
        return None
    return ctx.principal


@handles(jobs.STOP)
def stop(ctx: Context, params: jobs.StopParams) -> Nothing:
    ctx.require(jobs.STOP.family)
    if ctx.server.on_stop is None:
        raise InvalidRequest(_NO_STOP)
    if params.jobs and ctx.server.jobs is not None:
        ctx.server.jobs.end_jobs()
    ctx.server.on_stop()
    return NOTHING

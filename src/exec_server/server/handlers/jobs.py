"""`job/*` and `server/stop`."""

from __future__ import annotations

from exec_server.errors import InvalidRequest
from exec_server.protocol import jobs
from exec_server.protocol.method import NOTHING, Nothing
from exec_server.rpc.router import handles
from exec_server.server.context import Context

_NO_STOP = "this server is a part of another program, which alone can stop it"


@handles(jobs.LIST)
def list_jobs(ctx: Context, params: Nothing) -> jobs.JobListResult:
    ctx.require(jobs.LIST.family)
    kept = ctx.server.jobs
    return jobs.JobListResult([]) if kept is None else kept.list(ctx.principal)


@handles(jobs.PRUNE)
def prune(ctx: Context, params: jobs.PruneParams) -> jobs.PruneResult:
    ctx.require(jobs.PRUNE.family)
    kept = ctx.server.jobs
    return jobs.PruneResult(0) if kept is None else kept.prune(ctx.principal, params)


@handles(jobs.STOP)
def stop(ctx: Context, params: jobs.StopParams) -> Nothing:
    ctx.require(jobs.STOP.family)
    if ctx.server.on_stop is None:
        raise InvalidRequest(_NO_STOP)
    if params.jobs and ctx.server.jobs is not None:
        ctx.server.jobs.end_jobs()
    ctx.server.on_stop()
    return NOTHING

"""`initialize` and `session/retain`."""

from __future__ import annotations

from exec_server.errors import InvalidParams, InvalidRequest
from exec_server.protocol import lifecycle
from exec_server.rpc.router import handles
from exec_server.server.context import Context


@handles(lifecycle.INITIALIZE)
def initialize(ctx: Context, params: lifecycle.InitializeParams) -> lifecycle.InitializeResult:
    if ctx.session is not None:
        raise InvalidRequest("initialize may only be sent once per connection")
    asked = params.concurrent_requests
    if asked is not None and asked < 1:
        raise InvalidParams("concurrentRequests must be at least 1")
    session = ctx.server.open_session(ctx, params.resume_session_id)
    result = lifecycle.InitializeResult(session.id, ctx.server.environment_info)
    if asked is not None:
        ctx.concurrency = max(
            ctx.concurrency, min(asked, ctx.server.limits.max_concurrent_requests)
        )
        result.concurrent_requests = ctx.concurrency
    if params.resume_session_id is not None:
        windows = params.flow_processes if ctx.can_acknowledge else None
        session.processes.resume_windows(windows or {})
        result.retained_seconds = session.retained_seconds
    return result


@handles(lifecycle.RETAIN)
def retain(ctx: Context, params: lifecycle.RetainParams) -> lifecycle.RetainResult:
    session = ctx.require(lifecycle.RETAIN.family)
    return lifecycle.RetainResult(ctx.server.retain(session, params.seconds))

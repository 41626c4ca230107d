"""`initialize`, `session/retain` and `session/ping`."""

from __future__ import annotations

import asyncio

from msgspec import to_builtins

from exec_server.access.principal import in_order
from exec_server.errors import InvalidParams, InvalidRequest
from exec_server.protocol import lifecycle
from exec_server.protocol.method import NOTHING, Nothing
from exec_server.rpc.router import handles
from exec_server.server.context import Context
from exec_server.server.take_over import is_silent

_FAREWELL_SECONDS = 0.1


@handles(lifecycle.INITIALIZE)
def initialize(
    ctx: Context, params: lifecycle.InitializeParams
) -> lifecycle.InitializeResult | asyncio.Future[lifecycle.InitializeResult]:
    if ctx.session is not None:
        raise InvalidRequest("initialize may only be sent once per connection")
    if ctx.refusal is not None:
        # The client reads the reason first.
        asyncio.get_running_loop().call_later(_FAREWELL_SECONDS, ctx.connection.close, "refused")
        raise ctx.refusal
    # A principal whose floors cannot be held here gets no session.
    _ = ctx.floors
    asked = params.concurrent_requests
    if asked is not None and asked < 1:
        raise InvalidParams("concurrentRequests must be at least 1")
    holder = ctx.server.doubtful_holder(ctx, params)
    if holder is not None:
        return asyncio.ensure_future(_initialize_after_probe(ctx, params, holder))
    result = _initialize(ctx, params)
    ctx.server.attach(ctx)
    return result


def _initialize(ctx: Context, params: lifecycle.InitializeParams) -> lifecycle.InitializeResult:
    """Give the session to the connection; its events do not go there yet."""
    asked = params.concurrent_requests
    session = ctx.server.open_session(ctx, params)
    ctx.peer.tells_details = params.error_details
    if params.packed:
        ctx.peer.take_packed()
        ctx.peer.send_packed()
    session.hears_sharing = params.sharing
    session.client_name = params.client_name[:64]
    info = ctx.server.environment_info
    if ctx.floors is not None:
        info = ctx.floors.info(info)
    result = lifecycle.InitializeResult(session.id, info, packed=ctx.peer.sends_packed)
    if asked is not None:
        ctx.concurrency = max(
            ctx.concurrency, min(asked, ctx.server.limits.max_concurrent_requests)
        )
        result.concurrent_requests = ctx.concurrency
    if asked is not None or params.take_over is not None:
        result.generation = ctx.server.generation(session)
        result.server_instance = ctx.server.instance
    if params.resume_session_id is not None:
        windows = params.flow_processes if ctx.can_acknowledge else None
        session.processes.resume_windows(windows or {})
        result.retained_seconds = session.retained_seconds
    return result


async def _initialize_after_probe(
    ctx: Context, params: lifecycle.InitializeParams, holder: Context
) -> lifecycle.InitializeResult:
    """Take the session from *holder* unless its client gives a sign of life."""
    if await is_silent(holder.peer, seconds=ctx.server.limits.take_over_probe):
        ctx.server.displace(holder)
    result = _initialize(ctx, params)
    # The answer leaves in the next turn of the event loop (see Peer), and events come after it.
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, ctx.server.attach, ctx)
    return result


@handles(lifecycle.RETAIN)
def retain(ctx: Context, params: lifecycle.RetainParams) -> lifecycle.RetainResult:
    session = ctx.require(lifecycle.RETAIN.family)
    return lifecycle.RetainResult(ctx.server.retain(session, params.seconds))


@handles(lifecycle.WHOAMI)
def whoami(ctx: Context, params: Nothing) -> lifecycle.WhoamiResult:
    ctx.require(lifecycle.WHOAMI.family)
    who = ctx.who
    return lifecycle.WhoamiResult(
        who.name,
        list(in_order(who.may)),
        to_builtins(who.floors),
        to_builtins(who.quotas),
        who.kind,
    )


@handles(lifecycle.PING)
def ping(ctx: Context, params: Nothing) -> Nothing:
    ctx.require(lifecycle.PING.family)
    return NOTHING

"""`process/denials` and `process/grant`: what a sandbox refused, and what is allowed after all."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from exec_server.errors import FloorRefused, InvalidRequest
from exec_server.protocol import denials
from exec_server.rpc.router import handles
from exec_server.server.context import Context
from exec_server.server.handlers.process import start_under


@handles(denials.DENIALS)
def list_denials(ctx: Context, params: denials.DenialsParams) -> Awaitable[denials.DenialsResult]:
    watch = ctx.child(params.process_id).denials
    if watch is None:
        raise InvalidRequest(f"process {params.process_id} was started without `denials`")
    return watch.report()


@handles(denials.GRANT)
def grant(
    ctx: Context, params: denials.GrantParams
) -> denials.GrantResult | Awaitable[denials.GrantResult]:
    floors = ctx.who.floors
    if params.scope != "never" and (floors.sandbox is not None or floors.roots):
        raise FloorRefused(f"the rights of `{ctx.who.name}` end at a floor; no grant lifts it")
    if params.restart and params.scope in ("process", "session"):
        return ctx.processes.restart(params, partial(start_under, ctx))
    return ctx.processes.grant_denied(params)

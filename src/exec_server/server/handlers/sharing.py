"""`process/watch`, `process/unwatch` and `process/control`."""

from __future__ import annotations

from collections.abc import Awaitable

from msgspec import structs

from exec_server.protocol import sharing
from exec_server.protocol.method import NOTHING, Nothing
from exec_server.rpc.router import handles
from exec_server.server.context import Context


@handles(sharing.WATCH)
def watch(ctx: Context, params: sharing.WatchParams) -> Awaitable[sharing.WatchResult]:
    return ctx.server.sharing.watch(ctx, params)


@handles(sharing.UNWATCH)
def unwatch(ctx: Context, params: sharing.UnwatchParams) -> Nothing:
    ctx.server.sharing.unwatch(ctx.require(sharing.UNWATCH.family), params.watch_id)
    return NOTHING


@handles(sharing.CONTROL)
def control(ctx: Context, params: sharing.ControlParams) -> sharing.ControlState:
    if ctx.who.kind == "agent":
        # It stays one, whatever it says, also if it was a person before its rights changed.
        params = structs.replace(params, kind="agent")
    return ctx.server.sharing.control(ctx.require(sharing.CONTROL.family), params)

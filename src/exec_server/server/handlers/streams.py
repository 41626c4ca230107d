"""`stream/*` and `process/ports`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from exec_server.errors import FloorRefused, InvalidParams
from exec_server.protocol import streams
from exec_server.protocol.method import NOTHING, Nothing
from exec_server.rpc.router import handles
from exec_server.server.context import Context


@handles(streams.OPEN)
def open_stream(ctx: Context, params: streams.OpenParams) -> Awaitable[streams.OpenResult]:
    table = ctx.streams
    _check_place(params)
    floors = ctx.floors
    floor = None if floors is None else floors.hosts
    if floor is None or params.path is not None:
        _refuse_floors(ctx)
    return table.open(params, floor)


@handles(streams.LISTEN)
def listen(ctx: Context, params: streams.ListenParams) -> Awaitable[streams.ListenResult]:
    table = ctx.streams
    _check_place(params)
    _refuse_floors(ctx)
    return table.listen(params)


@handles(streams.CLOSE)
def close(ctx: Context, params: streams.CloseParams) -> Nothing:
    ctx.streams.close_ids(params.ids)
    return NOTHING


@handles(streams.RESUME)
def resume(ctx: Context, params: streams.ResumeParams) -> streams.ResumeResult:
    return ctx.streams.resume(params)


@handles(streams.LIST)
def list_streams(ctx: Context, params: streams.StreamListParams) -> streams.StreamListResult:
    ctx.require(streams.FAMILY)
    found = ctx.server.stream_infos(ctx, is_all=params.all)
    return streams.StreamListResult(list(found))


@handles(streams.PORTS)
def ports(ctx: Context, params: streams.PortsParams) -> Awaitable[streams.PortsResult]:
    from exec_server.server.streams.listening_ports import StartedTree, find_ports

    ctx.require(streams.PORTS.family)
    started = [
        StartedTree(
            child.process_id, (child.pid or 0) if child.state == "running" else 0, child.mark
        )
        for session in ctx.server.sessions_of(ctx, is_all=params.all)
        for child in session.processes.started_children()
        if params.process_id in (None, child.process_id)
    ]
    return asyncio.to_thread(find_ports, started)


def _check_place(params: streams.OpenParams | streams.ListenParams) -> None:
    has_port = params.port is not None
    if has_port == (params.path is not None):
        raise InvalidParams("give either a host and a port, or the path of a Unix socket")
    if params.path is not None and not params.path.startswith("/"):
        raise InvalidParams("the path of a Unix socket begins with /")


def _refuse_floors(ctx: Context) -> None:
    """Raise FloorRefused if a stream would go around the floors of the principal.

    The server itself connects and listens, outside of every sandbox and as its own user.
    """
    floors = ctx.floors
    if floors is not None and (floors.holds_files or floors.hosts is not None):
        raise FloorRefused(
            f"the rights of `{ctx.who.name}` end at a floor, which streams would go around; "
            "they may reach only the TCP ports of its `hosts`"
        )

"""`process/*`: each handler is one call to the session's process table."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from msgspec import structs

from exec_server.errors import FloorRefused, InvalidRequest
from exec_server.process.process_table import signal_number
from exec_server.process.start_terms import NO_TERMS, StartTerms
from exec_server.protocol import process
from exec_server.protocol.ends import EndedBy
from exec_server.protocol.method import NOTHING, Nothing
from exec_server.rpc.router import handles
from exec_server.server.context import Context
from exec_server.server.floors.accounts import chosen_account


@handles(process.START)
def start(ctx: Context, params: process.StartParams) -> Awaitable[process.StartResult]:
    if ctx.watch(params.process_id) is not None:
        raise InvalidRequest(f"{params.process_id} is the id of a watch")
    if params.flow_window is not None and not ctx.can_acknowledge:
        # Acknowledgements would wait behind requests, so the process gets no window.
        params = structs.replace(params, flow_window=None)
    return start_under(ctx, params, NO_TERMS)


def start_under(
    ctx: Context, params: process.StartParams, terms: StartTerms
) -> Awaitable[process.StartResult]:
    """Start a process within the floors and quotas of the principal.

    *terms* hold if the principal has no floors of its own.
    """
    processes, floors, quotas = ctx.processes, ctx.floors, ctx.server.quotas
    if params.driver is not None:
        params = structs.replace(params, driver=ctx.who.kind_of(params.driver))
    if floors is not None:
        if params.learn:
            raise FloorRefused(f"the rights of `{ctx.who.name}` end at a floor; it cannot learn")
        if params.granted:
            raise FloorRefused(f"the rights of `{ctx.who.name}` end at a floor; no grant lifts it")
        params, terms = floors.start(params)
    if params.user is not None:
        terms = structs.replace(terms, account=chosen_account(params.user, ctx.who))
    if not quotas.counts(ctx.who):
        return processes.start(params, terms)
    return quotas.start(ctx.who, partial(processes.start, params), terms)


@handles(process.READ)
def read(
    ctx: Context, params: process.ReadParams
) -> process.ReadResult | Awaitable[process.ReadResult]:
    watch = ctx.watch(params.process_id)
    return ctx.processes.read(params) if watch is None else watch.read(params)


@handles(process.WRITE)
def write(
    ctx: Context, params: process.WriteParams
) -> process.WriteResult | Awaitable[process.WriteResult]:
    result: process.WriteResult | Awaitable[process.WriteResult]
    result = ctx.holder(params.process_id).write(params)
    return result


@handles(process.SIGNAL)
def signal(ctx: Context, params: process.SignalParams) -> Nothing:
    # The name is a part of the parameters, so it is checked before the handshake.
    signum = signal_number(params.signal)
    watch = ctx.watch(params.process_id)
    if watch is None:
        ctx.processes.signal(params.process_id, signum, _asker(ctx))
    else:
        watch.signal(signum, _asker(ctx))
    return NOTHING


@handles(process.TERMINATE)
def terminate(ctx: Context, params: process.TerminateParams) -> process.TerminateResult:
    watch = ctx.watch(params.process_id)
    if watch is None:
        return ctx.processes.terminate(params, _asker(ctx))
    return watch.terminate(params, _asker(ctx))


def _asker(ctx: Context) -> EndedBy:
    """The client of a request that may end a process."""
    session = ctx.session
    session_id = None if session is None else session.id
    return EndedBy("client", principal=ctx.who.name, session_id=session_id)


@handles(process.RESIZE)
def resize(ctx: Context, params: process.ResizeParams) -> Nothing:
    watch = ctx.watch(params.process_id)
    if watch is None:
        ctx.processes.resize(params)
    else:
        watch.resize(params)
    return NOTHING


@handles(process.CLOSE_STDIN)
def close_stdin(ctx: Context, params: process.CloseStdinParams) -> process.WriteResult:
    watch = ctx.watch(params.process_id)
    return ctx.processes.close_stdin(params) if watch is None else watch.close_stdin(params)


@handles(process.LIST)
def list_processes(ctx: Context, params: Nothing) -> process.ListResult:
    return ctx.processes.list()

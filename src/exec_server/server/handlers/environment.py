"""`environment/*`, `environmentConfig/*` and the discovery of capabilities."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from exec_server.errors import FloorRefused
from exec_server.protocol import environment
from exec_server.protocol.method import Encoded, Nothing
from exec_server.rpc.router import handles
from exec_server.server.context import Context

if TYPE_CHECKING:
    from exec_server.discovery.discovery_service import Confine
    from exec_server.server.floors.principal_floors import PrincipalFloors

_READY = environment.StatusResult()


@handles(environment.INFO)
def info(
    ctx: Context, params: Nothing
) -> environment.EnvironmentInfo | Awaitable[environment.EnvironmentInfo]:
    ctx.require(environment.INFO.family)
    if ctx.floors is not None:
        return _info_within(ctx, ctx.floors)
    known = ctx.server.environment_info
    return known if known.sandbox else ctx.server.full_environment_info()


async def _info_within(ctx: Context, floors: PrincipalFloors) -> environment.EnvironmentInfo:
    return floors.info(await ctx.server.full_environment_info())


@handles(environment.STATUS)
def status(ctx: Context, params: Nothing) -> environment.StatusResult:
    ctx.require(environment.STATUS.family)
    return _READY


@handles(environment.READ_CONFIG)
def read_config(
    ctx: Context, params: environment.ConfigReadParams
) -> Awaitable[environment.ConfigReadResult]:
    ctx.require(environment.READ_CONFIG.family)
    if ctx.floors is not None and ctx.floors.hides_files:
        raise FloorRefused("the configuration of the server is not for this principal")
    return ctx.server.discovery.read_config(params)


@handles(environment.DISCOVER_ROOTS)
def discover_roots(ctx: Context, params: environment.DiscoverRootsParams) -> Awaitable[Encoded]:
    ctx.require(environment.DISCOVER_ROOTS.family)
    if ctx.floors is not None:
        for root in params.roots:
            ctx.floors.check_paths(root)
    return ctx.server.discovery.discover_roots(params, _confine(ctx))


@handles(environment.DISCOVER)
def discover(
    ctx: Context, params: environment.DiscoverParams
) -> Awaitable[environment.CapabilitiesResult | Encoded]:
    ctx.require(environment.DISCOVER.family)
    return ctx.server.discovery.discover(params, _confine(ctx))


def _confine(ctx: Context) -> Confine:
    """How scans of this connection are confined, by their own sandbox and by the floors."""
    floors = ctx.floors
    if floors is not None and floors.holds_files:
        return lambda sandbox: ctx.server.files.discovery_within(sandbox, floors.file_terms)
    return lambda sandbox: None if sandbox is None else ctx.server.files.discovery_within(sandbox)

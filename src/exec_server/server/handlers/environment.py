"""`environment/*`."""

from __future__ import annotations

from exec_server.protocol import environment
from exec_server.protocol.method import Nothing
from exec_server.rpc.router import handles
from exec_server.server.context import Context

_READY = environment.StatusResult()


@handles(environment.INFO)
def info(ctx: Context, params: Nothing) -> environment.EnvironmentInfo:
    ctx.require(environment.INFO.family)
    return ctx.server.environment_info


@handles(environment.STATUS)
def status(ctx: Context, params: Nothing) -> environment.StatusResult:
    ctx.require(environment.STATUS.family)
    return _READY

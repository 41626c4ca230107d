"""`http/*`: requests to other machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from exec_server.errors import InternalError
from exec_server.outbound.shortages import UNUSUAL, shortage
from exec_server.protocol import http
from exec_server.protocol.method import Encoded
from exec_server.rpc.router import handles
from exec_server.server.context import Context


@handles(http.REQUEST)
def request(ctx: Context, params: http.RequestParams) -> Awaitable[http.RequestResult | Encoded]:
    ctx.require(http.REQUEST.family)
    refused = ctx.server.quotas.rate_refusal(ctx.who)
    if refused is not None:
        return refused
    if ctx.server.is_http_loaded:
        return ctx.exchanges.request(params)
    return _first_request(ctx, params)


async def _first_request(ctx: Context, params: http.RequestParams) -> http.RequestResult | Encoded:
    try:
        await asyncio.shield(ctx.server.http_loaded)
    except (OSError, *UNUSUAL) as exc:
        missing = shortage(exc)
        if missing is None:
            raise
        raise InternalError(f"http/request failed: {missing}") from exc
    return await ctx.exchanges.request(params)

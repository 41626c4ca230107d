"""`http/*`: requests to other machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from exec_server.protocol import http
from exec_server.protocol.method import Encoded
from exec_server.rpc.router import handles
from exec_server.server.context import Context


@handles(http.REQUEST)
def request(ctx: Context, params: http.RequestParams) -> Awaitable[http.RequestResult | Encoded]:
    ctx.require(http.REQUEST.family)
    if ctx.server.http_loaded.done():
        return ctx.exchanges.request(params)
    return _first_request(ctx, params)


async def _first_request(ctx: Context, params: http.RequestParams) -> http.RequestResult | Encoded:
    await asyncio.shield(ctx.server.http_loaded)
    return await ctx.exchanges.request(params)

"""`rpc.discover`."""

from __future__ import annotations

from exec_server.protocol import lifecycle
from exec_server.protocol.method import Encoded, Nothing, Reply
from exec_server.rpc.router import handles
from exec_server.server.context import Context


@handles(lifecycle.DISCOVER)
def discover(ctx: Context, params: Nothing) -> Reply[lifecycle.ProtocolDocument]:
    ctx.require(lifecycle.DISCOVER.family)
    from exec_server.schema.openrpc import short_openrpc

    return Encoded((short_openrpc(),))

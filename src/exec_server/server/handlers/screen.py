"""`process/screen` and `process/waitFor`: what a terminal shows."""

from __future__ import annotations

from collections.abc import Awaitable

from exec_server.protocol import screen
from exec_server.protocol.method import Encoded
from exec_server.rpc.router import handles
from exec_server.server.context import Context


@handles(screen.SCREEN)
def show(ctx: Context, params: screen.ScreenParams) -> Awaitable[Encoded]:
    return ctx.server.screens.screen(ctx.child(params.process_id), params)


@handles(screen.WAIT_FOR)
def wait_for(ctx: Context, params: screen.WaitForParams) -> Awaitable[Encoded]:
    return ctx.server.screens.wait_for(ctx.child(params.process_id), params)

"""Drops connections that send no request in time; aiohttp would wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.web_protocol import RequestHandler


class FirstRequestTimeout:
    """Makes aiohttp's protocols, and drops those that got no request in time."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._silent: set[RequestHandler] = set()

    def protocols(self, server: web.Server) -> Callable[[], RequestHandler]:
        """The function that a listener calls for each connection."""

        def accept() -> RequestHandler:
            protocol = server()
            self._silent.add(protocol)
            asyncio.get_running_loop().call_later(self._seconds, self._drop, protocol)
            return protocol

        return accept

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self._silent.discard(request.protocol)
        return await handler(request)

    def _drop(self, protocol: RequestHandler) -> None:
        if protocol in self._silent:
            self._silent.discard(protocol)
            if protocol.transport is not None:
                protocol.transport.abort()

"""The bodies of streamed answers, as they arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from exec_server.client.flow.flow_control import FlowControl
from exec_server.errors import ConnectionClosed, HttpBodyFailed, ProtocolError
from exec_server.limits import Limits
from exec_server.protocol import http

# The cost of a piece besides its bytes, so that very many small pieces count, too.
_PIECE_COST = 128


class Budget:
    """The bytes that all bodies of a client may hold together before they are taken."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class HttpBody:
    """The pieces of one body, in order; each piece is given to one reader.

    A body belongs to the connection of its request, and fails when that is lost.
    """

    def __init__(
        self,
        request_id: str,
        *,
        budget: Budget,
        flow: FlowControl,
        behind_bytes: int,
        on_settled: Callable[[HttpBody], None],
    ) -> None:
        self.request_id = request_id
        self._budget = budget
        self._flow = flow
        self._behind_bytes = behind_bytes
        self._on_settled = on_settled
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._expected = 1
        self._is_whole = False
        self._error: Exception | None = None
        self._news = asyncio.Event()

    async def take(self) -> bytes:
        """The next piece; empty at the end.

        Raises HttpBodyFailed if the body has broken off, and ConnectionClosed if the connection is
        lost.
        """
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._is_whole:
                return b""
            self._news.clear()
            with self._flow.watching():
                await self._news.wait()
        piece = self._pieces.popleft()
        self._hold(-len(piece) - _PIECE_COST)
        return piece

    def receive(self, delta: http.BodyDelta) -> None:
        """The server has sent a piece."""
        data = delta.delta_base64.data
        if delta.seq != self._expected:
            text = f"http response body of {self.request_id}: expected delta {self._expected}"
            self._settle(HttpBodyFailed(f"{text}, got {delta.seq}"))
            return
        self._expected += 1
        if data:
            self._pieces.append(data)
            self._hold(len(data) + _PIECE_COST)
        if delta.error is not None:
            self._settle(HttpBodyFailed(f"http response body failed: {delta.error}"))
        elif delta.done:
            self._is_whole = True
            self._settle(None)
        elif self._budget.used > self._budget.limit:
            self.drop()
            self._settle(HttpBodyFailed("http response body was not taken fast enough"))
        self._news.set()

    def fail(self, error: ConnectionClosed) -> None:
        """Nothing more will arrive; what is here can still be taken."""
        self._settle(error)

    def drop(self) -> None:
        """Forget what is here and will not be taken."""
        self._pieces.clear()
        self._hold(-self._held)

    def _settle(self, error: Exception | None) -> None:
        if self._error is None and not (self._is_whole and error is not None):
            self._error = error
        self._news.set()
        self._on_settled(self)

    def _hold(self, change: int) -> None:
        """Count what is held. If it is much, the connection is read more slowly."""
        self._held += change
        self._budget.used += change
        if self._held > self._behind_bytes:
            self._flow.fall_behind(self)
        elif self._held - change > self._behind_bytes:
            self._flow.catch_up(self)


class HttpBodies:
    """The bodies that the connection still delivers, by the id of their request."""

    def __init__(self, *, limits: Limits, flow: FlowControl) -> None:
        self._limits = limits
        self._flow = flow
        self._budget = Budget(limits.untaken_body_bytes)
        self._open: dict[str, HttpBody] = {}
        self._last_id = 0

    @property
    def has_open(self) -> bool:
        """True if the rest of a body is still to come."""
        return bool(self._open)

    def open(self) -> HttpBody:
        """A body with the next request id. Call it before the request leaves."""
        self._last_id += 1
        body = HttpBody(
            f"http-{self._last_id}",
            budget=self._budget,
            flow=self._flow,
            behind_bytes=self._limits.untaken_bytes,
            on_settled=self._settled,
        )
        self._open[body.request_id] = body
        return body

    def drop(self, body: HttpBody) -> None:
        """Forget a body and what it holds; the rest of it is ignored when it arrives."""
        self._settled(body)
        body.drop()

    def _settled(self, body: HttpBody) -> None:
        self._open.pop(body.request_id, None)

    def delta_received(self, delta: http.BodyDelta) -> None:
        """Deliver a part of a body; a part of a body that was dropped is ignored."""
        limit = self._limits.http_delta_bytes
        if len(delta.delta_base64.data) > limit:
            raise ProtocolError(f"{http.BODY_DELTA.name} of more than {limit} bytes")
        body = self._open.get(delta.request_id)
        if body is not None:
            body.receive(delta)

    def connection_lost(self, error: ConnectionClosed) -> None:
        for body in tuple(self._open.values()):
            body.fail(type(error)(str(error)))

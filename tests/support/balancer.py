"""A TCP load balancer on the loopback, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

_DIAL_SECONDS = 2.0


class Balancer:
    """Round robin over the *ports* that accept; `async with balancer.run():` opens it.

    As long as *first*, an index, accepts, it gets every connection.
    """

    def __init__(self, ports: Sequence[int], *, first: int | None = None, port: int = 0) -> None:
        self._ports = ports
        self._turn = 0
        self._lines: dict[_Line, None] = {}
        self._dialling: set[asyncio.Task[None]] = set()
        self.first = first
        self.port = port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def nodes(self) -> list[int]:
        """The ports of the nodes of all open WebSockets."""
        return [line.node for line in self._lines if line.node is not None and line.is_get]

    def cut(self, chance: float = 1.0, *, draw: random.Random | None = None) -> int:
        """Drop each connection with probability *chance*, and return how many were dropped."""
        chosen = [line for line in self._lines if draw is None or draw.random() < chance]
        for line in chosen:
            line.cut()
        return len(chosen)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[Balancer]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Near(self), "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in tuple(self._dialling):
                task.cancel()
            await asyncio.gather(*self._dialling, return_exceptions=True)
            self.cut()
            await server.wait_closed()

    # Called by lines.

    def opened(self, line: _Line) -> None:
        self._lines[line] = None
        task = asyncio.get_running_loop().create_task(self._dial(line))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    def closed(self, line: _Line) -> None:
        self._lines.pop(line, None)

    async def _dial(self, line: _Line) -> None:
        loop = asyncio.get_running_loop()
        for node in self._order():
            try:
                async with asyncio.timeout(_DIAL_SECONDS):
                    far = partial(_Far, line, node)
                    await loop.create_connection(far, "127.0.0.1", self._ports[node])
            except (OSError, TimeoutError):
                continue
            return
        line.cut()

    def _order(self) -> list[int]:
        self._turn += 1
        count = len(self._ports)
        order = [(self._turn + index) % count for index in range(count)]
        if self.first is not None:
            order.sort(key=lambda node: node != self.first)
        return order


class _Line:
    """A client's socket and a node's socket, joined."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._ends: list[asyncio.Transport] = []
        # Bytes that the client sent before the node was connected.
        self.early: list[bytes] = []
        self.node: int | None = None
        # True if it began with a GET; other requests than WebSockets begin with a POST.
        self.is_get = False

    def cut(self) -> None:
        for end in self._ends:
            end.abort()

    def add(self, end: asyncio.Transport) -> None:
        self._ends.append(end)

    def other(self, end: asyncio.Transport) -> asyncio.Transport | None:
        return next((each for each in self._ends if each is not end), None)

    def lost(self, end: asyncio.Transport) -> None:
        self._balancer.closed(self)
        other = self.other(end)
        if other is not None:
            # Bytes that were sent before still arrive.
            other.close()


class _End(asyncio.Protocol):
    """One of the two sockets. Bytes wait here only while the other socket is full."""

    _line: _Line
    _transport: asyncio.Transport

    def data_received(self, data: bytes) -> None:
        other = self._line.other(self._transport)
        if other is not None:
            other.write(data)
        else:
            self._line.early.append(data)
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        other = self._line.other(self._transport)
        if other is not None:
            other.pause_reading()

    def resume_writing(self) -> None:
        other = self._line.other(self._transport)
        if other is not None and not other.is_closing():
            other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._line.lost(self._transport)


class _Near(_End):
    """The socket of a client."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._line = _Line(balancer)
        self._has_spoken = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._line.add(transport)
        self._balancer.opened(self._line)

    def data_received(self, data: bytes) -> None:
        if not self._has_spoken:
            self._has_spoken = True
            self._line.is_get = data.startswith(b"GET ")
        super().data_received(data)


class _Far(_End):
    """The socket of a node."""

    def __init__(self, line: _Line, node: int) -> None:
        self._line = line
        self._node = node

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._line.node = self._node
        self._line.add(transport)
        near = self._line.other(transport)
        assert near is not None
        if near.is_closing():
            transport.abort()
        else:
            transport.writelines(self._line.early)
            near.resume_reading()

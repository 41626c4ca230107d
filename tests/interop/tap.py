"""Between Codex and a server: watches whole messages, and loses connections at a chosen one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal, NamedTuple

import websockets
from websockets.asyncio.server import Server, ServerConnection

from tests.interop.model import PATIENCE

Direction = Literal["up", "down"]


class Said(NamedTuple):
    """A message, and whether it went up to the server or down to the client."""

    direction: Direction
    message: dict[str, Any]

    @property
    def method(self) -> str | None:
        return self.message.get("method")


class Tap:
    """Passes everything on to *url* until it is told otherwise."""

    def __init__(self, url: str) -> None:
        self.target = url
        self.url = ""
        self.log: list[Said] = []
        # While true, new connections are refused.
        self.is_down = False
        # How often the client came, successful or not.
        self.dials = 0
        self._changed = asyncio.Condition()
        self._losing: Callable[[Said], bool] = lambda said: False
        self._pairs: set[tuple[Any, Any]] = set()
        self._released = asyncio.Event()
        self._released.set()

    # What a test may want.

    def cut(self) -> None:
        """Reset every connection now."""
        for pair in self._pairs:
            _reset(*pair)

    def cut_client(self) -> None:
        """Reset every connection, but leave the server to believe in it until `release`."""
        self._released = asyncio.Event()
        for client, _ in self._pairs:
            _reset(client)

    def release(self) -> None:
        """Let the server know what happened."""
        self._released.set()

    def lose_request(self, method: str) -> None:
        """The next request for *method* does not reach the server, and the connection is lost."""
        self._losing = lambda said: said.direction == "up" and said.method == method

    def lose_reply(self, method: str) -> None:
        """The next request for *method* is done, but its answer is lost with the connection."""
        asked: set[int] = set()

        def is_lost(said: Said) -> bool:
            if said.direction == "up" and said.method == method:
                asked.add(said.message["id"])
            return said.direction == "down" and said.message.get("id") in asked

        self._losing = is_lost

    def lose_event(self, method: str) -> None:
        """The next notification *method* is lost, and the connection with it."""
        self._losing = lambda said: said.direction == "down" and said.method == method

    def has_refused(self) -> bool:
        """Whether the server refused to resume a session, and the client has left since."""
        codes = [s.message.get("error", {}).get("code") for s in self.log if s.direction == "down"]
        return -32600 in codes and not self._pairs

    def methods(self, direction: Direction = "up") -> list[str]:
        return [s.method for s in self.log if s.direction == direction and s.method]

    async def until(self, is_so: Callable[[], object]) -> None:
        """Until a message or a connection makes *is_so* true."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(is_so)

    async def until_said(self, method: str, *, times: int = 1) -> None:
        """Until *method* has passed so often, either way."""
        await self.until(lambda: sum(said.method == method for said in self.log) >= times)

    # The rest.

    async def _serve(self, client: ServerConnection) -> None:
        with contextlib.suppress(OSError, websockets.WebSocketException):
            async with websockets.connect(
                self.target, compression=None, max_size=None, ping_interval=None, proxy=None
            ) as server:
                pair = (client, server)
                self._pairs.add(pair)
                pumps = [
                    asyncio.ensure_future(self._pump("up", client, server, pair)),
                    asyncio.ensure_future(self._pump("down", server, client, pair)),
                ]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                    await self._released.wait()
                finally:
                    self._pairs.discard(pair)
                    _reset(*pair)
                    await asyncio.gather(*pumps, return_exceptions=True)
                    await self._tell()

    async def _pump(self, direction: Direction, source: Any, sink: Any, pair: Any) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                # In the same frames as they came: a client may refuse large ones.
                frames = [frame async for frame in source.recv_streaming()]
                said = Said(direction, json.loads("".join(frames)))
                is_lost = self._losing(said)
                self.log.append(said)
                await self._tell()
                if is_lost:
                    self._losing = lambda said: False
                    _reset(*pair)
                    return
                await sink.send(frames if len(frames) > 1 else frames[0])

    async def _admit(self, connection: ServerConnection, request: Any) -> None:
        self.dials += 1
        await self._tell()
        if self.is_down:
            connection.transport.abort()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def listen(self) -> contextlib.AbstractAsyncContextManager[Server]:
        return websockets.serve(
            self._serve,
            "127.0.0.1",
            0,
            compression=None,
            max_size=None,
            ping_interval=None,
            process_request=self._admit,
        )


def _reset(*ends: Any) -> None:
    for end in ends:
        end.transport.abort()


@contextlib.asynccontextmanager
async def tapped(url: str) -> AsyncIterator[Tap]:
    """A tap on the way to *url*."""
    tap = Tap(url)
    async with tap.listen() as server:
        tap.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield tap
        finally:
            tap.release()
            tap.cut()

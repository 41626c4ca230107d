"""One rendezvous socket: a queue before it, a reader that can pause, pings that are answered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aiohttp import WSMsgType, web

from exec_server.hub.relay.routing import Harness
from exec_server.limits import Limits

Receive = Callable[[bytes], None]
# A message of this origin and size has left the queue.
Took = Callable[[Harness | None, int], None]


class Link:
    """A `Port` over a WebSocket. `carry` runs it; everything else may be called at any time."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        request: web.BaseRequest,
        *,
        limits: Limits,
        takes_text: bool = False,
    ) -> None:
        self._socket = socket
        self._transport = request.transport
        self._limits = limits
        self._takes_text = takes_text
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[bytes, Harness | None]] = deque()
        # Of several pings only the last has to be answered.
        self._pong: bytes | None = None
        self._ping_is_due = False
        self._farewell: tuple[int, str] | None = None
        self._says_goodbye = False
        self._work = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._heard_at = self._loop.time()
        self._took: Took = lambda origin, size: None

    def tell(self, took: Took) -> None:
        """Whom to tell what has left the queue; to be said before anything is queued."""
        self._took = took

    async def carry(self, receive: Receive) -> None:
        """Move messages until the socket is gone; what is queued then is given up."""
        # Nobody has listened so far.
        self._heard_at = self._loop.time()
        self._schedule_tick()
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self._write_on(), name="write to a rendezvous socket")
                try:
                    await self._read_on(receive)
                finally:
                    # A goodbye is finished: closing before the peer has read all would lose it.
                    if not self._says_goodbye:
                        writing.cancel()
        finally:
            self._timer.cancel()
            self.give_up()

    # A port.

    def send(self, data: bytes, origin: Harness | None) -> None:
        if self._farewell is not None:
            self._took(origin, len(data))
            return
        self._queue.append((data, origin))
        self._work.set()

    def discard(self) -> None:
        queue, self._queue = self._queue, deque()
        for data, origin in queue:
            self._took(origin, len(data))

    def end(self, code: int, reason: str) -> None:
        if self._farewell is None:
            self._farewell = (code, reason)
            self._work.set()
            self.resume()
            # However slowly it takes the rest.
            self._loop.call_later(self._limits.hub_write_timeout, self.abort)

    def pause(self) -> None:
        if self._farewell is None:
            self._may_read.clear()

    def resume(self) -> None:
        self._heard_at = self._loop.time()
        self._may_read.set()

    def cut(self, code: int, reason: str) -> None:
        """End now: say so if the peer reads, and be gone in a moment either way."""
        self.discard()
        self.end(code, reason)
        self._loop.call_later(self._limits.close_timeout, self.abort)

    def give_up(self) -> None:
        """Take nothing more, and forget what is queued."""
        self._farewell = self._farewell or (0, "")
        self.discard()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Reading.

    async def _read_on(self, receive: Receive) -> None:
        while True:
            await self._may_read.wait()
            message = await self._socket.receive()
            self._heard_at = self._loop.time()
            if self._farewell is not None and not self._socket.closed:
                # It may go on talking until it has heard the farewell.
                continue
            if message.type is WSMsgType.BINARY:
                receive(message.data)
            elif message.type is WSMsgType.PING:
                self._pong = bytes(message.data)
                self._work.set()
            elif message.type is WSMsgType.TEXT:
                self._refuse_text()
            elif message.type is not WSMsgType.PONG:
                return

    def _refuse_text(self) -> None:
        """Executors are forgiven, as they forgive us; they carry everybody's streams."""
        if not self._takes_text:
            self.end(1003, "a text message")

    # Writing.

    async def _write_on(self) -> None:
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                if await self._write_all():
                    return
        except (OSError, TimeoutError):
            # It is gone, or takes nothing: the reader will learn of it.
            self.abort()

    async def _write_all(self) -> bool:
        """Whether that was the end."""
        while self._queue or self._pong is not None or self._ping_is_due:
            async with asyncio.timeout(self._limits.hub_write_timeout):
                if self._pong is not None:
                    pong, self._pong = self._pong, None
                    await self._socket.pong(pong)
                elif self._ping_is_due:
                    self._ping_is_due = False
                    await self._socket.ping()
                else:
                    data, origin = self._queue[0]
                    await self._socket.send_bytes(data)
                    # Unless it was discarded meanwhile.
                    if self._queue and self._queue[0][0] is data:
                        self._queue.popleft()
                        self._took(origin, len(data))
        if self._farewell is None:
            return False
        code, reason = self._farewell
        self._says_goodbye = True
        async with asyncio.timeout(self._limits.hub_write_timeout):
            await self._socket.close(code=code, message=reason.encode()[:120])
        return True

    # Whether the peer lives.

    def _schedule_tick(self) -> None:
        self._timer = self._loop.call_later(self._limits.ping_interval, self._tick)

    def _tick(self) -> None:
        """Ping; a peer of which nothing is heard for too long is gone, unless we do not listen."""
        silent = self._loop.time() - self._heard_at
        if self._may_read.is_set() and silent > self._limits.pong_timeout:
            self.abort()
            return
        self._ping_is_due = True
        self._work.set()
        self._schedule_tick()

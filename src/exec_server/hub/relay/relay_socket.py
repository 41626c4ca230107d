"""One rendezvous socket: it queues messages, can pause reading, and sends and answers pings."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aiohttp import WSMsgType, web

from exec_server.hub.relay.routing import JoinedHarness
from exec_server.limits import Limits
from exec_server.memory import keep_freed_memory
from exec_server.transport.frame_headers import WHOLE_BINARY, frame_header

# Large frames need far fewer for the same bytes, so this costs them nothing.
_MESSAGES_A_TURN = 16
# A message is written at once if no more than this waits in the transport. The event loop writes
# what comes within one turn together, up to this size.
_WAITING_BYTES = 256 * 1024
# What one read of a socket brings is freed and needed again all the time.
_FREED_BYTES = 1024 * 1024
# Up to this size one copy is cheaper than a vectored write.
_JOIN_BYTES = 16 * 1024

Receive = Callable[[bytes], None]
# Called when a message of this origin and size has left the queue.
Taken = Callable[[JoinedHarness | None, int], None]


class _Turn:
    """Lets others go on after every few messages of one socket.

    Messages that are there already are received and sent without waiting, and one read of a socket
    may bring tens of thousands of tiny ones.
    """

    def __init__(self) -> None:
        self._left = _MESSAGES_A_TURN

    def is_over(self) -> bool:
        """Count one message; True if the others have to go on now."""
        self._left -= 1
        if self._left:
            return False
        self._left = _MESSAGES_A_TURN
        return True


class RelaySocket:
    """A `Port` over a WebSocket. `carry` runs it; the other methods may be called at any time."""

    def __init__(
        self,
        response: web.WebSocketResponse,
        request: web.BaseRequest,
        *,
        limits: Limits,
        takes_text: bool = False,
    ) -> None:
        self._response = response
        self._transport = request.transport
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=_WAITING_BYTES)
        keep_freed_memory(_FREED_BYTES)
        self._limits = limits
        self._takes_text = takes_text
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[bytes, JoinedHarness | None]] = deque()
        # The payload of the last ping. It is enough to answer the last one of several.
        self._pong: bytes | None = None
        self._ping_is_due = False
        self._farewell: tuple[int, str] | None = None
        self._says_goodbye = False
        self._work = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._heard_at = self._loop.time()
        # Set while `carry` runs.
        self._timer: asyncio.TimerHandle | None = None
        self._taken: Taken = lambda origin, size: None

    def on_taken(self, taken: Taken) -> None:
        """Set what is called when a message has left the queue. Call this before any `send`."""
        self._taken = taken

    async def carry(self, receive: Receive) -> None:
        """Send and receive messages until the socket is gone; then the queue is dropped."""
        # The socket was not read before, so its silence does not count.
        self._heard_at = self._loop.time()
        self._schedule_tick()
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self._write_on(), name="write to a rendezvous socket")
                try:
                    await self._read_on(receive)
                finally:
                    # A goodbye may finish. Cancelling it would lose messages that the peer has
                    # not read.
                    if not self._says_goodbye:
                        writing.cancel()
        finally:
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            self.give_up()

    # The methods of a port.

    def send(self, data: bytes, origin: JoinedHarness | None) -> None:
        if self._farewell is not None:
            self._taken(origin, len(data))
        elif self._is_free():
            self._write_now(data)
            self._taken(origin, len(data))
        else:
            self._queue.append((data, origin))
            self._work.set()

    def discard(self) -> None:
        queue, self._queue = self._queue, deque()
        for data, origin in queue:
            self._taken(origin, len(data))

    def end(self, code: int, reason: str) -> None:
        if self._farewell is None:
            self._farewell = (code, reason)
            self._work.set()
            self.resume()
            # The peer may read the rest slowly, but not for longer than this.
            self._loop.call_later(self._limits.hub_write_timeout, self.abort)

    def pause(self) -> None:
        if self._farewell is None and self._may_read.is_set():
            self._may_read.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._schedule_tick()

    def resume(self) -> None:
        self._heard_at = self._loop.time()
        self._may_read.set()

    def cut(self, code: int, reason: str) -> None:
        """End now. The peer is told why if it reads; the socket is gone in a moment either way."""
        self.discard()
        self.end(code, reason)
        self._loop.call_later(self._limits.close_timeout, self.abort)

    def give_up(self) -> None:
        """Accept no more messages, and drop the queue."""
        self._farewell = self._farewell or (0, "")
        self.discard()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Reading.

    async def _read_on(self, receive: Receive) -> None:
        turn = _Turn()
        while True:
            if not self._may_read.is_set():
                await self._may_read.wait()
            if turn.is_over():
                await asyncio.sleep(0)
            message = await self._response.receive()
            self._heard_at = self._loop.time()
            if self._farewell is not None and not self._response.closed:
                # The peer may send messages until it has received the farewell.
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
        """End the socket of a harness.

        A text message of an executor is ignored, as executors ignore ours, because its socket
        carries the streams of many harnesses.
        """
        if not self._takes_text:
            self.end(1003, "a text message")

    # Writing.

    def _is_free(self) -> bool:
        """True if a message may overtake the queue, which is empty, and the task that writes it."""
        transport = self._transport
        return (
            not self._queue
            and transport is not None
            and self._timer is not None
            and not self._response.closed
            and not transport.is_closing()
            and transport.get_write_buffer_size() <= _WAITING_BYTES
        )

    def _write_now(self, data: bytes) -> None:
        """Write one frame. aiohttp would send its header apart, which wakes the peer twice."""
        header = frame_header(WHOLE_BINARY, len(data))
        if len(data) <= _JOIN_BYTES:
            self._transport.write(header + data)  # type: ignore[union-attr]
        else:
            self._transport.writelines((header, data))  # type: ignore[union-attr]

    async def _write_on(self) -> None:
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                if await self._write_all():
                    return
        except (OSError, TimeoutError):
            # The peer is gone or does not read. The reader notices that the socket is aborted.
            self.abort()

    async def _write_all(self) -> bool:
        """Write all that is due; True if the farewell was part of it."""
        turn = _Turn()
        while self._queue or self._pong is not None or self._ping_is_due:
            async with asyncio.timeout(self._limits.hub_write_timeout):
                if self._pong is not None:
                    pong, self._pong = self._pong, None
                    await self._response.pong(pong)
                elif self._ping_is_due:
                    self._ping_is_due = False
                    await self._response.ping()
                else:
                    data, origin = self._queue[0]
                    await self._response.send_bytes(data)
                    # The message may have been discarded meanwhile.
                    if self._queue and self._queue[0][0] is data:
                        self._queue.popleft()
                        self._taken(origin, len(data))
            # Meanwhile the queue may be discarded.
            if turn.is_over():
                await asyncio.sleep(0)
        if self._farewell is None:
            return False
        code, reason = self._farewell
        self._says_goodbye = True
        async with asyncio.timeout(self._limits.hub_write_timeout):
            await self._response.close(code=code, message=reason.encode()[:120])
        return True

    # Detecting a dead peer.

    def _schedule_tick(self) -> None:
        # A peer that pings us while we do not read must not take us for dead.
        pause = self._limits.ping_interval
        if not self._may_read.is_set():
            pause = min(pause, self._limits.silence / 2)
        self._timer = self._loop.call_later(pause, self._tick)

    def _tick(self) -> None:
        """Send a ping, or abort if the peer was silent for too long while we read."""
        silent = self._loop.time() - self._heard_at
        if self._may_read.is_set() and silent > self._limits.pong_timeout:
            self.abort()
            return
        self._ping_is_due = True
        self._work.set()
        self._schedule_tick()

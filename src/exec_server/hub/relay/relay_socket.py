"""One rendezvous socket: it queues messages, can pause reading, and sends and answers pings.

The module is long because all of these are states of one object that picows calls back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from exec_server.hub.relay.corks import JOIN_BYTES, Corks, FrameWriter
from exec_server.hub.relay.routing import Frame, JoinedHarness
from exec_server.limits import Limits
from exec_server.memory import keep_freed_memory
from exec_server.transport.data_frames import DataFrame
from exec_server.transport.picows_internals import stream_of
from exec_server.transport.picows_names import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
)

# The most that is read of a socket at a time: four records of a relay.
READ_BYTES = 256 * 1024
# The buffer of a socket that carries no bulk. Most sockets of a node are idle.
BUFFER_BYTES = 2048
# Large frames need far fewer for the same bytes, so this costs them nothing.
_MESSAGES_A_TURN = 64
# A message is written at once if no more than this waits in the transport. The event loop writes
# what comes within one turn together, up to this size.
_WAITING_BYTES = 256 * 1024
# What one read of a socket brings is freed and needed again all the time.
_FREED_BYTES = 1024 * 1024
# RFC 6455 allows 123.
_REASON_BYTES = 120

# Close codes of RFC 6455, section 7.4.1.
_PROTOCOL_ERROR, _NO_TEXT, _TOO_BIG = 1002, 1003, 1009

_TEXT, _BINARY, _CONTINUATION = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION

# A view is valid only until the call ends.
Receive = Callable[[Frame], None]
# Called when a message of this origin and size has left the queue.
Taken = Callable[[JoinedHarness | None, int], None]


class RelaySocket(WSListener):
    """A `Port` over a WebSocket, whose upgrade is answered already.

    `carry` runs it; nothing is delivered before. The other methods may be called at any time.
    """

    def __init__(
        self, *, limits: Limits, message_bytes: int, corks: Corks, takes_text: bool = False
    ) -> None:
        """*message_bytes* is the size of the largest message that the peer may send."""
        keep_freed_memory(_FREED_BYTES)
        self._limits = limits
        self._message_bytes = message_bytes
        self._takes_text = takes_text
        self._loop = asyncio.get_running_loop()
        self._receive: Receive | None = None
        self._taken: Taken = lambda origin, size: None
        self._corks = corks
        # Writing: what waits for the peer to read.
        self._queue: deque[tuple[bytes, JoinedHarness | None]] = deque()
        self._is_full = False
        # The payload of the last ping. It is enough to answer the last one of several.
        self._pong: bytes | None = None
        self._ping_is_due = False
        self._flushing: asyncio.Handle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        # Reading: messages that were read and wait for a later turn, or until reading goes on.
        self._inbox: deque[bytes] = deque()
        self._taking: asyncio.Handle | None = None
        self._is_paused = False
        self._read_in_turn = 0
        self._has_many = False
        # A message of which more frames follow.
        self._parts: bytearray | None = None
        self._parts_are_text = False
        # The end.
        self._farewell: tuple[int, str] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        # True once nothing more comes from the peer, and nothing reaches it.
        self._is_gone = False
        self._failure: Exception | None = None
        self._stream: Any = None
        self._is_over = asyncio.Event()
        self._heard_at = self._loop.time()
        # Set while `carry` runs.
        self._timer: asyncio.TimerHandle | None = None

    def on_taken(self, taken: Taken) -> None:
        """Set what is called when a message has left the queue. Call this before any `send`."""
        self._taken = taken

    async def carry(self, receive: Receive) -> None:
        """Send and receive messages until the socket is gone; then the queue is dropped."""
        self._receive = receive
        # The socket was not read before, so its silence does not count.
        self._heard_at = self._loop.time()
        self._schedule_tick()
        self._flush()
        self._take_soon()
        try:
            await self._is_over.wait()
            if self._failure is not None:
                raise self._failure
        finally:
            self._timer.cancel()  # type: ignore[union-attr]
            self._timer = None
            self.give_up()
            if not self._is_gone:
                self.abort()

    # The methods of a port.

    def send(self, data: Frame, origin: JoinedHarness | None) -> bool:
        if self._farewell is not None:
            return True
        if self._queue or self._is_full or self._timer is None:
            self._queue.append((bytes(data), origin))
            return False
        self._write(data)
        return True

    def discard(self) -> None:
        queue, self._queue = self._queue, deque()
        for data, origin in queue:
            self._taken(origin, len(data))

    def end(self, code: int, reason: str) -> None:
        if self._farewell is None:
            self._farewell = (code, reason)
            self.resume()
            # The peer may read the rest slowly, but not for longer than this.
            self._end_within(self._limits.hub_write_timeout)
            self._flush()

    def pause(self) -> None:
        if self._farewell is None and not self._is_paused:
            self._is_paused = True
            self._stream.pause_reading()
            if self._timer is not None:
                self._timer.cancel()
                self._schedule_tick()

    def resume(self) -> None:
        self._heard_at = self._loop.time()
        if self._is_paused:
            self._is_paused = False
            self._take_soon()

    def cut(self, code: int, reason: str) -> None:
        """End now. The peer is told why if it reads; the socket is gone in a moment either way."""
        self.discard()
        self.end(code, reason)
        self._end_within(self._limits.close_timeout)

    def give_up(self) -> None:
        """Accept no more messages, and drop the queue."""
        self._farewell = self._farewell or (0, "")
        self.discard()

    def abort(self) -> None:
        self._is_gone = True
        self._stream.abort()

    # Called by picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._ws = transport
        self._stream = stream_of(transport)
        self._stream.set_write_buffer_limits(high=_WAITING_BYTES)
        self._writer = FrameWriter(self._stream, self._corks, is_secure=transport.is_secure)
        # Until `carry` runs there is nothing to do with messages.
        self._stream.pause_reading()

    def reads_much(self) -> bool:
        """True if the last read of the socket has brought few frames."""
        has_many, self._has_many = self._has_many, False
        return not has_many

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame | DataFrame) -> None:
        if not frame.last_in_buffer:
            self._read_in_turn += 1
            self._corks.is_holding = True
            self._take_frame(transport, frame)
            return
        try:
            self._take_frame(transport, frame)
        finally:
            self.read_ended()

    def read_ended(self) -> None:
        """All that a read has brought is delivered."""
        self._heard_at = self._loop.time()
        self._read_in_turn = 0
        if self._corks.is_holding:
            self._corks.release()

    def _take_frame(self, transport: WSTransport, frame: WSFrame | DataFrame) -> None:
        kind = frame.msg_type
        if kind is not _BINARY and kind == WSMsgType.CLOSE:
            self._take_leave()
        elif self._farewell is not None or self._is_gone or transport.is_close_frame_sent:
            # The peer may send messages until it has received the farewell. picows goes on after a
            # violation that it has reported to the peer.
            return
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.end(_PROTOCOL_ERROR, "reserved bits are set")
        elif kind is _BINARY and frame.fin and self._parts is None:
            if frame.payload_size <= JOIN_BYTES:
                self._message(frame.get_payload_as_bytes())
            else:
                self._message(frame.get_payload_as_memoryview())
        elif kind == WSMsgType.PING:
            self._pong = frame.get_payload_as_bytes()
            self._flush_soon()
        elif kind != WSMsgType.PONG:
            self._collect(frame, kind)

    def on_ws_eof(self) -> None:
        """The peer has closed its side. It counts as gone, even if it still reads."""
        self._leave()
        self._end_within(self._limits.close_timeout)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        for timer in (self._stalled, self._deadline, self._flushing):
            if timer is not None:
                timer.cancel()
        self._leave()

    def pause_writing(self) -> None:
        self._is_full = True
        self._stalled = self._loop.call_later(self._limits.hub_write_timeout, self.abort)

    def resume_writing(self) -> None:
        self._is_full = False
        if self._stalled is not None:
            self._stalled.cancel()
        self._flush()

    # Reading.

    def _message(self, data: Frame) -> None:
        """A message has come. Deliver it now, if it is not one of many and reading goes on."""
        is_many = self._read_in_turn > _MESSAGES_A_TURN
        if self._inbox or is_many or self._is_paused or self._receive is None:
            self._has_many = self._has_many or is_many
            self._inbox.append(bytes(data))
            self._stream.pause_reading()
            self._take_soon()
        else:
            self._deliver(data)

    def _deliver(self, data: Frame) -> None:
        if self._farewell is not None:
            return
        try:
            self._receive(data)  # type: ignore[misc]
        except Exception as exc:
            # `carry` tells it. picows would tell the peer.
            self._failure = exc
            self.give_up()
            self.abort()

    def _take_soon(self) -> None:
        """Deliver what waits, and then read on, unless that is paused."""
        if self._taking is None and self._receive is not None:
            self._taking = self._loop.call_soon(self._take)

    def _take(self) -> None:
        self._taking = None
        self._corks.is_holding = True
        for _ in range(_MESSAGES_A_TURN):
            # What has come before the end is delivered in any case: there is little of it.
            if not self._inbox or (self._is_paused and not self._is_gone):
                break
            self._deliver(self._inbox.popleft())
        self._corks.release()
        if self._inbox:
            if self._is_gone or not self._is_paused:
                self._take_soon()
        elif self._is_gone:
            self._is_over.set()
        elif not self._is_paused:
            self._stream.resume_reading()

    def _collect(self, frame: WSFrame | DataFrame, kind: WSMsgType) -> None:
        """Take a text, or one frame of a message of several."""
        if (kind is _CONTINUATION) != (self._parts is not None):
            self.end(_PROTOCOL_ERROR, "fragments out of order")
            return
        if self._parts is None:
            self._parts, self._parts_are_text = bytearray(), kind is _TEXT
        self._parts += frame.get_payload_as_memoryview()
        if len(self._parts) > self._message_bytes:
            self.end(_TOO_BIG, "the message is too big")
            self._parts = None
        elif frame.fin:
            data, self._parts = bytes(self._parts), None
            if not self._parts_are_text:
                self._message(data)
            elif not self._takes_text:
                # A text of an executor is ignored, as executors ignore ours, because its socket
                # carries the streams of many harnesses.
                self.end(_NO_TEXT, "a text message")

    # Writing.

    def _write(self, data: Frame) -> None:
        if not self._is_gone and not self._ws.is_close_frame_sent:
            self._writer.write(data)

    def _flush_soon(self) -> None:
        if self._flushing is None:
            self._flushing = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write all that is due, until the transport is full; `resume_writing` goes on."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        while not self._is_full and not self._is_gone and self._timer is not None:
            # Control frames leave behind what was written before.
            self._writer.push()
            if self._pong is not None:
                pong, self._pong = self._pong, None
                self._ws.send_pong(pong)
            elif self._ping_is_due:
                self._ping_is_due = False
                self._ws.send_ping()
            elif not self._queue:
                self._say_goodbye()
                return
            elif self._write_queued() >= _MESSAGES_A_TURN:
                self._flush_soon()
                return

    def _write_queued(self) -> int:
        """Write some of the queue together; return the number of messages."""
        count = size = 0
        self._corks.is_holding, was_holding = True, self._corks.is_holding
        while self._queue and count < _MESSAGES_A_TURN and size < _WAITING_BYTES:
            data, origin = self._queue.popleft()
            count += 1
            size += len(data)
            self._write(data)
            self._taken(origin, len(data))
        if not was_holding:
            self._corks.release()
        return count

    # The end.

    def _say_goodbye(self) -> None:
        """Send the close frame, if the socket has to end, and wait for that of the peer."""
        code, reason = self._farewell or (0, "")
        if code and not self._ws.is_close_frame_sent:
            self._ws.send_close(cast(Any, code), reason.encode()[:_REASON_BYTES])
            self._end_within(self._limits.close_timeout)

    def _take_leave(self) -> None:
        """The peer has sent a close frame: answer it, unless it is the answer to ours."""
        self._writer.push()
        if not self._ws.is_close_frame_sent and not self._is_gone:
            self._ws.send_close(WSCloseCode.OK)
        self._ws.disconnect()
        self._end_within(self._limits.close_timeout)
        self._leave()

    def _leave(self) -> None:
        """Nothing more comes."""
        self._is_gone = True
        self._take_soon()

    def _end_within(self, seconds: float) -> None:
        """Bound the end: a peer that does not read would delay it for ever."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, self.abort)

    # Detecting a dead peer.

    def _schedule_tick(self) -> None:
        # A peer that pings us while we do not read must not take us for dead.
        pause = self._limits.ping_interval
        if self._is_paused:
            pause = min(pause, self._limits.silence / 2)
        self._timer = self._loop.call_later(pause, self._tick)

    def _tick(self) -> None:
        """Send a ping, or abort if the peer was silent for too long while we read."""
        silent = self._loop.time() - self._heard_at
        is_silent = not self._is_paused and silent > self._limits.pong_timeout
        # picows closes after a violation, and waits until the peer has read everything.
        if is_silent or self._stream.is_closing():
            self.abort()
            return
        self._ping_is_due = True
        self._flush()
        self._schedule_tick()

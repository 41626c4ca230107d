"""The one socket of an executor: performs the effects of the mux, and reports events to it.

All streams share the socket, and an exception that leaves a callback of the socket ends it. So
each call for a stream catches exceptions: they end that stream (`_end_broken`), and no other one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from exec_server.errors import RelayError
from exec_server.limits import Limits
from exec_server.protocol.registry import SUPERSEDED_REASON
from exec_server.relay.effects import (
    Abandon,
    Effect,
    Message,
    Send,
    StreamClosed,
    StreamOpened,
    Validate,
)
from exec_server.relay.frame import StreamId, Trace, decode
from exec_server.relay.records import Join
from exec_server.relay.trace import trace_of
from exec_server.remote.executor.stream_connection import StreamConnection
from exec_server.timers import Alarm
from exec_server.transport.connection import Connection
from exec_server.transport.frames import FrameSocket

logger = logging.getLogger(__name__)

# Requests to a client are short. Longer messages are answers and output, which have no trace, and
# searching them for one takes as long as encrypting them.
_TRACED_BYTES = 8 * 1024

Serve = Callable[[Connection], None]
# Asks the registry whether a harness is admitted.
Judge = Callable[[Validate], Awaitable[bool]]


class AnyMux(Protocol):
    """The methods that both relays have."""

    def receive(self, data: bytes | memoryview, *, now: float) -> Sequence[Effect]: ...

    def settle(self, ticket: int, *, is_valid: bool, now: float) -> Sequence[Effect]: ...

    def next_deadline(self) -> float | None: ...

    def expire(self, *, now: float) -> Sequence[Effect]: ...

    def send(
        self, stream_id: StreamId, *parts: bytes, trace: Trace | None = None
    ) -> Iterable[Effect]: ...

    def join_with(self, stream_id: StreamId, join: Join) -> None: ...

    def close(self, stream_id: StreamId, reason: str = "") -> Sequence[Effect]: ...

    def pause(self, stream_id: StreamId) -> None: ...

    def resume(self, stream_id: StreamId) -> Sequence[Effect]: ...

    def end(self, reason: str = ...) -> Sequence[Effect]: ...


class ExecutorSocket:
    """One physical connection and its streams; each stream is given to *serve*."""

    def __init__(self, mux: AnyMux, *, serve: Serve, judge: Judge, limits: Limits) -> None:
        self._mux = mux
        self._serve = serve
        self._judge = judge
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._socket: FrameSocket | None = None
        self._streams: dict[StreamId, StreamConnection] = {}
        self._questions: dict[int, asyncio.Task[None]] = {}
        # The questions above, and those that were cancelled and have not ended yet.
        self._asking: set[asyncio.Task[None]] = set()
        self._alarm = Alarm(mux.next_deadline, self._expire)
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self.is_writing_paused = False
        # True if the socket has ended because another executor has the name now.
        self.is_replaced = False

    async def wait_lost(self) -> str:
        """Wait until the socket is lost, and return the reason."""
        return await asyncio.shield(self._lost)

    def drop(self) -> None:
        """End at once; the streams are lost."""
        if self._socket is not None:
            self._socket.drop()

    async def settle(self) -> None:
        """Wait until all questions to the registry have ended."""
        if self._asking:
            await asyncio.wait(self._asking)

    # Called by the socket.

    def socket_opened(self, socket: FrameSocket) -> None:
        self._socket = socket

    def frame_received(self, data: bytes | memoryview) -> None:
        try:
            self._perform(self._mux.receive(data, now=self._loop.time()))
        except Exception:
            self._end_broken(_stream_of(data))
        # A peer that does not read our resets would cause more of them.
        if self.is_writing_paused and self.unsent_bytes > self._limits.backlog_bytes:
            assert self._socket is not None
            self._socket.pause_reading()

    def text_received(self, data: bytes) -> None:
        """Ignore a text message, as the reference does."""

    def writing_paused(self) -> None:
        self.is_writing_paused = True
        for stream_id, stream in tuple(self._streams.items()):
            try:
                stream.writing_paused()
            except Exception:
                self._end_broken(stream_id)

    def writing_resumed(self) -> None:
        self.is_writing_paused = False
        if self._socket is not None:
            self._socket.resume_reading()
        for stream_id, stream in tuple(self._streams.items()):
            try:
                stream.writing_resumed()
            except Exception:
                self._end_broken(stream_id)

    def socket_lost(self, reason: str) -> None:
        if self._socket is not None:
            self.is_replaced = self._socket.close_words == SUPERSEDED_REASON
        self._socket = None
        self._alarm.cancel()
        try:
            self._perform(self._mux.end())
        finally:
            if not self._lost.done():
                self._lost.set_result(reason)

    # Called by the streams.

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._socket is None else self._socket.unsent_bytes

    def send(self, stream_id: StreamId, *parts: bytes) -> None:
        is_short = len(parts) == 1 and len(parts[0]) <= _TRACED_BYTES
        try:
            trace = trace_of(parts[0]) if is_short else None
            self._perform(self._mux.send(stream_id, *parts, trace=trace))
        except Exception:
            self._end_broken(stream_id)

    def join_with(self, stream_id: StreamId, join: Join) -> None:
        self._mux.join_with(stream_id, join)

    def close_stream(self, stream_id: StreamId, reason: str) -> None:
        self._perform(self._mux.close(stream_id, reason))

    def pause_stream(self, stream_id: StreamId) -> None:
        self._mux.pause(stream_id)

    def resume_stream(self, stream_id: StreamId) -> None:
        self._perform(self._mux.resume(stream_id))

    # The effects of the mux.

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if type(effect) is Send:
                if self._socket is not None:
                    self._socket.send(effect.buffer, effect.start)
            elif type(effect) is Message:
                # An earlier message may have ended the stream.
                if stream := self._streams.get(effect.stream_id):
                    try:
                        stream.deliver(effect.data)
                    except Exception:
                        self._end_broken(effect.stream_id)
            else:
                self._change(effect)

    def _change(self, effect: Effect) -> None:
        match effect:
            case StreamOpened(stream_id):
                stream = self._streams[stream_id] = StreamConnection(self, stream_id)
                logger.info("stream %.64s is open", stream_id)
                try:
                    self._serve(stream)
                except Exception:
                    self._end_broken(stream_id)
            case StreamClosed(stream_id, reason):
                logger.info("stream %.64s has ended: %.200s", stream_id, reason)
                lost = self._streams.pop(stream_id, None)
                if lost is not None:
                    lost.lose()
            case Validate(ticket):
                self._ask(ticket, effect)
            case Abandon(ticket):
                if question := self._questions.pop(ticket, None):
                    question.cancel()

    def _end_broken(self, stream_id: StreamId | None) -> None:
        """End a stream whose code has raised the current exception.

        The stream ends even if its peer cannot be told.
        """
        if stream_id is None:
            logger.exception("a frame is ignored because of an error in this program")
            return
        logger.exception("stream %.64s ends because of an error in this program", stream_id)
        try:
            self._perform(self._mux.close(stream_id, "internal error"))
        except Exception:
            logger.exception("the peer of stream %.64s was not told of its end", stream_id)
        if lost := self._streams.pop(stream_id, None):
            lost.lose()

    def _ask(self, ticket: int, question: Validate) -> None:
        task = self._loop.create_task(self._answer(ticket, question), name="validate a harness")
        self._questions[ticket] = task
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        self._alarm.set()

    async def _answer(self, ticket: int, question: Validate) -> None:
        try:
            is_valid = await self._judge(question)
        except Exception:
            logger.exception("the registry could not be asked about a harness")
            is_valid = False
        # The effects below may abandon this question, and must not cancel this task.
        self._questions.pop(ticket, None)
        try:
            self._perform(self._mux.settle(ticket, is_valid=is_valid, now=self._loop.time()))
        except Exception:
            self._end_broken(question.stream_id)

    def _expire(self, now: float) -> None:
        self._perform(self._mux.expire(now=now))


def _stream_of(data: bytes | memoryview) -> StreamId | None:
    try:
        return decode(data, segmented=True).stream_id
    except RelayError:
        return None

"""One end of a stream: numbers, windows, and what the other end has not acknowledged.

It does no I/O: a StreamWire sends for it, and a StreamUser takes what arrives. The server and the
client use the same class. The module is long because the two directions of a stream end together.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from exec_server.protocol.method import Event
from exec_server.protocol.streams import (
    ACK,
    DATA_MIDDLE,
    DATA_TAIL,
    END,
    RESET,
    EndEvent,
    ResetEvent,
    StreamAckEvent,
    data_head,
)
from exec_server.streams.delay_window import DelayWindow
from exec_server.streams.pace import SMALL_BYTES
from exec_server.streams.turns import StreamTurns

# The size of a message. Larger ones are not faster, and delay what other streams have to say.
CHUNK_BYTES = 192 * 1024
# After so many bytes at the latest this end acknowledges, and tells the other end so: its window
# can follow the delay only if it hears often.
ACK_BYTES = 128 * 1024
# With less under way, one end waits while the other one works.
_LEAST_BYTES = 2 * CHUNK_BYTES

# The ways of messages.
_TO, _FRO = 1, -1
# What is kept of the words of the other end.
_REASON_CHARACTERS = 256

P = TypeVar("P")


class StreamWire(Protocol):
    """The way to the other end."""

    turns: StreamTurns

    def send_bulk(self, before: bytes, data: bytes, after: bytes) -> None:
        """Send a message in which the base64 of *data* stands between two texts.

        Without a connection it is lost.
        """

    def send_event(self, event: Event[P], params: P) -> None:
        """Send an event; without a connection it is lost."""

    def stream_over(self, stream: ByteStream) -> None:
        """Both directions have ended, or the stream was broken off."""


class StreamUser(Protocol):
    """What is behind this end: a socket, or a reader and a writer."""

    def data_received(self, data: bytes) -> None:
        """Bytes have come; `ByteStream.took` says later that they were taken."""

    def end_received(self, *, is_closed: bool) -> None:
        """No more bytes come. If *is_closed*, the other end does not take any more either."""

    def window_opened(self) -> None:
        """More may be written."""

    def was_reset(self, reason: str) -> None:
        """The stream was broken off by the other end, or was lost."""

    def was_finished(self) -> None:
        """The stream is over as it should be: both ends know that nothing more comes."""


class ByteStream:
    """One end of the stream *stream_id*; both directions have a window of *window* bytes.

    How much of it is used follows the delay, if the other end acknowledges often enough.
    """

    def __init__(
        self,
        stream_id: str,
        wire: StreamWire,
        *,
        window: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = stream_id
        self.window = window
        self.user: StreamUser | None = None
        self.is_over = False
        # Why it was broken off, if it was.
        self.why_reset: str | None = None
        # False between the loss of a connection and the agreement on where both ends are.
        self.is_live = True
        self._wire = wire
        self._head = data_head(stream_id)
        # Sending: what was sent and is not acknowledged, and what was not sent yet.
        self._flying: deque[bytes] = deque()
        self._unsent: deque[bytes] = deque()
        # All bytes before the first position are acknowledged, before the second sent, and before
        # the third written.
        self._acked = self._sent = self._written = 0
        self._has_ended = self._end_sent = self._end_acked = False
        self._clock = clock
        self._delayed: DelayWindow | None = None
        # So many bytes under way are sure to be acknowledged.
        self._surely_acked = ACK_BYTES
        # True once this end takes no data any more.
        self.is_closed = False
        # Receiving: the position of the next byte, of the next one to be taken, and the last
        # position that was acknowledged. An end that was taken counts as one byte.
        self.received = 0
        self._taken = self._told = 0
        self._end_received = False
        # True once the other end takes no data any more.
        self._is_refused = False
        # What has come before there was a user.
        self._early = bytearray()
        self._early_end: bool | None = None
        # The way of the last message, if it was small; otherwise 0.
        self._last_small = 0

    def use(self, user: StreamUser) -> None:
        """From now on *user* takes what arrives; it gets what has come already."""
        self.user = user
        early, self._early = bytes(self._early), bytearray()
        # In pieces, so that a user which pauses after the first one has not taken all of them.
        for start in range(0, len(early), CHUNK_BYTES):
            user.data_received(early[start : start + CHUNK_BYTES])
        if self._early_end is not None and not self.is_over:
            user.end_received(is_closed=self._early_end)
        if self.why_reset is not None:
            user.was_reset(self.why_reset)

    # Sending.

    def other_end_acknowledges(self, count: int | None) -> None:
        """The other end has said after how many bytes it does; None if it has not said it."""
        if count is not None and 2 * count <= _LEAST_BYTES < self.window:
            self._delayed = DelayWindow(least=_LEAST_BYTES, most=self.window)
            self._surely_acked = max(ACK_BYTES, count)

    @property
    def room(self) -> int:
        """How many bytes can be written until the window is full."""
        waiting = self._written - self._acked
        if self._delayed is not None and waiting >= self._delayed.size:
            return 0
        return self.window - waiting

    @property
    def unsent_bytes(self) -> int:
        return self._written - self._sent

    @property
    def written(self) -> int:
        """The number of bytes written so far."""
        return self._written

    @property
    def has_ended(self) -> bool:
        """True if nothing can be written any more."""
        return self._has_ended or self.is_over

    def write(self, data: bytes) -> None:
        """Send *data*, now or when the windows allow it."""
        if self.has_ended or not data:
            return
        self._written += len(data)
        if len(data) <= CHUNK_BYTES:
            self._unsent.append(data)
        else:
            view = memoryview(data)
            starts = range(0, len(data), CHUNK_BYTES)
            self._unsent.extend(bytes(view[start : start + CHUNK_BYTES]) for start in starts)
        self._flush()

    def end(self) -> None:
        """Nothing more will be written."""
        if not self.has_ended:
            self._has_ended = True
            self._flush()

    def close(self) -> None:
        """Send what was written, and take nothing any more."""
        if self.is_over or self.is_closed:
            return
        self.is_closed = True
        self._has_ended = True
        if self._end_sent and self.is_live:
            # The other end knows of the end, and has to know this as well.
            self._send_end()
        self._take_all()
        if self._end_received:
            self.took_end()
        self._flush()
        self._maybe_finish()

    def reset(self, reason: str) -> None:
        """Break the stream off; the user here is not told."""
        if not self.is_over:
            if self.is_live:
                self._wire.send_event(RESET, ResetEvent(self.id, reason))
            self.why_reset = reason
            self._finish()

    def take_turn(self) -> bool:
        """Send one chunk; True if more could be sent at once."""
        if self._may_send() and self._keeps_pace():
            self._send_next()
        self._maybe_send_end()
        if self.user is not None:
            self.user.window_opened()
        return self._may_send() and self._keeps_pace()

    def go_on(self) -> None:
        """Send what the pace allows."""
        self._flush()
        if self.user is not None:
            self.user.window_opened()

    def _may_send(self) -> bool:
        if not self._unsent or not self.is_live or self.is_over:
            return False
        in_flight = self._sent - self._acked
        if self._delayed is not None and in_flight >= self._allowed(in_flight):
            return False
        return in_flight < self.window

    def _allowed(self, in_flight: int) -> int:
        """How many bytes may be under way, if the other end acknowledges often."""
        assert self._delayed is not None
        pace = self._wire.turns.pace
        least = self._surely_acked
        if in_flight >= least and pace is not None and pace.is_talking():
            # On a slow way more than that waits in line before a key.
            return least
        return self._delayed.size

    def _keeps_pace(self) -> bool:
        """True if the next message may be sent; otherwise the stream waits for the next turn."""
        pace = self._wire.turns.pace
        if pace is None or len(self._unsent[0]) <= SMALL_BYTES or pace.is_free():
            return True
        pace.wait(self)
        return False

    def _flush(self) -> None:
        turns = self._wire.turns
        while self._may_send():
            if not turns.is_open:
                turns.wait(self)
                return
            if not self._keeps_pace():
                return
            self._send_next()
        self._maybe_send_end()

    def _send_next(self) -> None:
        data = self._unsent.popleft()
        position, self._sent = self._sent, self._sent + len(data)
        self._flying.append(data)
        if self._delayed is not None:
            self._delayed.sent(self._sent, self._clock(), in_flight=self._sent - self._acked)
        self._passes(len(data), _TO)
        head = b"%b%d%b" % (self._head, position, DATA_MIDDLE)
        self._wire.send_bulk(head, data, DATA_TAIL)

    def _passes(self, size: int, way: int) -> None:
        """A message passes. If small ones go to and fro, bulk makes way for them."""
        pace = self._wire.turns.pace
        if size <= SMALL_BYTES:
            if self._last_small == -way and pace is not None:
                pace.talked()
            self._last_small = way
            return
        self._last_small = 0
        if way == _TO and pace is not None:
            pace.sent(size)

    def _maybe_send_end(self) -> None:
        if self._has_ended and not self._end_sent and not self._unsent and self.is_live:
            self._send_end()

    def _send_end(self) -> None:
        self._end_sent = True
        self._wire.send_event(END, EndEvent(self.id, self._written, self.is_closed))

    # What the other end says.

    def acknowledged(self, position: int) -> None:
        """Everything before *position* was taken there."""
        if self.is_over or position > self._sent + self._end_sent:
            return
        self._drop_before(min(position, self._sent))
        if self._delayed is not None:
            self._delayed.acknowledged(position, self._clock(), sent=self._sent)
        if self._end_sent and position > self._written:
            self._end_acked = True
            self._maybe_finish()
            return
        # The user is told last: what it waits for may have left with this.
        self._flush()
        if self.user is not None:
            self.user.window_opened()

    def _drop_before(self, position: int) -> None:
        while self._flying and self._acked + len(self._flying[0]) <= position:
            self._acked += len(self._flying.popleft())
        if self._flying and self._acked < position:
            self._flying[0] = self._flying[0][position - self._acked :]
            self._acked = position

    def data_arrived(self, position: int, data: bytes) -> None:
        """Bytes of the other end, the first of which has *position*."""
        if self.is_over or self._end_received:
            return
        if position > self.received:
            self.break_off("bytes of the stream are missing")
            return
        data = data[self.received - position :] if position < self.received else data
        if not data:
            return
        self.received += len(data)
        self._passes(len(data), _FRO)
        if self.received - self._told > self.window + CHUNK_BYTES:
            self.break_off("the other end has sent more than the window allows")
        elif self.is_closed:
            self._take_all()
        elif self.user is None:
            self._early += data
        else:
            self.user.data_received(data)

    def end_arrived(self, position: int, *, is_closed: bool) -> None:
        """The other end has sent all of its bytes."""
        if self.is_over:
            return
        if position > self.received:
            self.break_off("bytes of the stream are missing")
            return
        is_news = not self._end_received
        self._end_received = True
        if is_closed:
            self._stop_sending()
        if self.user is None:
            self._early_end = is_closed
        elif is_news or is_closed:
            self.user.end_received(is_closed=is_closed)
        if self.is_closed:
            self._take_all()
            self.took_end()

    def _stop_sending(self) -> None:
        """The other end takes nothing any more."""
        self._is_refused = True
        self._flying.clear()
        self._unsent.clear()
        self._has_ended = self._end_sent = self._end_acked = True

    def took(self, count: int) -> None:
        """*count* more bytes were taken, in order."""
        self._taken += count
        if self._taken - self._told >= min(ACK_BYTES, self.window / 4) and not self.is_over:
            self._acknowledge()

    def took_end(self) -> None:
        """Everything was taken, and the end."""
        if self._end_received and not self.is_over and self._taken <= self.received:
            self._taken = self.received + 1
            self._acknowledge()
            self._maybe_finish()

    def _take_all(self) -> None:
        """Everything that has come counts as taken."""
        if self._taken < self.received:
            self.took(self.received - self._taken)

    def _acknowledge(self) -> None:
        if self.is_live:
            self._told = self._taken
            self._wire.send_event(ACK, StreamAckEvent(self.id, self._told))

    def break_off(self, reason: str) -> None:
        """Reset the stream, and tell the user here as well."""
        if not self.is_over:
            self.reset(reason)
            if self.user is not None:
                self.user.was_reset(reason)

    def reset_arrived(self, reason: str) -> None:
        """The stream was broken off there, or lost on the way."""
        if not self.is_over:
            self.why_reset = reason = reason[:_REASON_CHARACTERS]
            self._finish()
            if self.user is not None:
                self.user.was_reset(reason)

    # Lost connections.

    def detach(self) -> None:
        """There is no connection: keep everything until `resume`."""
        self.is_live = False
        if self._delayed is not None:
            self._delayed.forget()

    @property
    def position(self) -> int:
        """Everything before this has arrived; an end counts as one byte."""
        return self.received + self._end_received

    def resume(self, position: int) -> None:
        """There is a new connection, and the other end has everything before *position*."""
        if self.is_over:
            return
        self.is_live = True
        if self._is_refused:
            self._acknowledge()
            return
        if not self._acked <= position <= self._sent + self._end_sent:
            self.break_off("the two ends of the stream do not agree on what was sent")
            return
        # What has arrived there is not sent again, although it may not be taken yet.
        arrived, again = [], []
        at = self._acked
        for data in self._flying:
            if at + len(data) <= position:
                arrived.append(data)
            elif at >= position:
                again.append(data)
            else:
                arrived.append(data[: position - at])
                again.append(data[position - at :])
            at += len(data)
        self._flying = deque(arrived)
        self._unsent.extendleft(reversed(again))
        self._sent = self._acked + sum(map(len, arrived))
        self._end_sent = position > self._written
        if self._end_sent and self.is_closed:
            self._send_end()
        self._acknowledge()
        self._flush()

    # The end.

    def _maybe_finish(self) -> None:
        has_taken_end = self._end_received and self._taken > self.received
        if self._end_acked and (has_taken_end or self.is_closed):
            self._finish()

    def _finish(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._flying.clear()
            self._unsent.clear()
            self._wire.stream_over(self)
            if self.user is not None and self.why_reset is None:
                self.user.was_finished()

"""Routing of frames between one executor and its harnesses, with flow control and resets.

Nothing here waits or reads a clock. Sockets are `Port`s: the exchange tells them what to do, and
they tell the exchange which messages have left their queues.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol

from exec_server.errors import RelayError
from exec_server.hub.relay.queue_memory import Memory, QueueShare
from exec_server.hub.relay.stream_ids import stream_id_of, stream_id_text
from exec_server.limits import Limits
from exec_server.relay.frame import RelayFrame, Reset, StreamId, encode

# Close codes of RFC 6455, section 7.4.1, and of its registry.
GOING_AWAY, POLICY_VIOLATION, TRY_AGAIN_LATER = 1001, 1008, 1013


# A view is valid only until the call ends.
Frame = bytes | memoryview


class Port(Protocol):
    """A socket, or a channel to a socket on another node."""

    def send(self, data: Frame, origin: JoinedHarness | None) -> bool:
        """Write one message, or queue it; True if it has left at once.

        When a queued one has left, the exchange is told by `executor_took` or `harness_took`.
        """

    def discard(self) -> None:
        """Drop the queue, as if its messages had left."""

    def end(self, code: int, reason: str) -> None:
        """Close after the queued messages were sent."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Continue to read."""


class JoinedHarness:
    """One harness of an exchange. Its streams end with its socket."""

    __slots__ = (
        "is_paused",
        "moved_at",
        "port",
        "share",
        "streams",
        "to_executor",
        "to_harness",
        "token_id",
    )

    def __init__(self, port: Port, *, token_id: str, share: QueueShare, now: float) -> None:
        self.port = port
        # Its token; empty if the harness is on a node of an earlier release. And the bytes that
        # wait for all harnesses with that token, and for their executors.
        self.token_id = token_id
        self.share = share
        # Every id was checked, so a reset can be written for it.
        self.streams: dict[bytes, StreamId] = {}
        # Bytes in the queues towards the executor and towards this harness.
        self.to_executor = 0
        self.to_harness = 0
        self.moved_at = now
        self.is_paused = False


class Exchange:
    """The streams of one executor's socket.

    Frames are passed on unchanged and in order, or their stream is reset. If a harness does not
    read, the executor is paused only while no other harness needs it. Otherwise the frames for that
    harness are queued up to a bound, and beyond it the harness is disconnected. If the executor
    does not read, its harnesses are paused. queue_memory.py says what happens if memory is full.
    """

    def __init__(
        self, executor: Port, *, memory: Memory, limits: Limits, environment_id: str = ""
    ) -> None:
        self._executor = executor
        self._memory = memory
        self._share = memory.environment(environment_id)
        self._share.holders.add(self)
        self._limits = limits
        self._harnesses: set[JoinedHarness] = set()
        self._streams: dict[bytes, JoinedHarness] = {}
        self._to_executor = 0
        self._was_crowded = False
        self._is_executor_paused = False
        self._is_over = False
        self.frames = 0
        self.bytes = 0
        self.unroutable = 0

    @property
    def streams(self) -> int:
        return len(self._streams)

    @property
    def harnesses(self) -> int:
        return len(self._harnesses)

    @property
    def has_room(self) -> bool:
        """True if another harness may join."""
        return (
            not self._is_over
            and len(self._harnesses) < self._limits.hub_harnesses
            and self._to_executor <= self._limits.hub_executor_bytes
        )

    def has_room_for(self, token_id: str) -> bool:
        """True if another harness with this token may join.

        A token may have as many harnesses as there are free places. So one token gets half of the
        places, two tokens get a third each, and a place is left for one more token.
        """
        if not self.has_room:
            return False
        others = sum(each.token_id == token_id for each in self._harnesses) if token_id else 0
        return others < self._limits.hub_harnesses - len(self._harnesses)

    def join(self, port: Port, *, now: float, token_id: str = "") -> JoinedHarness:
        share = self._memory.token(token_id)
        harness = JoinedHarness(port, token_id=token_id, share=share, now=now)
        self._harnesses.add(harness)
        return harness

    def leave(self, harness: JoinedHarness) -> None:
        """Remove a harness whose socket is gone, and reset its streams at the executor."""
        if harness not in self._harnesses:
            return
        self._harnesses.discard(harness)
        streams, harness.streams = harness.streams, {}
        for stream_id in streams:
            del self._streams[stream_id]
        # At the end of the exchange the executor's socket is gone, or about to be closed.
        if not self._is_over:
            for text in streams.values():
                self._to_the_executor(_reset(text, "the harness is gone"), None)

    def end(self, reason: str, *, code: int = TRY_AGAIN_LATER) -> None:
        """Reset all streams and disconnect all harnesses: the executor's socket is gone."""
        if self._is_over:
            return
        self._is_over = True
        # If one harness cannot be told, the others still are.
        with ExitStack() as farewells:
            for harness in tuple(self._harnesses):
                farewells.callback(self._send_away, harness, reason, code=code)

    # Frames.

    def from_harness(self, harness: JoinedHarness, data: Frame, *, now: float) -> None:
        """Pass on a frame of *harness*.

        Raises RelayError if it is not a frame, or belongs to a stream of another harness, or opens
        one stream too many.
        """
        if harness not in self._harnesses:
            return
        stream_id = stream_id_of(data, limit=self._limits.hub_stream_id_bytes)
        owner = self._streams.get(stream_id)
        if owner is None:
            self._open(stream_id, harness)
        elif owner is not harness:
            # The frame would disturb the stream of the harness that used the id first.
            raise RelayError("the stream id is taken")
        harness.moved_at = now
        if not self._to_the_executor(data, harness):
            if self._is_crowded:
                self._was_crowded = True
                self._pause(harness)
            elif harness.to_executor > self._limits.hub_waiting_bytes or harness.share.must_wait:
                self._pause(harness)
            self._make_room_if_fair()
        # The harness may wait for an answer, which comes from the executor's socket.
        if self._is_executor_paused and harness.to_harness <= self._limits.hub_waiting_bytes:
            self._reconsider_executor()

    def from_executor(self, data: Frame, *, now: float) -> None:
        """Pass on a frame of the executor. A frame of a stream that has ended is only counted."""
        try:
            harness = self._streams.get(stream_id_of(data, limit=self._limits.hub_stream_id_bytes))
        except RelayError:
            harness = None
        if harness is None:
            self.unroutable += 1
            return
        harness.moved_at = now
        if self._to_the_harness(harness, data):
            return
        is_slow = harness.to_harness > self._limits.hub_waiting_bytes
        if harness.to_harness > self._limits.hub_stream_bytes:
            self._send_away(harness, "the harness does not read", code=POLICY_VIOLATION)
        elif is_slow and harness.share.must_wait:
            reason = "the harnesses with this token do not read"
            self._send_away(harness, reason, code=POLICY_VIOLATION)
        elif is_slow and self._all_are_behind(now):
            self._pause_executor()
        if self._share.must_wait:
            self._relieve(now)
        self._make_room_if_fair()

    def executor_took(self, origin: JoinedHarness | None, size: int) -> None:
        """A message of *origin* has left the executor's queue."""
        size = self._weight(size)
        self._to_executor -= size
        if origin is not None:
            origin.to_executor -= size
            origin.share.give_back(size)
        self._share.give_back(size)
        if self._was_crowded and self._to_executor * 2 <= self._limits.hub_executor_bytes:
            self._was_crowded = False
            self._reconsider_all()
        elif origin is not None:
            self._reconsider(origin)

    def harness_took(self, harness: JoinedHarness, size: int) -> None:
        """A message has left the harness's queue."""
        size = self._weight(size)
        harness.to_harness -= size
        harness.share.give_back(size)
        self._share.give_back(size)
        is_low = harness.to_harness * 2 <= self._limits.hub_waiting_bytes
        if self._is_executor_paused and is_low:
            self._reconsider_executor()

    def _open(self, stream_id: bytes, harness: JoinedHarness) -> None:
        if len(harness.streams) >= self._limits.hub_harness_streams:
            raise RelayError("one stream too many")
        harness.streams[stream_id] = stream_id_text(stream_id)
        self._streams[stream_id] = harness

    def _to_the_executor(self, data: Frame, origin: JoinedHarness | None) -> bool:
        """Pass a frame on; True if it has left at once, so that it takes no memory."""
        self.frames += 1
        self.bytes += len(data)
        if self._executor.send(data, origin):
            return True
        weight = self._weight(len(data))
        self._share.take(weight)
        self._to_executor += weight
        if origin is not None:
            origin.to_executor += weight
            origin.share.take(weight)
        return False

    def _to_the_harness(self, harness: JoinedHarness, data: Frame) -> bool:
        """Pass a frame on; True if it has left at once, so that it takes no memory."""
        self.frames += 1
        self.bytes += len(data)
        if harness.port.send(data, None):
            return True
        weight = self._weight(len(data))
        self._share.take(weight)
        harness.to_harness += weight
        harness.share.take(weight)
        return False

    def _weight(self, size: int) -> int:
        """What a frame of *size* bytes takes in a queue."""
        return size + self._limits.hub_frame_overhead

    def _send_away(self, harness: JoinedHarness, reason: str, *, code: int) -> None:
        try:
            # The queued frames are of no use, because the later ones are lost.
            if code == POLICY_VIOLATION:
                harness.port.discard()
            for text in harness.streams.values():
                self._to_the_harness(harness, _reset(text, reason))
            harness.port.end(code, reason)
        finally:
            self.leave(harness)

    # Memory.

    def _relieve(self, now: float) -> None:
        """Queue no more. If other harnesses need the executor, the slowest one has to go."""
        slowest = max(self._harnesses, key=lambda each: each.to_harness, default=None)
        if (
            slowest is not None
            and slowest.to_harness > self._limits.hub_waiting_bytes
            and not self._all_are_behind(now)
        ):
            self._send_away(slowest, "the harness does not read", code=POLICY_VIOLATION)
        if self._share.must_wait:
            self._pause_executor()
            self._share.when_free((self, "executor"), self._reconsider_executor)

    def _make_room_if_fair(self) -> None:
        """Make others give memory back, if this environment has only its fair part of it."""
        if self._memory.is_full and not self._share.must_wait:
            self._memory.make_room()

    def largest_queue(self) -> int:
        if self._is_over:
            return 0
        longest = max((each.to_harness for each in self._harnesses), default=0)
        return max(longest, self._to_executor)

    def drop_largest_queue(self, reason: str) -> None:
        slowest = max(self._harnesses, key=lambda each: each.to_harness, default=None)
        if slowest is not None and slowest.to_harness >= self._to_executor:
            self._send_away(slowest, reason, code=POLICY_VIOLATION)
            return
        self.end(reason)
        self._executor.discard()
        self._executor.end(TRY_AGAIN_LATER, reason)

    # Pausing and resuming.

    @property
    def _is_crowded(self) -> bool:
        return self._to_executor > self._limits.hub_executor_bytes or self._share.must_wait

    def _pause(self, harness: JoinedHarness) -> None:
        if not harness.is_paused:
            harness.is_paused = True
            harness.port.pause()
        if self._share.must_wait:
            self._share.when_free((self, "harnesses"), self._reconsider_all)
        self._wait_for_token(harness)

    def _wait_for_token(self, harness: JoinedHarness) -> None:
        if harness.share.must_wait:
            harness.share.when_free(harness, lambda: self._reconsider(harness))

    def _reconsider(self, harness: JoinedHarness) -> None:
        if not harness.is_paused:
            return
        self._wait_for_token(harness)
        is_low = harness.to_executor * 2 <= self._limits.hub_waiting_bytes
        if is_low and not self._is_crowded and not harness.share.must_wait:
            harness.is_paused = False
            harness.port.resume()

    def _reconsider_all(self) -> None:
        for harness in tuple(self._harnesses):
            self._reconsider(harness)

    def _all_are_behind(self, now: float) -> bool:
        """True if the queue of every recently active harness is too long."""
        since = now - self._limits.hub_quiet_seconds
        most = self._limits.hub_waiting_bytes
        return all(each.to_harness > most or each.moved_at < since for each in self._harnesses)

    def _pause_executor(self) -> None:
        if not self._is_executor_paused:
            self._is_executor_paused = True
            self._executor.pause()

    def _reconsider_executor(self) -> None:
        """Read the executor again; the next frame may pause it again."""
        if self._is_executor_paused and not self._share.must_wait:
            self._is_executor_paused = False
            self._executor.resume()


def _reset(stream_id: StreamId, reason: str) -> bytes:
    return encode(RelayFrame(stream_id, Reset(reason)))

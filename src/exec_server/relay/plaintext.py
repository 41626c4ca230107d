"""The older relay, without encryption: one message in each data frame.

It is used only if it is asked for by name, and never because the other relay failed. Messages are
delivered as they arrive, repeated frames are dropped, segments are joined. Frames carry `ack` and
`ack_bits`; nothing is sent twice, since the sockets below lose nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay.acks import ReceivedFrames, SentFrames
from exec_server.relay.effects import Effect, Message, Send, StreamOpened
from exec_server.relay.frame import (
    SEQ_END,
    Ack,
    Body,
    Data,
    RelayFrame,
    Reset,
    Resume,
    StreamId,
    Trace,
    decode,
    encode,
)
from exec_server.relay.inbox import Inbox
from exec_server.relay.open_streams import Streams
from exec_server.relay.records import Join
from exec_server.relay.segments import Stitcher


class PlaintextStream:
    """Both directions of a stream. It cannot be used after a RelayError."""

    def __init__(
        self, stream_id: StreamId, *, first_seq: int = 0, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        """Expect the peer's frames to count from *first_seq*."""
        self._stream_id = stream_id
        self._limits = limits
        self._received = ReceivedFrames(first=first_seq, limits=limits)
        self._sent = SentFrames()
        self._stitcher = Stitcher(limits=limits)
        self._silent_frames = 0
        self.inbox = Inbox(limits=limits)

    def join_with(self, join: Join) -> None:
        """Let *join* make the messages that come in several segments."""
        self._stitcher.join = join

    @property
    def unacknowledged(self) -> int:
        """The number of our frames that the peer has not confirmed; old peers confirm none."""
        return self._sent.unacknowledged

    def acknowledged(self, frame: RelayFrame) -> None:
        """Take the acknowledgement that every frame of the peer carries."""
        self._sent.read(frame.ack, frame.ack_bits)

    def receive(self, data: Data) -> Sequence[bytes]:
        """Return the message that *data* completes, if any; none while the reader has paused."""
        if len(data.payload) > self._limits.message_bytes:
            raise RelayError(f"a message of {len(data.payload)} bytes")
        if not self._received.note(data.seq):
            return ()
        self._silent_frames += 1
        message = self._stitcher.receive(data)
        return () if message is None else self.inbox.receive((message,))

    def send(self, *parts: bytes, trace: Trace | None = None) -> list[Send]:
        """Return the frame of one message, given in pieces."""
        payload = b"".join(parts)
        if not 0 < len(payload) <= self._limits.message_bytes:
            raise RelayError(f"a message of {len(payload)} bytes cannot be sent")
        if self._sent.next_seq >= SEQ_END:
            raise RelayError("the stream has used all its numbers")
        frame = self._encode(Data(self._sent.next_seq, payload), trace)
        self._sent.next_seq += 1
        return [Send(frame)]

    def announce(self) -> bytes:
        """Return the frame that names the stream to the rendezvous and the executor."""
        return self._encode(Resume(self._sent.next_seq))

    def due_ack(self) -> Sequence[bytes]:
        """Return a frame with an ack alone, if many frames have arrived and none was sent back."""
        if self._silent_frames < self._limits.relay_ack_frames:
            return ()
        return [self._encode(Ack())]

    def _encode(self, body: Body, trace: Trace | None = None) -> bytes:
        self._silent_frames = 0
        received = self._received
        return encode(
            RelayFrame(
                self._stream_id,
                body,
                received.ack,
                received.ack_bits,
                trace.traceparent if trace else None,
                trace.tracestate if trace else None,
            )
        )


class PlaintextMux(Streams[PlaintextStream]):
    """The streams on the one socket of an executor; a resume or data frame opens one."""

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        self._limits = limits

    def receive(self, data: bytes | memoryview) -> Sequence[Effect]:
        """Take one binary message of the socket. One that is not a valid frame is ignored."""
        try:
            frame = decode(data, segmented=True)
        except RelayError:
            return ()
        stream_id, body = frame.stream_id, frame.body
        if isinstance(body, Reset):
            return self._was_reset(stream_id, body.reason)
        stream = self._open.get(stream_id)
        if stream is not None:
            return self._on_frame(stream_id, stream, frame)
        if not isinstance(body, Data | Resume):
            return ()
        if len(self._open) >= self._limits.relay_streams:
            return [self._reset(stream_id, "too many streams")]
        stream = self._admit(stream_id, body)
        return [StreamOpened(stream_id), *self._on_frame(stream_id, stream, frame)]

    def _admit(self, stream_id: StreamId, body: Data | Resume) -> PlaintextStream:
        first_seq = body.next_seq if isinstance(body, Resume) else 0
        stream = PlaintextStream(stream_id, first_seq=first_seq, limits=self._limits)
        self._open[stream_id] = stream
        return stream

    def _on_frame(
        self, stream_id: StreamId, stream: PlaintextStream, frame: RelayFrame
    ) -> Sequence[Effect]:
        stream.acknowledged(frame)
        if not isinstance(frame.body, Data):
            return ()
        delivered = self._deliver(stream_id, stream, frame.body)
        if stream_id not in self._open:
            return delivered
        return [*delivered, *map(Send, stream.due_ack())]


class PlaintextHarness:
    """The harness's end of a stream. It has a socket of its own and is open at once."""

    def __init__(self, stream_id: str, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.stream_id = StreamId(stream_id)
        self._stream: PlaintextStream | None = PlaintextStream(self.stream_id, limits=limits)

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    def join_with(self, join: Join) -> None:
        """Let *join* make the long messages."""
        if self._stream is not None:
            self._stream.join_with(join)

    def start(self) -> Sequence[Effect]:
        """Announce the stream. There is no answer to that."""
        assert self._stream is not None
        return [Send(self._stream.announce()), StreamOpened(self.stream_id)]

    def receive(self, data: bytes | memoryview) -> Sequence[Effect]:
        """Return Messages. Raises RelayError if the connection cannot go on."""
        try:
            return self._receive(data)
        except RelayError:
            self._stream = None
            raise

    def send(self, *parts: bytes, trace: Trace | None = None) -> Sequence[Effect]:
        """Send one message, given in pieces. Raises RelayError if no peer would accept it."""
        if self._stream is None:
            return ()
        return self._stream.send(*parts, trace=trace)

    def _receive(self, data: bytes | memoryview) -> Sequence[Effect]:
        frame = decode(data, segmented=True)
        stream = self._stream
        if frame.stream_id != self.stream_id or stream is None:
            return ()
        stream.acknowledged(frame)
        if isinstance(frame.body, Reset):
            raise RelayError(f"the executor has reset the stream: {frame.body.reason}")
        if not isinstance(frame.body, Data):
            return ()
        messages = [Message(self.stream_id, message) for message in stream.receive(frame.body)]
        return [*messages, *map(Send, stream.due_ack())]

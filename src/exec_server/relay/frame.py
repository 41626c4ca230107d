"""Relay frames, and their encoding in protobuf; the same in both directions."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, NewType

from google.protobuf.message import DecodeError
from msgspec import Struct

from exec_server.errors import RelayError
from exec_server.relay import relay_pb2 as pb

VERSION = 1
SEQ_END = 2**32 - 1

# Unicode White_Space. `str.strip()` would also take U+001C to U+001F, which are not in it.
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

StreamId = NewType("StreamId", str)


def is_stream_id(text: str) -> bool:
    """True if *text* may name a stream: it has more than white space."""
    return bool(text.strip(_WHITE_SPACE))


class Trace(NamedTuple):
    """A W3C trace context, which travels in clear text beside the request it belongs to."""

    traceparent: str
    tracestate: str | None = None


class Data(Struct, frozen=True, gc=False):
    """A record; in the older relay a message, or one of the segments of a message."""

    seq: int
    # A memoryview if the frame was one; it is valid as long as the frame is.
    payload: bytes | memoryview
    segment_index: int = 0
    segment_count: int = 1


class Ack(Struct, frozen=True, gc=False):
    """A frame that only carries `ack` and `ack_bits`."""


class Resume(Struct, frozen=True, gc=False):
    """Announces a stream, and the number that its sender's next data frame will have."""

    next_seq: int = 0


class Reset(Struct, frozen=True, gc=False):
    """The stream has ended."""

    reason: str


class Heartbeat(Struct, frozen=True, gc=False):
    """A frame without content."""


class Handshake(Struct, frozen=True, gc=False):
    """The first or second message of a Noise handshake."""

    payload: bytes


Body = Data | Ack | Resume | Reset | Heartbeat | Handshake


class RelayFrame(Struct, frozen=True, gc=False):
    """One WebSocket message between an endpoint and the rendezvous."""

    stream_id: StreamId
    body: Body
    # Only the older relay uses these two.
    ack: int = 0
    ack_bits: int = 0
    traceparent: str | None = None
    tracestate: str | None = None


def decode(data: bytes | memoryview, *, segmented: bool = False) -> RelayFrame:
    """Read the frame in *data*. Raises RelayError if it is not a valid one.

    A message in several segments is valid only if *segmented* is true.
    """
    quick = _read_plain_data(data)
    if quick is not None:
        return quick
    try:
        raw = pb.RelayMessageFrame.FromString(bytes(data))
    except DecodeError:
        raise RelayError("not a relay frame") from None
    if raw.version != VERSION:
        raise RelayError(f"relay frame of version {raw.version}")
    stream_id, body = StreamId(raw.stream_id), _read_body(raw)
    _check(stream_id, body, segmented=segmented)
    if not (raw.ack or raw.ack_bits or raw.HasField("traceparent") or raw.HasField("tracestate")):
        return RelayFrame(stream_id, body)
    return RelayFrame(
        stream_id,
        body,
        raw.ack,
        raw.ack_bits,
        raw.traceparent if raw.HasField("traceparent") else None,
        raw.tracestate if raw.HasField("tracestate") else None,
    )


# The fields of a plain data frame, in the order in which every sender writes them.
_PLAIN_HEAD = b"\x08\x01\x12"
_SEQ_TAG, _COUNT_TAG = 0x08, b"\x18\x01"
# It is longer than all that stands before the payload.
_PLAIN_HEAD_BYTES = 160


def _read_plain_data(data: bytes | memoryview) -> RelayFrame | None:
    """Read a data frame that is written as every sender does; None for any other frame.

    Nearly all frames are of this kind, and protobuf would copy each payload once more.
    """
    # Single bytes of a memoryview are slow to read.
    head = bytes(data[:_PLAIN_HEAD_BYTES])
    try:
        id_end = 4 + head[3]
        if head[:3] != _PLAIN_HEAD or id_end > 131 or head[id_end] != _DATA_TAG[0]:
            return None
        size, at = _read_varint(head, id_end + 1)
        if at + size != len(data):
            return None
        seq = 0
        if head[at] == _SEQ_TAG:
            seq, at = _read_varint(head, at + 1)
        if head[at : at + 3] != _COUNT_AND_PAYLOAD:
            return None
        size, at = _read_varint(head, at + 3)
    except IndexError:
        return None
    stream_id = _plain_stream_id(head[4:id_end])
    if stream_id is None or not size or at + size != len(data) or seq >> 32:
        return None
    return RelayFrame(stream_id, Data(seq, data[at:]))


# The frames of one socket name few streams.
@lru_cache(maxsize=256)
def _plain_stream_id(raw: bytes) -> StreamId | None:
    try:
        stream_id = StreamId(raw.decode())
    except UnicodeDecodeError:
        return None
    return stream_id if is_stream_id(stream_id) else None


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and the position after it."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            # Such a long number is left to protobuf.
            raise IndexError


def _read_body(raw: pb.RelayMessageFrame) -> Body:
    match raw.WhichOneof("body"):
        case "data":
            data = raw.data
            return Data(data.seq, data.payload, data.segment_index, data.segment_count)
        case "handshake":
            return Handshake(raw.handshake.payload)
        case "resume":
            return Resume(raw.resume.next_seq)
        case "reset":
            return Reset(raw.reset.reason)
        case "ack_frame":
            return Ack()
        case "heartbeat":
            return Heartbeat()
        case _:
            raise RelayError("relay frame without a body")


def _check(stream_id: str, body: Body, *, segmented: bool) -> None:
    if not is_stream_id(stream_id):
        raise RelayError("relay frame with a blank stream id")
    if isinstance(body, Data):
        if not (segmented or (body.segment_index == 0 and body.segment_count == 1)):
            raise RelayError("relay data in segments")
        if body.segment_index >= body.segment_count:
            raise RelayError("relay data with a segment beyond the last one")
        if not body.payload:
            raise RelayError("relay data without a payload")
    elif isinstance(body, Handshake):
        if not body.payload:
            raise RelayError("relay handshake without a payload")
    elif isinstance(body, Reset) and not body.reason:
        raise RelayError("relay reset without a reason")


def encode(frame: RelayFrame) -> bytes:
    """Return the bytes of *frame*. Raises RelayError if no peer would accept it."""
    _check(frame.stream_id, frame.body, segmented=True)
    raw = pb.RelayMessageFrame(
        version=VERSION,
        stream_id=frame.stream_id,
        ack=frame.ack,
        ack_bits=frame.ack_bits,
        traceparent=frame.traceparent,
        tracestate=frame.tracestate,
    )
    _write_body(raw, frame.body)
    return raw.SerializeToString()


def _write_body(raw: pb.RelayMessageFrame, body: Body) -> None:
    match body:
        case Data(seq, payload, index, count):
            raw.data.CopyFrom(
                pb.RelayData(
                    seq=seq, segment_index=index, segment_count=count, payload=bytes(payload)
                )
            )
        case Handshake(payload):
            raw.handshake.payload = payload
        case Resume(next_seq):
            raw.resume.CopyFrom(pb.RelayResume(next_seq=next_seq))
        case Reset(reason):
            raw.reset.reason = reason
        case Ack():
            raw.ack_frame.SetInParent()
        case Heartbeat():
            raw.heartbeat.SetInParent()


# The bytes that a frame may leave free in front of itself: a WebSocket's header has 14 at most, and
# its mask repeats every four bytes.
ROOM = 16


class DataHeads:
    """Writes what precedes the payload in the data frames of one stream.

    Protobuf allows a message to be encoded in parts that follow one another, so only the bytes
    around the payload are made here. The result is the same as that of `encode`.
    """

    __slots__ = ("_head",)

    def __init__(self, stream_id: StreamId) -> None:
        head = pb.RelayMessageFrame(version=VERSION, stream_id=stream_id).SerializeToString()
        self._head = head + _DATA_TAG

    def head(self, seq: int, size: int) -> bytes:
        """What precedes a payload of *size* bytes."""
        numbers = _SEQ_TAG_BYTES + _varint(seq) + _COUNT_AND_PAYLOAD if seq else _COUNT_AND_PAYLOAD
        payload_size = _varint(size)
        body_size = _varint(len(numbers) + len(payload_size) + size)
        return b"".join((self._head, body_size, numbers, payload_size))

    def payload(self, data: bytes | memoryview, seq: int) -> bytes | memoryview | None:
        """The payload of *data* if that is a large frame with this number; None otherwise.

        Such a frame is compared with what it has to be, which takes less time than to read it.
        """
        # Both sizes take three bytes.
        numbers_bytes = 1 + len(_varint(seq)) + 3 if seq else 3
        size = len(data) - len(self._head) - numbers_bytes - 6
        if not LARGE_BYTES <= size < _HUGE:
            return None
        head = self.head(seq, size)
        at = len(head)
        return data[at:] if bytes(data[:at]) == head else None


# Sizes that take three bytes, also with some bytes around them.
LARGE_BYTES, _HUGE = 0x4000, 0x1F_0000


class DataEncoder:
    """Writes the data frames of one stream, around payloads that are written in their place."""

    __slots__ = ("_heads",)

    def __init__(self, stream_id: StreamId) -> None:
        self._heads = DataHeads(stream_id)

    def frame(self, seq: int, size: int, trace: Trace | None = None) -> tuple[bytearray, int]:
        """Return a frame with room for a payload of *size* bytes, and the position of that.

        The frame itself begins after `ROOM` bytes.
        """
        head = self._heads.head(seq, size)
        at = ROOM + len(head)
        buffer = bytearray(at + size)
        buffer[ROOM:at] = head
        if trace is not None:
            buffer += _trace_tail(trace)
        return buffer, at


# A tag is a field number in the upper five bits, and 2 for "a length, then bytes".
_DATA_TAG = bytes([pb.RelayMessageFrame.DATA_FIELD_NUMBER << 3 | 2])
_PAYLOAD_TAG = bytes([pb.RelayData.PAYLOAD_FIELD_NUMBER << 3 | 2])
_SEQ_TAG_BYTES = bytes([_SEQ_TAG])
_COUNT_AND_PAYLOAD = _COUNT_TAG + _PAYLOAD_TAG


def _varint(value: int) -> bytes:
    # Written out for the sizes of a full record, since there are three numbers in each frame.
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _trace_tail(trace: Trace) -> bytes:
    return pb.RelayMessageFrame(
        traceparent=trace.traceparent, tracestate=trace.tracestate
    ).SerializeToString()

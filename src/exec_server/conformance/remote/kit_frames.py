"""Frames of the relay as bytes. The kit also makes wrong ones, so it writes the bytes itself."""

from __future__ import annotations

from typing import Literal, NamedTuple

Body = Literal["data", "ack_frame", "resume", "reset", "heartbeat", "handshake"]

# Numbers of fields in a frame.
VERSION, STREAM_ID, ACK, ACK_BITS, TRACEPARENT = 1, 2, 3, 4, 11
BODIES: dict[Body, int] = {
    "data": 5,
    "ack_frame": 6,
    "resume": 7,
    "reset": 8,
    "heartbeat": 9,
    "handshake": 10,
}
_NAMES = {number: name for name, number in BODIES.items()}
_SEQ, _INDEX, _COUNT, _PAYLOAD = 1, 2, 3, 4
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}

Value = int | bytes


class KitFrame(NamedTuple):
    """A frame that was received."""

    stream_id: str
    body: Body
    # The bytes of a record, of a message of the handshake, or the reason of a reset.
    payload: bytes
    seq: int
    # What is said beyond the body, and should be 0: the acknowledgements.
    acks: tuple[int, int]


def number(value: int) -> bytes:
    """An integer of Protobuf, seven bits in each byte."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def field(place: int, value: Value) -> bytes:
    """A field, written even if its value is 0 or empty."""
    if isinstance(value, int):
        return number(place << 3 | _VARINT) + number(value)
    return number(place << 3 | _LENGTH) + number(len(value)) + value


def frame(stream_id: str, body: Body, inside: bytes = b"", *, version: int = 1) -> bytes:
    """A frame whose body has these bytes."""
    head = field(VERSION, version) + field(STREAM_ID, stream_id.encode())
    return head + field(BODIES[body], inside)


def data_frame(
    stream_id: str, seq: int, record: bytes, *, index: int = 0, count: int = 1, version: int = 1
) -> bytes:
    inside = field(_SEQ, seq) + field(_INDEX, index) + field(_COUNT, count)
    return frame(stream_id, "data", inside + field(_PAYLOAD, record), version=version)


def handshake_frame(stream_id: str, message: bytes) -> bytes:
    return frame(stream_id, "handshake", field(1, message))


def reset_frame(stream_id: str, reason: str) -> bytes:
    return frame(stream_id, "reset", field(1, reason.encode()))


def resume_frame(stream_id: str) -> bytes:
    return frame(stream_id, "resume")


def read_frame(data: bytes) -> KitFrame:
    """A frame of a peer. Raises ValueError if it is not as the protocol says."""
    fields = _fields(data)
    if fields.get(VERSION) != 1:
        raise ValueError(f"a frame of version {fields.get(VERSION)!r}")
    stream_id = _bytes(fields, STREAM_ID).decode()
    found = [place for place in fields if place in _NAMES]
    if not stream_id.strip() or len(found) != 1:
        raise ValueError(f"a frame with the stream id {stream_id!r:.80} and {len(found)} bodies")
    body = _NAMES[found[0]]
    inside = _fields(_bytes(fields, found[0]))
    payload, seq = b"", 0
    if body == "data":
        borders = _int(inside, _INDEX), _int(inside, _COUNT)
        if borders != (0, 1):
            raise ValueError(f"a data frame with segment {borders[0]} of {borders[1]}")
        payload, seq = _bytes(inside, _PAYLOAD), _int(inside, _SEQ)
    elif body in ("handshake", "reset"):
        payload = _bytes(inside, 1)
    if body in ("data", "handshake", "reset") and not payload:
        raise ValueError(f"a {body} frame that is empty")
    return KitFrame(stream_id, body, payload, seq, (_int(fields, ACK), _int(fields, ACK_BITS)))


def _fields(data: bytes) -> dict[int, Value]:
    """The fields of a message; the last one of several counts."""
    found: dict[int, Value] = {}
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _number(data, at)
            found[tag >> 3] = value
            continue
        if kind == _LENGTH:
            size, at = _number(data, at)
        elif kind in _WIDTHS:
            size = _WIDTHS[kind]
        else:
            raise ValueError("bytes that are not Protobuf")
        if at + size > len(data):
            raise ValueError("a frame that ends too early")
        found[tag >> 3] = data[at : at + size]
        at += size
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number that does not end")


def _bytes(fields: dict[int, Value], place: int) -> bytes:
    value = fields.get(place, b"")
    if isinstance(value, int):
        raise ValueError(f"field {place} is a number")
    return value


def _int(fields: dict[int, Value], place: int) -> int:
    value = fields.get(place, 0)
    if not isinstance(value, int):
        raise ValueError(f"field {place} is no number")
    return value

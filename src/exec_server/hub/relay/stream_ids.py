"""The stream id of a relay frame, found without decoding or copying the payload."""

from __future__ import annotations

from exec_server.errors import RelayError
from exec_server.relay.frame import StreamId, is_stream_id

# Almost every frame begins so: version 1, then the tag of the stream id.
_USUAL_HEAD = b"\x08\x01\x12"
_STREAM_ID = 2
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def stream_id_of(data: bytes | memoryview, *, limit: int) -> bytes:
    """The stream id in *data*; RelayError unless there is exactly one, of 1 to *limit* bytes.

    In Protobuf the last of several values counts. A frame with two ids could name one stream here
    and another one at its reader, so this function visits all fields and skips them by their
    lengths.
    """
    found: bytes | None = None
    at, end = 0, len(data)
    if end > 3 and data[:3] == _USUAL_HEAD and data[3] < 0x80:
        at = 4 + data[3]
        found = bytes(data[4:at])
    while at < end:
        # Most tags are small, and so is what is not the payload.
        tag = data[at]
        if tag > 0x7F:
            tag, at = _varint(data, at)
        else:
            at += 1
        kind = tag & 7
        if kind == _LENGTH:
            size, at = _varint(data, at)
            if tag >> 3 == _STREAM_ID:
                if found is not None:
                    raise RelayError("relay frame with two stream ids")
                found = bytes(data[at : at + size])
            at += size
        else:
            at = _skip(data, at, tag)
    if at != end:
        raise RelayError("relay frame that ends too early")
    if not found or len(found) > limit:
        raise RelayError("relay frame without a usable stream id")
    return found


def stream_id_text(stream_id: bytes) -> StreamId:
    """The text of a new stream's id. Raises RelayError if no frame can be written for it."""
    try:
        text = stream_id.decode()
    except UnicodeDecodeError:
        raise RelayError("relay frame without a usable stream id") from None
    if not is_stream_id(text):
        raise RelayError("relay frame with a blank stream id")
    return StreamId(text)


def _skip(data: bytes | memoryview, at: int, tag: int) -> int:
    kind = tag & 7
    if tag >> 3 == _STREAM_ID:
        raise RelayError("relay frame with a stream id of another type")
    if kind == _VARINT:
        return _varint(data, at)[1]
    if kind == _FIXED64:
        return at + 8
    if kind == _FIXED32:
        return at + 4
    raise RelayError("not a relay frame")


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while (byte := data[at]) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if shift > 28:
                # Tags and lengths of frames fit in 32 bits, and readers disagree on longer ones.
                raise RelayError("not a relay frame")
    except IndexError:
        raise RelayError("relay frame that ends too early") from None
    return value | byte << shift, at + 1

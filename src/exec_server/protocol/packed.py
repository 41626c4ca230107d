"""Packed messages: the bytes of one long member follow the text of the message, without base64.

    0x01 | place: 16 bits | size of the text: 16 bits | the text | the bytes

The text is the whole JSON message with an empty string for the member, whose content belongs at
*place*. It means exactly the message with the strict base64 of the bytes there. Both ends have to
agree on it, and it needs a connection that carries bytes. See docs/wire.md.
"""

from __future__ import annotations

from struct import Struct, error

from exec_server.errors import MalformedMessage
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol.bulk import AROUND_BYTES, MARK, MARKERS, Cut

# Shorter content stays in the text: cutting it out costs more than reading base64.
LEAST_BYTES = 1024
# Longer content stays in the text, too, because it is read in pieces.
MOST_BYTES = 1536 * 1024

_HEADER = Struct(">BHH")


def is_packable(size: int, around: int = 0) -> bool:
    """True if content of *size* bytes may be packed, in a text of *around* bytes."""
    return LEAST_BYTES <= size <= MOST_BYTES and around <= AROUND_BYTES


def packed_text(before: bytes, after: bytes) -> bytes:
    """All that precedes the bytes of a packed message, whose text is *before* and *after*."""
    place = len(before)
    return b"%b%b%b" % (_HEADER.pack(MARK, place, place + len(after)), before, after)


def unpack(
    data: bytes | bytearray | memoryview,
    *more: bytes | memoryview,
    limits: Limits = DEFAULT_LIMITS,
) -> Cut:
    """The parts of a packed message, whose bytes are copied. Raises MalformedMessage.

    It may come in several pieces, the first of which has the whole text. With base64 it must not
    be larger than a message may be.
    """
    try:
        _, place, size = _HEADER.unpack_from(data)
    except error as exc:
        raise MalformedMessage("a packed message ends in its header") from exc
    end = _HEADER.size + size
    if size > AROUND_BYTES or len(data) < end:
        raise MalformedMessage("a packed message with a text of the wrong size")
    content_bytes = len(data) - end + sum(map(len, more))
    if size + (content_bytes + 2) // 3 * 4 > limits.message_bytes:
        raise MalformedMessage("a packed message that is too large")
    text = bytes(data[_HEADER.size : end])
    before, after = text[:place], text[place:]
    for name, marker in MARKERS:
        if before.endswith(marker) and after.startswith(b'"'):
            content = b"".join((memoryview(data)[end:], *more))
            return Cut(before, name, [content], after, end + len(content))
    raise MalformedMessage("a packed message without a member for its bytes")

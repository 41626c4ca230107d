"""The bytes of the frames that a server sends: headers, and messages cut into frames; no I/O."""

from __future__ import annotations

from collections.abc import Sequence

# The first byte of a frame: whether it is the last of its message, and its kind.
WHOLE_TEXT, WHOLE_BINARY, FIRST_TEXT, FIRST_BINARY = 0x81, 0x82, 0x01, 0x02
MORE, LAST = 0x00, 0x80


def frame_header(first: int, size: int) -> bytes:
    """Return the header of an unmasked frame with *size* bytes of payload."""
    if size < 126:
        return bytes((first, size))
    if size < 65536:
        return bytes((first, 126)) + size.to_bytes(2, "big")
    return bytes((first, 127)) + size.to_bytes(8, "big")


# The headers of most answers, by the size of the answer.
SMALL_HEADERS = [frame_header(WHOLE_TEXT, size) for size in range(1024)]


def cut(parts: Sequence[bytes], limit: int) -> list[tuple[int, list[memoryview]]]:
    """Divide *parts* into frames of *limit* bytes, each with its size; nothing is copied."""
    frames: list[tuple[int, list[memoryview]]] = []
    size, pieces = 0, list[memoryview]()
    for part in parts:
        view = memoryview(part)
        while view:
            piece, view = view[: limit - size], view[limit - size :]
            size += len(piece)
            pieces.append(piece)
            if size == limit:
                frames.append((size, pieces))
                size, pieces = 0, []
    if pieces:
        frames.append((size, pieces))
    return frames

"""Read all of an open file as base64, and write bytes to one."""

from __future__ import annotations

import os
from collections.abc import Callable

from exec_server.errors import InvalidRequest
from exec_server.protocol.base64 import Base64Error, LazyBlob, LongBase64, encode_base64
from exec_server.protocol.method import Encoded

# The number is a multiple of three, so that the pieces of base64 have no padding between them. Each
# becomes 1 MiB of text, which stays in a processor's cache while it is read and encoded.
_PIECE_BYTES = 768 * 1024

# Long work asks this between its steps. Its result is not used after True.
IsCancelled = Callable[[], bool]


def never() -> bool:
    """The `IsCancelled` of work that is always done to its end."""
    return False


# The new content of a file.
Content = bytes | LongBase64

HEAD, TAIL = b'{"dataBase64":"', b'"}'


def content_of(blob: LazyBlob) -> Content:
    """The content in a request of fs/writeFile. Raises InvalidRequest if it is not base64."""
    try:
        return blob.content()
    except Base64Error as exc:
        reason = str(exc).removeprefix("invalid base64: ")
        text = f"fs/writeFile requires valid base64 dataBase64: {reason}"
        raise InvalidRequest(text) from exc


def too_large(limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"file is too large to read: limit is {limit} bytes; "
        "read it in blocks with fs/open and fs/readBlock"
    )


def read_all(fd: int, *, size: int, limit: int, is_cancelled: IsCancelled = never) -> Encoded:
    """The answer of fs/readFile with the content of *fd*, which is about *size* bytes long.

    Raises InvalidRequest if there are more than *limit* bytes, and OSError.
    """
    if size > limit:
        raise too_large(limit)
    parts, total = [HEAD], 0
    # One byte more than expected, so that the same read finds the end of the file.
    buffer = _buffer(size + 1)
    while not is_cancelled():
        filled = fill(fd, buffer)
        total += filled
        if total > limit:
            raise too_large(limit)
        parts.append(encode_base64(buffer[:filled]))
        if filled < len(buffer):
            break
        buffer = buffer if len(buffer) == _PIECE_BYTES else _buffer(_PIECE_BYTES)
    return Encoded((*parts, TAIL))


def _buffer(size: int) -> memoryview:
    """A buffer of *size* bytes or more, up to one piece; its length is a multiple of three."""
    return memoryview(bytearray(min(max(size, 12 * 1024) // 3 * 3 + 3, _PIECE_BYTES)))


def fill(fd: int, buffer: memoryview) -> int:
    """Read until *buffer* is full or the file ends. Returns how many bytes were read."""
    filled = 0
    while filled < len(buffer):
        size = os.readv(fd, [buffer[filled:]])
        if size == 0:
            break
        filled += size
    return filled


def whole(content: Content) -> bytes:
    """All of *content* in one piece."""
    return content if isinstance(content, bytes) else content.decode()


def write_content(fd: int, content: Content) -> None:
    """Write all of *content* at the position of *fd*. Raises OSError."""
    if isinstance(content, bytes):
        write_all(fd, content)
        return
    for piece in content.pieces():
        write_all(fd, piece)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of *data* at the position of *fd*. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]

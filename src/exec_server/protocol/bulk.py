"""Cut one long base64 member out of a message before the JSON is parsed.

This way megabytes never become a Python string. If such a message arrives in pieces, its base64 is
decoded piece by piece, and the whole text is never in memory.
"""

from __future__ import annotations

from typing import cast

from exec_server.protocol.base64 import (
    PIECE_CHARS,
    Base64Error,
    LongBase64,
    decode_base64,
    decode_piece,
    encode_base64,
)

# The members that carry bytes of files or processes.
QUOTED = {name: f'"{name}"'.encode() for name in ("chunk", "dataBase64")}
MARKERS = tuple((name, quoted + b':"') for name, quoted in QUOTED.items())
CHUNK = MARKERS[0][1]
# A packed message begins with this byte, and no JSON text does (packed.py).
MARK = 0x01
# The text around the base64 may have at most this many bytes at either end.
AROUND_BYTES = 16 * 1024
# In a message that comes whole, the text at either end is mostly much shorter.
_END_BYTES = 512
# Shorter pieces are joined before they are decoded. The number is a multiple of four.
_LEAST_CHARS = 64 * 1024
BACKSLASH = 0x5C


class Cut:
    """A message in three parts: the text up to a member's quote, its decoded bytes, the rest."""

    __slots__ = ("_size", "bulk", "head", "name", "tail")

    def __init__(self, head: bytes, name: str, pieces: list[bytes], tail: bytes, size: int) -> None:
        """*size* is that of the whole message in bytes."""
        self.head = head
        self.name = name
        self.bulk = LongBase64(pieces)
        self.tail = tail
        self._size = size

    def __len__(self) -> int:
        """The size of the message in bytes."""
        return self._size

    def text(self) -> bytes:
        """The message as it came; strict base64 has only one spelling for given bytes."""
        return b"".join((self.head, *map(encode_base64, self.bulk.pieces()), self.tail))


def member_start(data: bytes | bytearray, marker: bytes, until: int) -> int:
    """Where the text of the member after *marker* begins; 0 if it is not there yet."""
    start = data.find(marker, 0, until)
    return start + len(marker) if start > 0 and data[start - 1] != BACKSLASH else 0


def cut(data: memoryview) -> Cut | None:
    """The parts of a whole message; None if it has to be read as a whole.

    No byte of the base64 is copied, and strict base64 is a proof that its text is ASCII. The
    message is valid UTF-8 if there is a result.
    """
    head, end = bytes(data[:_END_BYTES]), bytes(data[-_END_BYTES:])
    last = end.find(b'"')
    if last < 0 or not head.isascii() or not end.isascii():
        return None
    for name, marker in MARKERS:
        start = member_start(head, marker, _END_BYTES)
        if 0 < start <= (stop := len(data) - len(end) + last):
            try:
                decoded = decode_base64(data[start:stop])
            except Base64Error:
                return None
            return Cut(head[:start], name, [decoded], end[last:], len(data))
    return None


class Assembly:
    """One message that arrives in pieces of any size."""

    def __init__(self) -> None:
        # The whole message, or the text before the base64.
        self._text = bytearray()
        # The text after the decoded part: the last piece of the base64 and all that follows.
        self._rest = bytearray()
        self._pieces: list[bytes] = []
        self._size = 0
        # The name of the member that is decoded; None if there is none so far.
        self._name: str | None = None
        self._is_decoding = False
        self._is_searched = False

    def add(self, piece: memoryview) -> None:
        self._size += len(piece)
        if not self._is_searched:
            room = AROUND_BYTES - len(self._text)
            self._text += piece[:room]
            piece = piece[room:]
            if len(self._text) < AROUND_BYTES:
                return
            self._search()
        if self._name is None:
            self._text += piece
        else:
            self._decode(piece)

    def is_utf8(self) -> bool:
        return _is_utf8(self._text) and _is_utf8(self._rest)

    def finish(self) -> bytes | Cut:
        """The message. The assembly must not be used afterwards."""
        if self._name is None:
            # This is not copied, which would take as much memory again; it is not changed any more.
            return cast("bytes", self._text)
        head, rest = bytes(self._text), self._rest
        try:
            end = rest.index(b'"')
            last = decode_base64(memoryview(rest)[:end])
            return Cut(head, self._name, [*self._pieces, last], bytes(rest[end:]), self._size)
        except (ValueError, Base64Error):
            # The parser of the whole text will say what is wrong with it.
            return Cut(head, self._name, self._pieces, bytes(rest), self._size).text()

    def _search(self) -> None:
        self._is_searched = True
        if self._text[0] == MARK:
            # Its content may look like a member with base64.
            return
        for name, marker in MARKERS:
            start = member_start(self._text, marker, AROUND_BYTES)
            if start and b'"' not in self._text[start:]:
                self._name, self._is_decoding = name, True
                beginning = bytes(self._text[start:])
                del self._text[start:]
                self._decode(memoryview(beginning))
                return

    def _decode(self, text: memoryview) -> None:
        """Decode as much as possible. From the first fault in the base64 on, the text is kept."""
        if self._rest and self._is_decoding:
            room = _LEAST_CHARS - len(self._rest)
            self._rest += text[:room]
            text = text[room:]
            if len(self._rest) == _LEAST_CHARS and self._decode_piece(self._rest):
                self._rest.clear()
        while not self._rest and len(text) >= _LEAST_CHARS:
            size = min(len(text), PIECE_CHARS) // 4 * 4
            if not self._decode_piece(text[:size]):
                break
            text = text[size:]
        self._rest += text

    def _decode_piece(self, text: bytearray | memoryview) -> bool:
        try:
            self._pieces.append(decode_piece(text))
        except Base64Error:
            self._is_decoding = False
        return self._is_decoding


def _is_utf8(data: bytearray) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

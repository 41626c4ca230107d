"""Strict base64: standard alphabet, padded, unused bits zero, no white space."""

from __future__ import annotations

from collections.abc import Iterator

import pybase64

from exec_server.errors import ExecServerError

# The allowed last letters of a group, by the number of bytes in it: their unused low bits are
# zero. Items of a text are letters, and items of bytes are numbers.
_CLEAN_ENDS = {
    1: frozenset("AQgw") | frozenset(b"AQgw"),
    2: frozenset("AEIMQUYcgkosw048") | frozenset(b"AEIMQUYcgkosw048"),
}

# Letters that are decoded at a time. The number is a multiple of four and fits a processor's cache.
PIECE_CHARS = 512 * 1024


class Base64Error(ExecServerError):
    """Text that is not strict base64."""


class Blob:
    """Bytes that travel as base64; shapes use it as a member's type."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and other.data == self.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"Blob({len(self.data)} bytes)"


class LongBase64:
    """The bytes of long base64, decoded piece by piece.

    One block for all of it would take more time, and for a moment twice the memory.
    """

    __slots__ = ("_pieces",)

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    @classmethod
    def of(cls, text: memoryview) -> LongBase64:
        """The bytes of *text*. Raises Base64Error."""
        last = (len(text) - 1) // PIECE_CHARS * PIECE_CHARS
        starts = range(0, last, PIECE_CHARS)
        pieces = [decode_piece(text[start : start + PIECE_CHARS]) for start in starts]
        return cls([*pieces, decode_base64(text[last:])])

    def pieces(self) -> Iterator[bytes]:
        """The bytes, in order."""
        return iter(self._pieces)

    def decode(self) -> bytes:
        return b"".join(self._pieces)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(map(len, self._pieces))

    def __repr__(self) -> str:
        return f"LongBase64({self.size} bytes)"


class LazyBlob:
    """Bytes that travel as base64. The method checks it, not the decoder of the parameters."""

    __slots__ = ("_value",)

    def __init__(self, value: str | bytes | LongBase64) -> None:
        # The text as it was received, or the bytes.
        self._value = value

    def content(self) -> bytes | LongBase64:
        """The bytes, in one piece or in several. Raises Base64Error."""
        return decode_base64(self._value) if isinstance(self._value, str) else self._value

    @property
    def size(self) -> int:
        """The number of bytes, if it is base64 at all."""
        if isinstance(self._value, LongBase64):
            return self._value.size
        if isinstance(self._value, bytes):
            return len(self._value)
        return len(self._value) * 3 // 4 - self._value[-2:].count("=")

    def decode(self) -> bytes:
        """The bytes. Raises Base64Error."""
        content = self.content()
        return content if isinstance(content, bytes) else content.decode()

    def __repr__(self) -> str:
        return f"LazyBlob({self._value!r:.40})"


def encode_base64(data: bytes | memoryview) -> bytes:
    return pybase64.b64encode(data)


def decode_base64(text: str | bytes | bytearray | memoryview) -> bytes:
    """The bytes of *text*. Raises Base64Error if encoding them gives another text."""
    try:
        # This is validate=True. Keyword arguments would double the time for a short text.
        data = pybase64.b64decode(text, None, True)
    except ValueError as exc:
        raise Base64Error(f"invalid base64: {exc}") from exc
    # The decoder ignores the unused bits of the last group, but they must be zero.
    tail = len(data) % 3
    if tail and text[tail - 4] not in _CLEAN_ENDS[tail]:
        raise Base64Error("invalid base64: unused bits are set")
    return data


def decode_piece(text: bytearray | memoryview) -> bytes:
    """The bytes of *text*, a piece of base64 that is not the last one. Raises Base64Error."""
    data = decode_base64(text)
    if len(data) * 4 != len(text) * 3:
        raise Base64Error("invalid base64: padding before the end")
    return data

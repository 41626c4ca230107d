"""Messages written one after the other as a stream of bytes, which is cut into records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits

# The largest record before encryption. It is part of the wire: the peer refuses a larger one.
RECORD_BYTES = 60 * 1024
_LENGTH_BYTES = 4
# A piece of at least this size is kept as an object of its own.
_LONG_BYTES = 4096

# Makes a message of its pieces. What it returns stands for the message and has its length.
Join = Callable[[Sequence[bytes | memoryview]], Any]


def split(*parts: bytes, limits: Limits = DEFAULT_LIMITS) -> Sequence[bytes] | Records:
    """Return the records of one message, given in pieces. Raises RelayError for a wrong size."""
    size = sum(map(len, parts))
    if not 0 < size <= limits.message_bytes:
        raise RelayError(f"a message of {size} bytes cannot be sent")
    head = size.to_bytes(_LENGTH_BYTES, "big")
    if size + _LENGTH_BYTES <= RECORD_BYTES:
        return (b"".join((head, *parts)),)
    return Records(head, *parts)


class Records:
    """The records of a long message, cut one by one while they are taken.

    So the message is not copied as a whole, and its first records are sent while the rest is
    being encrypted. Every record but the last is full.
    """

    __slots__ = ("_parts",)

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return -(-sum(map(len, self._parts)) // RECORD_BYTES)

    def __iter__(self) -> Iterator[bytes | memoryview]:
        pieces: list[memoryview] = []
        room = RECORD_BYTES
        for part in self._parts:
            view = memoryview(part)
            while len(view) >= room:
                # Bytes are copied only for a record that spans two parts.
                yield b"".join((*pieces, view[:room])) if pieces else view[:room]
                view, pieces, room = view[room:], [], RECORD_BYTES
            if view:
                pieces.append(view)
                room -= len(view)
        if pieces:
            yield b"".join(pieces)


class RecordAssembler:
    """Joins messages from records; these may be cut anywhere."""

    __slots__ = ("_head", "_held", "_max", "_missing", "_pieces", "_small", "join")

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._max = limits.message_bytes
        # The first bytes of a length that has not arrived completely.
        self._head = bytearray()
        # The number of bytes missing from the current message; 0 if there is none.
        self._missing = 0
        # The bytes of the current message: long records as they are, and short ones joined, since
        # a list of one-byte records would take forty times their size.
        self._pieces: list[bytes | memoryview] = []
        self._small = bytearray()
        self._held = 0
        # Used for messages of several records.
        self.join: Join = b"".join

    @property
    def held_bytes(self) -> int:
        return self._held + len(self._head)

    def receive(self, record: bytes) -> list[bytes]:
        """Return the messages that *record* completes. Raises RelayError for a wrong length."""
        size, at = len(record), 0
        if size > RECORD_BYTES:
            raise RelayError(f"a record of {size} bytes")
        messages: list[bytes] = []
        if _LONG_BYTES <= size < self._missing and not self._small:
            # It is the middle of a long message.
            self._pieces.append(record)
            self._held += size
            self._missing -= size
            return messages
        while at < size:
            if self._missing:
                at = self._go_on(record, at, messages)
            else:
                at = self._begin(record, at, messages)
        return messages

    def _begin(self, record: bytes, at: int, messages: list[bytes]) -> int:
        """Read a length, and the message after it if all of it is here."""
        if self._head or len(record) - at < _LENGTH_BYTES:
            return self._begin_in_pieces(record, at)
        start = at + _LENGTH_BYTES
        size = self._checked(record[at:start])
        if len(record) - start < size:
            self._missing = size
            return start
        messages.append(record[start : start + size])
        return start + size

    def _begin_in_pieces(self, record: bytes, at: int) -> int:
        end = at + _LENGTH_BYTES - len(self._head)
        self._head += record[at:end]
        if len(self._head) == _LENGTH_BYTES:
            self._missing = self._checked(self._head)
            self._head.clear()
        return end

    def _go_on(self, record: bytes, at: int, messages: list[bytes]) -> int:
        end = min(at + self._missing, len(record))
        if end - at >= _LONG_BYTES:
            self._settle_small()
            self._pieces.append(memoryview(record)[at:end])
        else:
            self._small += record[at:end]
        self._held += end - at
        self._missing -= end - at
        if not self._missing:
            self._settle_small()
            messages.append(self.join(self._pieces))
            self._pieces, self._held = [], 0
        return end

    def _settle_small(self) -> None:
        if self._small:
            self._pieces.append(bytes(self._small))
            self._small.clear()

    def _checked(self, length: bytes | bytearray) -> int:
        size = int.from_bytes(length, "big")
        if not 0 < size <= self._max:
            raise RelayError(f"a message of {size} bytes")
        return size

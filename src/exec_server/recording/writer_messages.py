"""What a recorder and its writer say to one another.

Events and output are in the spool. Over the socket the recorder passes segments of the spool and
wakes the writer, and the writer answers how far each recording is, so that another writer can go
on from there.
"""

from __future__ import annotations

import socket
import struct

import msgspec

from exec_server.recording.cast_format import CastHeader, WriterState

_LENGTH = struct.Struct("<I")
# Words to the writer: the next segment, whose descriptor comes with it; there is something in the
# spool while the writer waits; everything that is in the spool shall be in the files at once.
SEGMENT, WAKE, HURRY = b"s", b"w", b"h"
_MOST_WORDS = 64


class BeginCast(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    # The name of the file; a number is added if the name is taken.
    name: str
    header: CastHeader
    secrets: tuple[str, ...]


class CastResize(msgspec.Struct, frozen=True, array_like=True, tag="size"):
    time: float
    columns: int
    rows: int


class CastMark(msgspec.Struct, frozen=True, array_like=True, tag="mark"):
    time: float
    text: str


class EndCast(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    time: float
    status: int | None


WriterEvent = BeginCast | CastResize | CastMark | EndCast


class ResumedCast(msgspec.Struct, frozen=True, array_like=True):
    """A recording that an earlier writer has begun."""

    state: WriterState
    secrets: tuple[str, ...]


class WriterTerms(msgspec.Struct, frozen=True, array_like=True):
    """What a writer is told first."""

    directory: str
    quota: int | None
    resumed: dict[int, ResumedCast]
    # Where it begins in the first segment, and up to which position an earlier writer may have
    # made files that it has not told.
    offset: int = 0
    again_until: int = 0


class WriterAnswer(msgspec.Struct, frozen=True, array_like=True):
    """How far the writer is."""

    # The bytes of the spool that it has read, and that are in the files.
    count: int
    # True if it waits to be woken.
    is_idle: bool
    # The recordings that were touched and go on, those that have ended, the files of those that
    # were begun, and why some have failed.
    states: dict[int, WriterState] = {}
    ended: list[int] = []
    paths: dict[int, str] = {}
    failures: dict[int, str] = {}


_encode = msgspec.msgpack.Encoder().encode
_decode_terms = msgspec.msgpack.Decoder(WriterTerms).decode
_decode_event: msgspec.msgpack.Decoder[WriterEvent] = msgspec.msgpack.Decoder(WriterEvent)
_decode_answer = msgspec.msgpack.Decoder(WriterAnswer).decode


def encode_event(event: WriterEvent) -> bytes:
    return _encode(event)


def decode_event(data: memoryview) -> WriterEvent:
    """Raises msgspec.MsgspecError."""
    return _decode_event.decode(data)


def send(sock: socket.socket, message: WriterTerms | WriterAnswer) -> None:
    """Raises OSError."""
    data = _encode(message)
    sock.sendall(_LENGTH.pack(len(data)) + data)


def send_word(sock: socket.socket, word: bytes, fd: int | None = None) -> None:
    """Raises OSError, also if too many words wait."""
    if fd is None:
        sock.send(word, socket.MSG_DONTWAIT)
    else:
        socket.send_fds(sock, [word], [fd], socket.MSG_DONTWAIT)


def receive_words(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Words and the segments that come with them; no words at the end. Raises OSError."""
    words, fds, _, _ = socket.recv_fds(sock, _MOST_WORDS, _MOST_WORDS)
    return words, fds


def receive_terms(sock: socket.socket) -> WriterTerms:
    return _decode_terms(_receive(sock))


def receive_answer(sock: socket.socket) -> WriterAnswer:
    """Raises EOFError or OSError if the writer is gone."""
    return _decode_answer(_receive(sock))


def _receive(sock: socket.socket) -> memoryview:
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    return _exactly(sock, length)


def _exactly(sock: socket.socket, size: int) -> memoryview:
    view = memoryview(bytearray(size))
    at = 0
    while at < size:
        count = sock.recv_into(view[at:], 0, socket.MSG_WAITALL)
        if not count:
            raise EOFError("the other side has ended")
        at += count
    return view

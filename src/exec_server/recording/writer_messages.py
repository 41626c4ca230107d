"""What a recorder and its writer say to one another.

The recorder sends a batch of events with the output that belongs to them, and sends the next one
when the answer is there. The answer says how far each recording is, so that another writer can go
on from there.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

import msgspec

from exec_server.recording.cast_format import CastHeader, WriterState

_LENGTHS = struct.Struct("<II")
# The kernel takes 1024 buffers at once.
_MOST_BUFFERS = 512


class _Event(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """Something that happened to a terminal, which has a number."""

    terminal: int


class Begin(_Event, frozen=True, tag="begin"):
    path: str
    header: CastHeader
    secrets: tuple[str, ...]
    # True if an earlier writer may have made the file.
    is_again: bool = False


class Resume(_Event, frozen=True, tag="resume"):
    """Go on where an earlier writer has stopped."""

    state: WriterState
    secrets: tuple[str, ...]


class Output(_Event, frozen=True, tag="output"):
    """So many bytes of the output that follows the batch."""

    time: float
    size: int


class Resized(_Event, frozen=True, tag="size"):
    time: float
    columns: int
    rows: int


class Mark(_Event, frozen=True, tag="mark"):
    time: float
    text: str


class End(_Event, frozen=True, tag="end"):
    time: float
    status: int | None


Event = Begin | Resume | Output | Resized | Mark | End


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The recordings of a batch that go on, and why others have ended."""

    states: dict[int, WriterState]
    failures: dict[int, str]


class Terms(msgspec.Struct, frozen=True, array_like=True):
    """What a writer is told first."""

    directory: str
    quota: int | None


_encode = msgspec.msgpack.Encoder().encode
_decode_terms = msgspec.msgpack.Decoder(Terms).decode
_decode_events = msgspec.msgpack.Decoder(list[Event]).decode
_decode_answer = msgspec.msgpack.Decoder(Answer).decode


def send(sock: socket.socket, message: object, output: Sequence[bytes] = ()) -> None:
    """Send a message and the output that belongs to it. Raises OSError."""
    head = _encode(message)
    if len(output) > _MOST_BUFFERS:
        output = (b"".join(output),)
    size = sum(map(len, output))
    buffers = [_LENGTHS.pack(len(head), size), head, *output]
    # The kernel copies the output; other threads run meanwhile.
    sent = sock.sendmsg(buffers)
    if sent < _LENGTHS.size + len(head) + size:
        sock.sendall(memoryview(b"".join(buffers))[sent:])


def receive_terms(sock: socket.socket) -> Terms:
    return _decode_terms(_receive(sock)[0])


def receive_events(sock: socket.socket) -> tuple[list[Event], memoryview]:
    """The next batch and its output. Raises EOFError at the end, OSError."""
    head, output = _receive(sock)
    return _decode_events(head), output


def receive_answer(sock: socket.socket) -> Answer:
    """Raises EOFError or OSError if the writer is gone."""
    return _decode_answer(_receive(sock)[0])


def _receive(sock: socket.socket) -> tuple[memoryview, memoryview]:
    lengths = _LENGTHS.unpack(_exactly(sock, _LENGTHS.size))
    return _exactly(sock, lengths[0]), _exactly(sock, lengths[1])


def _exactly(sock: socket.socket, size: int) -> memoryview:
    view = memoryview(bytearray(size))
    at = 0
    while at < size:
        count = sock.recv_into(view[at:], 0, socket.MSG_WAITALL)
        if not count:
            raise EOFError("the other side has ended")
        at += count
    return view

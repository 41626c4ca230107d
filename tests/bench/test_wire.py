"""The benchmark's own WebSocket client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench import wire
from bench.wire import CLOSE, MORE, PING, TEXT, Wire, WireClosed, encode_frames


def frame(opcode: int, payload: bytes, *, is_last: bool = True) -> bytes:
    """As a server sends it: without a mask."""
    size = len(payload)
    length = bytes((size,)) if size < 126 else b"\x7f" + size.to_bytes(8, "big")
    return bytes((opcode | (0x80 if is_last else 0),)) + length + payload


@contextmanager
def talking(answer: bytes) -> Iterator[Wire]:
    """A connection to a peer that sends *answer* after the upgrade, and nothing more."""

    def talk() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + answer)
            connection.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk)
        thread.start()
        client = Wire("127.0.0.1", listener.getsockname()[1], timeout=10.0)
        try:
            yield client
        finally:
            client.close()
            thread.join()


def test_a_message_is_discarded_whatever_its_frames_are(monkeypatch):
    monkeypatch.setattr(wire, "_BUFFER_BYTES", 300)
    large = bytes(5000)
    answer = (
        frame(TEXT, large, is_last=False)
        + frame(PING, b"are you there?")
        + frame(MORE, b"", is_last=False)
        + frame(MORE, b"end")
        + frame(TEXT, b"next")
        + frame(TEXT, large)
    )
    with talking(answer) as client:
        assert client.discard() == len(large) + 3
        assert client.message() == b"next"
        assert client.discard() == len(large)


def test_a_close_ends_a_message_that_is_discarded():
    with talking(frame(TEXT, b"half", is_last=False) + frame(CLOSE, b"")) as client:
        with pytest.raises(WireClosed):
            client.discard()


def test_a_large_message_is_cut_into_frames(monkeypatch):
    monkeypatch.setattr(wire, "_FRAME_BYTES", 100)
    frames = encode_frames(bytes(250))
    assert [each[0] for each in frames] == [TEXT, MORE, 0x80 | MORE]
    assert [each[0] for each in encode_frames(bytes(100))] == [0x80 | TEXT]

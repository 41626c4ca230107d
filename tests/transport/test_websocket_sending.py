"""Messages of a server, small and large, in one piece and in several: short and long ways."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from exec_server.transport.websocket import WebSocketConnection
from tests.support.raw import CLOSE, TEXT, RawSocket, frame

# Everything here is the same over TLS.
pytestmark = [
    pytest.mark.usefixtures("carrier"),
    pytest.mark.parametrize("carrier", ["plain", "tls"], indirect=True),
]

# Around the sizes at which headers get longer, and messages take another way.
SIZES = [0, 1, 40, 125, 126, 1023, 1024, 1025, 16 * 1024, 16 * 1024 + 1, 65535, 65536]


class Answering:
    """A receiver that answers a message with the messages that it describes."""

    def __init__(self, context: Any) -> None:
        self._peer = context.peer
        self._connection: WebSocketConnection = context.connection
        self._connection.attach(self)
        self.received = 0

    def message_received(self, data: bytes) -> None:
        self.received += 1
        for pieces in json.loads(data):
            if pieces == "close":
                self._connection.close()
            else:
                self._connection.send(*map(filled, pieces))

    def writing_paused(self) -> None: ...

    def writing_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        self._peer.connection_lost()


def filled(size: int) -> bytes:
    return (b"%07d" % size * (size // 7 + 1))[:size]


def described(chance: random.Random, *, most: int) -> list[list[int]]:
    """Messages, each as the sizes of its pieces."""
    count = chance.randrange(most)
    return [[chance.choice(SIZES) for _ in range(chance.choice([1, 1, 3]))] for _ in range(count)]


async def answering(server: Any, sock: RawSocket) -> Answering:
    await sock.upgrade()
    await sock.send_frame(TEXT, b"{}")
    await sock.receive_frame()
    (context,) = server.core._contexts
    return Answering(context)


@pytest.mark.parametrize("seed", range(8))
async def test_every_message_arrives_whole_and_in_order(server, seed):
    chance = random.Random(seed)
    requests = [described(chance, most=12) for _ in range(chance.choice([1, 2, 20]))]
    async with RawSocket(server.url) as sock:
        await answering(server, sock)
        await sock.send(b"".join(frame(TEXT, json.dumps(each).encode()) for each in requests))
        for pieces in (pieces for request in requests for pieces in request):
            got = await sock.receive_frame()
            assert (got.opcode, got.fin, got.is_masked) == (TEXT, True, False)
            assert got.payload == b"".join(map(filled, pieces))


async def test_very_many_small_messages_of_one_read_arrive(server):
    request = frame(TEXT, json.dumps([[number, 7] for number in range(500)]).encode())
    async with RawSocket(server.url) as sock:
        await answering(server, sock)
        await sock.send(request * 3)
        for size in 3 * list(range(500)):
            assert (await sock.receive_frame()).payload == filled(size) + filled(7)


@pytest.mark.parametrize("before", [[], [[40], [1, 2, 3]], [[65536]]])
async def test_nothing_is_sent_or_received_after_the_end(server, before):
    ended = frame(TEXT, json.dumps([*before, "close", [40], [1, 2], [65536]]).encode())
    async with RawSocket(server.url) as sock:
        receiver = await answering(server, sock)
        await sock.send(ended + frame(TEXT, b"[[40]]") * 3)
        for pieces in before:
            assert (await sock.receive_frame()).payload == b"".join(map(filled, pieces))
        assert (await sock.receive_frame()).opcode == CLOSE
        assert receiver.received == 1

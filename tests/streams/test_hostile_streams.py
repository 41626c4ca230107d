"""Peers that try to take what belongs to other streams, or to fill the memory."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from exec_server.client.streams.client_streams import ClientStreams, RemoteListener
from exec_server.client.streams.stream_place import StreamPlace
from exec_server.limits import DEFAULT_LIMITS
from exec_server.protocol import streams
from exec_server.streams.byte_stream import ByteStream
from exec_server.streams.socket_bridge import SocketBridge
from exec_server.streams.turns import StreamTurns
from tests.support.wire import PATIENCE


async def accepted(wire, address):
    with socket.create_connection(address):
        found = await wire.find(lambda message: message.get("method") == "stream/accepted")
    return found["params"]


async def test_a_listener_does_not_replace_a_stream_of_the_same_name(wire, server):
    bound = await wire.call("stream/listen", {"listenerId": "l", "port": 0})
    windows = server.core._streams._windows
    left = windows.left
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = {"host": "127.0.0.1", "port": listener.getsockname()[1]}
        await wire.call("stream/open", {"streamId": "l#1", **place})
        event = await accepted(wire, (bound["address"], bound["port"]))
        assert (event["streamId"], event["number"]) == ("l#2", 2)
        found = (await wire.call("stream/list", {}))["streams"]
        assert "l#1" in {each["id"] for each in found}
        await wire.call("stream/close", {"ids": ["l#1", "l#2"]})
        # All that the windows took is there for others again.
        assert windows.left == left


async def test_the_reason_of_a_peer_is_kept_in_short(wire):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        await wire.call("stream/open", {"streamId": "s", "host": "127.0.0.1", "port": port})
        params = {"streamId": "s", "reason": "x" * 100_000}
        await wire.send({"method": "stream/reset", "params": params})
        told = await wire.call("stream/resume", {"streams": {"s": {"received": 0}}})
        assert told["streams"]["s"]["reset"] == "x" * 256


class Silent:
    """A wire that leads nowhere."""

    def __init__(self) -> None:
        self.turns = StreamTurns()
        self.is_over = asyncio.Event()

    def send_parts(self, *parts):
        pass

    def send_event(self, event, params):
        pass

    def stream_over(self, stream):
        self.is_over.set()


async def test_many_small_pieces_are_kept_together():
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.setblocking(False)
        wire = Silent()
        stream = ByteStream("s", wire, window=1 << 22)
        bridge = SocketBridge(ours, stream, wire.turns)
        filling = bytes(1 << 20)
        stream.data_arrived(0, filling)
        pieces = [bytes([number % 251]) for number in range(50_000)]
        pieces[100:100] = [b"large" * 10_000]
        for piece in pieces:
            stream.data_arrived(stream.received, piece)
        assert len(bridge._queue) < 10
        stream.end_arrived(stream.received, is_closed=True)
        got = bytearray()
        async with asyncio.timeout(PATIENCE):
            loop = asyncio.get_running_loop()
            while data := await loop.sock_recv(theirs, 1 << 20):
                got += data
        assert bytes(got) == filling + b"".join(pieces)


def test_what_comes_before_the_user_is_kept_together():
    stream = ByteStream("s", Silent(), window=1000)
    for position in range(100):
        stream.data_arrived(position, b"x")
    got = []

    class User:
        def data_received(self, data):
            got.append(data)

        def window_opened(self): ...

    user: Any = User()
    stream.use(user)
    assert got == [b"x" * 100]


async def test_a_server_neither_replaces_streams_nor_chooses_their_memory():
    session: Any = None
    ends = ClientStreams(session, limits=DEFAULT_LIMITS)
    got: list[ByteStream] = []
    place = StreamPlace("localhost", 1)
    listener = RemoteListener(ends, "l", place, lambda stream, peer: got.append(stream))
    ends._listeners["l"] = listener
    event = streams.AcceptedEvent("l", "l#1", 1, 1 << 60)
    ends.event_received(event)
    ends.event_received(event)
    (stream,) = got
    assert stream.window == DEFAULT_LIMITS.stream_window
    assert ends._streams == {"l#1": stream}

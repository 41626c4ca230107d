"""Peers that try to take what belongs to other streams, or to fill the memory."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from typing import Any

from exec_server.client.streams.client_streams import ClientStreams, RemoteListener
from exec_server.client.streams.stream_place import StreamPlace
from exec_server.limits import DEFAULT_LIMITS
from exec_server.protocol import streams
from exec_server.server.serving import serve
from exec_server.streams.byte_stream import ByteStream
from exec_server.streams.socket_bridge import SocketBridge
from exec_server.streams.turns import StreamTurns
from tests.support.wire import PATIENCE, Wire


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


def reset_at_once(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def test_a_connection_that_is_reset_before_it_is_accepted_does_no_harm(caplog):
    """A stranger can do that again and again, to a port that is open for other machines."""
    async with serve(stream_allow=["listen:0.0.0.0:*"]) as server, Wire(server.url) as wire:
        await wire.initialize()
        bound = await wire.call("stream/listen", {"listenerId": "l", "host": "0.0.0.0", "port": 0})
        for _ in range(20):
            reset_at_once(socket.create_connection(("127.0.0.1", bound["port"])))
        event = await accepted(wire, ("127.0.0.1", bound["port"]))
        assert event["number"] <= 21
    assert "Traceback" not in caplog.text and "Exception" not in caplog.text


async def test_a_port_that_resets_every_connection_is_told_as_such(wire, caplog):
    stop = threading.Event()

    def accept(listener: socket.socket) -> None:
        while not stop.is_set():
            reset_at_once(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        accepting = threading.Thread(target=accept, args=(listener,))
        accepting.start()
        try:
            for number in range(100):
                params = {"streamId": f"s{number}", "host": "127.0.0.1", "port": port}
                answer = await wire.answer(await wire.request("stream/open", params))
                if "error" in answer:
                    assert "Connection reset by peer" in answer["error"]["message"]
                else:
                    assert (answer["result"]["address"], answer["result"]["port"]) == (
                        "127.0.0.1",
                        port,
                    )
        finally:
            stop.set()
            socket.create_connection(("127.0.0.1", port)).close()
            accepting.join()
    assert "Traceback" not in caplog.text


class Silent:
    """A wire that leads nowhere."""

    def __init__(self) -> None:
        self.turns = StreamTurns()
        self.is_over = asyncio.Event()

    def send_bulk(self, before, data, after):
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

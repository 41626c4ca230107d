"""One rendezvous socket: its frames, its pauses, its end, and how it shares the event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from exec_server.hub.relay import relay_socket
from exec_server.hub.relay.corks import Corks
from exec_server.hub.relay.relay_socket import BUFFER_BYTES, READ_BYTES, RelaySocket
from exec_server.hub.relay.routing import Frame
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.transport import picows_internals
from exec_server.transport.data_frames import FrameSorter
from exec_server.transport.frame_headers import frame_header
from exec_server.transport.frame_masks import quick_mask
from exec_server.transport.http_front import accepted_request
from exec_server.transport.picows_internals import adopt
from tests.requirements import requirement
from tests.support.leaks import eventually

MESSAGES = 10_000
TINY = b"\x08\x01\x12\x01s"
BINARY, TEXT, MORE, CLOSE, PING, PONG = 0x82, 0x81, 0x80, 0x88, 0x89, 0x8A
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
SECONDS = 60


def limited(**changes: Any) -> Limits:
    return msgspec.structs.replace(DEFAULT_LIMITS, **changes)


def masked(first: int, payload: bytes) -> bytes:
    """A frame as a client sends it. The mask is zero, so the payload can be read."""
    header = frame_header(first, len(payload))
    return header[:1] + bytes([header[1] | 0x80]) + header[2:] + bytes(4) + payload


class Peer:
    """The other end, byte by byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.loop = asyncio.get_running_loop()
        self._got = b""

    async def send(self, *frames: bytes) -> None:
        await self.loop.sock_sendall(self.sock, b"".join(frames))

    async def frame(self) -> tuple[int, bytes]:
        """The first byte and the payload of the next frame; (0, b"") at the end."""
        async with asyncio.timeout(SECONDS):
            head = await self._exactly(2)
            if len(head) < 2:
                return 0, b""
            size = head[1]
            if size == 126:
                (size,) = struct.unpack(">H", await self._exactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", await self._exactly(8))
            return head[0], await self._exactly(size)

    async def message(self) -> bytes:
        """The next message; pings before it are skipped."""
        while (found := await self.frame())[0] == PING:
            pass
        assert found[0] == BINARY, found
        return found[1]

    async def rest(self) -> list[tuple[int, bytes]]:
        found = []
        while (frame := await self.frame())[0]:
            found.append(frame)
        return found

    def now(self) -> bytes:
        """What has arrived, without a turn of the event loop."""
        try:
            return self.sock.recv(1 << 20)
        except BlockingIOError:
            return b""

    async def _exactly(self, count: int) -> bytes:
        while len(self._got) < count:
            try:
                data = await self.loop.sock_recv(self.sock, 1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                break
            self._got += data
        found, self._got = self._got[:count], self._got[count:]
        return found


class Line:
    """A socket of a node and its peer. What it receives is in `got`."""

    def __init__(self, ours: RelaySocket, peer: Peer) -> None:
        self.socket, self.peer = ours, peer
        self.got: list[bytes] = []
        self.receive: Callable[[Any], object] = lambda data: self.got.append(bytes(data))
        self.taken: list[int] = []
        self.resumed = 0
        self.lost: list[object] = []
        ours.on_taken(lambda origin, size: self.taken.append(size))
        self.carrying: asyncio.Future[None] | None = None

    def carry(self) -> asyncio.Future[None]:
        self.carrying = asyncio.ensure_future(self.socket.carry(self._receive))
        return self.carrying

    def _receive(self, data: Frame) -> None:
        self.receive(data)

    async def over(self) -> None:
        assert self.carrying is not None
        await asyncio.wait_for(self.carrying, SECONDS)


def sorter() -> FrameSorter:
    mask = quick_mask()
    assert mask is not None
    return FrameSorter(mask, bytearray(READ_BYTES), frame_bytes=DEFAULT_LIMITS.relay_frame_bytes)


_SORTERS: list[Callable[[], FrameSorter | None]] = [sorter]


@pytest.fixture(params=["sorted", "by picows"], autouse=True)
def sorting(request):
    """Data frames are taken out of what is read, or picows reads them where aiohttp has no mask."""
    _SORTERS[0] = sorter if request.param == "sorted" else lambda: None
    yield request.param
    _SORTERS[0] = sorter


@asynccontextmanager
async def line(
    *,
    limits: Limits = DEFAULT_LIMITS,
    corks: Corks | None = None,
    is_carried: bool = True,
    early: bytes = b"",
    **options: Any,
) -> AsyncIterator[Line]:
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[asyncio.Transport] = loop.create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            accepted.set_result(transport)

    server = await loop.create_server(Accepting, "127.0.0.1", 0)
    sock = socket.create_connection(server.sockets[0].getsockname())
    sock.setblocking(False)
    ours = RelaySocket(
        limits=limits,
        corks=corks or Corks(),
        message_bytes=options.pop("message_bytes", DEFAULT_LIMITS.relay_frame_bytes),
        **options,
    )
    made = Line(ours, Peer(sock))
    try:
        adopt(
            await accepted,
            lambda: ours,
            limits=limited(frame_bytes=DEFAULT_LIMITS.relay_frame_bytes),
            handshake=accepted_request(KEY),
            tail=early,
            sorter=_SORTERS[0](),
            read_bytes=READ_BYTES,
            buffer_bytes=BUFFER_BYTES,
            on_lost=lambda exc: made.lost.append(exc),
        )
        while not (await made.peer._exactly(1) == b"\n" and await made.peer._exactly(2) == b"\r\n"):
            pass
        if is_carried:
            made.carry()
            await asyncio.sleep(0)
        yield made
    finally:
        sock.close()
        ours.abort()
        server.close()
        if made.carrying is not None:
            await asyncio.wait([made.carrying])


class Turns:
    """Counts how often other tasks run."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Turns:
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


# Fair turns.


@requirement("security/registry:tiny-frames")
async def test_others_run_while_tiny_messages_are_received():
    async with line(is_carried=False) as made:
        await made.peer.send(*[masked(BINARY, TINY)] * MESSAGES)
        most, before = 0, 0
        async with Turns() as turns:

            def receive(data: Any) -> None:
                nonlocal most, before
                made.got.append(bytes(data))
                # The number of messages in this turn of the others.
                if turns.count != before:
                    before, first = turns.count, len(made.got)
                    receive.first = first  # type: ignore[attr-defined]
                most = max(most, len(made.got) - receive.first)  # type: ignore[attr-defined]

            receive.first = 0  # type: ignore[attr-defined]
            made.receive = receive
            made.carry()
            await eventually(lambda: len(made.got) == MESSAGES)
        assert made.got == [TINY] * MESSAGES
        assert most <= 2 * relay_socket._MESSAGES_A_TURN + 2


@requirement("security/registry:tiny-frames")
async def test_only_the_last_of_many_pings_is_answered():
    async with line() as made:
        pings = [masked(PING, b"%d" % number) for number in range(MESSAGES)]
        await made.peer.send(*pings)
        answers: list[bytes] = []
        while not answers or answers[-1] != b"%d" % (MESSAGES - 1):
            kind, payload = await made.peer.frame()
            assert kind == PONG
            answers.append(payload)
        assert len(answers) < MESSAGES / 100


@requirement("security/registry:tiny-frames")
async def test_others_run_while_tiny_messages_are_sent():
    async with line(is_carried=False) as made:
        for _ in range(MESSAGES):
            made.socket.send(TINY, None)
        assert made.taken == []
        async with Turns() as turns:
            made.carry()
            for _ in range(MESSAGES):
                assert await made.peer.message() == TINY
        assert turns.count > MESSAGES / 100
        assert made.taken == [len(TINY)] * MESSAGES


@requirement("security/registry:tiny-frames")
async def test_a_queue_may_be_discarded_while_it_is_sent():
    async with line(is_carried=False) as made:
        for _ in range(MESSAGES):
            made.socket.send(TINY, None)

        def taken(origin: Any, size: int) -> None:
            made.taken.append(size)
            made.socket.discard()

        made.socket.on_taken(taken)
        made.carry()
        await eventually(lambda: made.taken)
        assert len(made.taken) == MESSAGES
        made.socket.send(b"after it", None)
        while (came := await made.peer.message()) == TINY:
            pass
        assert came == b"after it"


# Reading.


async def test_what_comes_before_it_is_carried_is_delivered_later_and_in_order():
    early = masked(BINARY, b"1") + masked(BINARY, b"2")
    async with line(is_carried=False, early=early) as made:
        await made.peer.send(masked(BINARY, b"3"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert made.got == []
        made.carry()
        await eventually(lambda: len(made.got) == 3)
        assert made.got == [b"1", b"2", b"3"]


@requirement("hub/socket:slow-executor")
async def test_nothing_is_delivered_while_reading_is_paused():
    async with line() as made:

        def receive(data: Any) -> None:
            made.got.append(bytes(data))
            made.socket.pause()

        made.receive = receive
        await made.peer.send(*[masked(BINARY, b"%d" % number) for number in range(300)])
        for number in range(300):
            await eventually(lambda: len(made.got) > made.resumed)
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(made.got) == number + 1
            made.resumed += 1
            made.socket.resume()
        assert made.got == [b"%d" % number for number in range(300)]


@requirement("hub/socket:slow-executor")
async def test_a_paused_socket_reads_no_more_than_one_read():
    async with line() as made:
        made.socket.pause()
        frame = masked(BINARY, bytes(100_000))
        sending = asyncio.ensure_future(made.peer.send(*[frame] * 100))
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert sum(map(len, made.socket._inbox)) <= READ_BYTES
        assert not sending.done()
        made.socket.resume()
        await eventually(lambda: len(made.got) == 100)
        await sending


async def test_fragments_are_joined_and_control_frames_may_come_between_them():
    async with line() as made:
        await made.peer.send(
            masked(0x02, b"one "), masked(PING, b"?"), masked(0, b"mess"), masked(MORE, b"age")
        )
        await eventually(lambda: made.got)
        assert made.got == [b"one message"]
        assert await made.peer.frame() == (PONG, b"?")


@requirement("hub/socket:violations")
@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([masked(TEXT, b"text")], 1003),
        ([masked(0xC2, b"compressed")], 1002),
        ([masked(MORE, b"a fragment of nothing")], 1002),
        ([masked(0x02, b"a"), masked(BINARY, b"another one")], 1002),
        ([masked(0x83, b"no such kind")], 1002),
        ([frame_header(BINARY, 3) + b"abc"], 1002),
        ([masked(BINARY, bytes(300_000))], 1009),
        ([masked(0x02, bytes(200_000)), masked(MORE, bytes(200_000))], 1009),
    ],
    ids=["text", "reserved", "order", "begun", "kind", "unmasked", "large", "large-parts"],
)
async def test_a_violation_is_told_and_ends_the_socket(frames, code):
    async with line(limits=limited(close_timeout=0.1)) as made:
        await made.peer.send(*frames, masked(BINARY, b"behind it"))
        kind, payload = await made.peer.frame()
        assert (kind, payload[:2]) == (CLOSE, struct.pack(">H", code))
        assert await made.peer.rest() == []
        await made.over()
        assert made.got == []


@requirement("hub/socket:violations")
@pytest.mark.parametrize(
    "violation",
    [frame_header(BINARY, 3) + b"abc", masked(0x83, b"kind"), masked(BINARY, bytes(300_000))],
    ids=["unmasked", "kind", "large"],
)
async def test_what_comes_in_one_read_before_a_violation_is_not_held(violation):
    """It is a view of a buffer that is gone in a moment."""
    corks = Corks()
    async with (
        line(corks=corks, limits=limited(close_timeout=0.1)) as source,
        line(corks=corks) as target,
    ):
        source.receive = lambda data: target.socket.send(data, None)
        frames = [os.urandom(20_000) for _ in range(3)]
        source.socket.pause()
        await source.peer.send(*[masked(BINARY, frame) for frame in frames], violation)
        source.socket.resume()
        await source.over()
        assert not corks.is_holding
        # picows has refused the socket when it shows the last one.
        for frame in frames[:2]:
            assert await target.peer.message() == frame


@requirement("hub/socket:violations")
async def test_a_text_of_an_executor_is_ignored():
    async with line(takes_text=True) as made:
        await made.peer.send(masked(TEXT, b"text"), masked(BINARY, b"frame"))
        await eventually(lambda: made.got)
        assert made.got == [b"frame"]


async def test_a_failure_of_the_receiver_ends_the_socket_and_is_told():
    async with line() as made:

        def receive(data: Any) -> None:
            raise OSError("broken")

        made.receive = receive
        await made.peer.send(masked(BINARY, b"1"), masked(BINARY, b"2"))
        with pytest.raises(OSError, match="broken"):
            await made.over()
        assert await made.peer.rest() == []


# Writing.


@requirement("hub/socket:whole-frames")
@pytest.mark.parametrize(
    ("size", "header"),
    [(1, "8201"), (200, "827e00c8"), (61_508, "827ef044"), (200_000, "827f0000000000030d40")],
)
async def test_a_message_is_written_at_once_and_in_one_piece(size, header, monkeypatch):
    written = []
    write = os.writev

    def writev(fd: int, parts: list[bytes]) -> int:
        written.append(b"".join(parts))
        return write(fd, parts)

    async with line(is_carried=False) as made:
        made.socket.send(b"before the socket is carried", None)
        assert made.peer.now() == b""
        made.carry()
        assert await made.peer.message() == b"before the socket is carried"
        monkeypatch.setattr(os, "writev", writev)
        assert made.socket.send(bytes(size), None) is True
        assert written == [bytes.fromhex(header) + bytes(size)]
        assert await made.peer.message() == bytes(size)


@requirement("hub/socket:whole-frames")
async def test_what_one_read_brings_for_a_socket_leaves_in_one_write(monkeypatch):
    counts = []
    write = os.writev
    corks = Corks()
    async with line(corks=corks) as source, line(corks=corks) as target:
        source.receive = lambda data: target.socket.send(data, None)
        frames = [os.urandom(50_000) for _ in range(4)]

        def writev(fd: int, parts: list[bytes]) -> int:
            counts.append(len(parts))
            return write(fd, parts)

        source.socket.pause()
        await source.peer.send(*[masked(BINARY, frame) for frame in frames])
        monkeypatch.setattr(os, "writev", writev)
        source.socket.resume()
        for frame in frames:
            assert await target.peer.message() == frame
        # The kernel may hand over the frames in more than one read.
        assert sum(counts) == 2 * len(frames) and len(counts) < len(frames)


@requirement("hub/socket:whole-frames")
async def test_frames_for_a_peer_that_reads_slowly_are_kept_and_keep_their_order():
    corks = Corks()
    async with line(corks=corks) as source, line(corks=corks) as target:
        left: list[bool] = []
        source.receive = lambda data: left.append(target.socket.send(data, None))
        frames = [os.urandom(size) for size in (60_000, 17_000, 100, 1) * 200]
        await source.peer.send(*[masked(BINARY, frame) for frame in frames])
        await eventually(lambda: len(left) == len(frames))
        waiting = left.count(False)
        assert waiting > 0 and len(target.taken) == 0
        # What is queued for the peer is no more than was not taken.
        assert len(target.socket._queue) == waiting
        for frame in frames:
            assert await target.peer.message() == frame
        assert len(target.taken) == waiting


@requirement("hub/socket:slow-harness")
async def test_a_peer_that_does_not_read_is_dropped():
    async with line(limits=limited(hub_write_timeout=0.05)) as made:
        while made.socket.send(bytes(100_000), None):
            pass
        await made.over()
        # The queue is dropped with the socket.
        assert made.taken == [100_000]


@requirement("hub/socket:whole-frames")
async def test_nothing_is_written_after_the_close_frame():
    async with line() as made:
        made.socket.send(b"first", None)
        made.socket.end(1013, "later")
        assert made.socket.send(b"late", None) is True
        assert await made.peer.message() == b"first"
        assert await made.peer.frame() == (CLOSE, struct.pack(">H", 1013) + b"later")
        await made.peer.send(masked(BINARY, b"it crossed"), masked(CLOSE, struct.pack(">H", 1000)))
        assert await made.peer.rest() == []
        await made.over()
        assert made.got == []


# Signs of life, and the end.


@requirement("hub/socket:keepalive")
async def test_a_peer_that_is_not_read_gets_signs_of_life():
    async with line(limits=limited(silence=0.02, ping_interval=3600.0)) as made:
        made.receive = lambda data: made.socket.pause()
        await made.peer.send(*[masked(BINARY, TINY)] * 10)
        for _ in range(3):
            assert (await made.peer.frame())[0] == PING
        assert len(made.socket._inbox) == 9


@requirement("hub/socket:keepalive")
async def test_a_silent_peer_is_dropped():
    async with line(limits=limited(ping_interval=0.02, pong_timeout=0.05)) as made:
        await made.over()


@requirement("hub/socket:draining")
async def test_queued_messages_leave_before_the_goodbye():
    async with line(is_carried=False) as made:
        made.socket.send(b"queued", None)
        made.socket.end(1001, "the registry stops")
        made.carry()
        assert await made.peer.message() == b"queued"
        kind, payload = await made.peer.frame()
        assert (kind, payload) == (CLOSE, struct.pack(">H", 1001) + b"the registry stops")


@requirement("hub/socket:draining")
@pytest.mark.parametrize("reads", [True, False])
async def test_a_peer_that_does_not_answer_a_goodbye_is_dropped(reads):
    async with line(limits=limited(close_timeout=0.05)) as made:
        while not reads and made.socket.send(bytes(100_000), None):
            pass
        made.socket.cut(1001, "the registry stops")
        await made.over()


async def test_a_close_frame_is_answered_after_what_came_before_it():
    async with line(is_carried=False) as made:
        many = [masked(BINARY, b"%d" % number) for number in range(200)]
        await made.peer.send(*many, masked(CLOSE, struct.pack(">H", 1000)))
        made.carry()
        await made.over()
        assert made.got == [b"%d" % number for number in range(200)]
        assert await made.peer.rest() == [(CLOSE, struct.pack(">H", 1000))]


async def test_what_came_before_the_end_of_file_is_delivered():
    async with line(is_carried=False) as made:
        await made.peer.send(*[masked(BINARY, TINY)] * 200)
        made.peer.sock.shutdown(socket.SHUT_WR)
        made.carry()
        await made.over()
        assert made.got == [TINY] * 200


@requirement("hub/socket:keepalive")
async def test_a_peer_that_closes_its_side_and_does_not_read_is_dropped():
    async with line(limits=limited(close_timeout=0.05)) as made:
        while made.socket.send(bytes(100_000), None):
            pass
        made.peer.sock.shutdown(socket.SHUT_WR)
        await made.over()
        await eventually(lambda: made.socket._stream.is_closing())


async def test_a_cancelled_socket_is_aborted():
    async with line() as made:
        assert made.carrying is not None
        made.carrying.cancel()
        await asyncio.wait([made.carrying])
        assert await made.peer.rest() == []


# The buffer.


def room(made: Line) -> int:
    protocol = made.socket._stream.get_protocol()
    return len(picows_internals._whole_buffer(protocol, -1))


@requirement("hub/socket:small-again")
async def test_bulk_leaves_no_large_buffer(sorting):
    if sorting == "by picows":
        pytest.skip("picows never makes its buffer smaller")
    async with line() as made:
        small = room(made)
        bulk = [os.urandom(60_000) for _ in range(10)]
        await made.peer.send(*[masked(BINARY, frame) for frame in bulk])
        await eventually(lambda: len(made.got) == 10)
        # Everything goes on.
        await made.peer.send(masked(PING, b"?"), *[masked(BINARY, frame) for frame in bulk])
        await eventually(lambda: len(made.got) == 20)
        assert made.got == bulk * 2
        assert await made.peer.frame() == (PONG, b"?")
        assert room(made) == small
        assert made.socket._stream.get_protocol().sorter._frame is None

"""One harness's bad input ends at most its own stream; the others go on and stay exact."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from exec_server.errors import RelayError
from exec_server.limits import Limits
from exec_server.relay.effects import Message, Send
from exec_server.relay.frame import (
    Ack,
    Body,
    Data,
    Handshake,
    Heartbeat,
    Reset,
    Resume,
    StreamId,
    decode,
)
from exec_server.relay.harness_end import HarnessEnd
from exec_server.remote.credentials.credentials import HarnessToken
from exec_server.remote.executor.executor_socket import ExecutorSocket
from exec_server.remote.harness.dialler import NoiseDialler
from exec_server.transport.frames import FrameSocket
from tests.relay.ends import HARNESS, STRANGER, frame, knock, known_bytes, new_harness, new_mux
from tests.remote.conftest import LIMITS, connect
from tests.requirements import requirement
from tests.support.rendezvous import TOKEN

INNOCENT = StreamId("innocent")


class Wire:
    """Stands for the socket: keeps the frames that the executor sends, by stream."""

    unsent_bytes = 0
    close_words = ""

    def __init__(self) -> None:
        self.sent: dict[StreamId, list[bytes]] = {}

    def send(self, data: bytes | bytearray, start: int = 0) -> None:
        frame = bytes(data[start:])
        self.sent.setdefault(decode(frame).stream_id, []).append(frame)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def take(self, stream_id: StreamId) -> list[bytes]:
        return self.sent.pop(stream_id, [])


class Fragile:
    """Returns each message to its sender, and raises for messages that say so."""

    def __init__(self, connection, born: list[Fragile]) -> None:
        self._connection = connection
        self.is_lost = False
        self.fails_when_writing = False
        born.append(self)

    def message_received(self, data: bytes) -> None:
        if data.startswith(b"raise"):
            raise RecursionError("scripted")
        if data.startswith(b"close"):
            self._connection.close("scripted")
        elif data.startswith(b"pause"):
            self._connection.pause_reading()
        elif data.startswith(b"empty"):
            self._connection.send(b"")
        else:
            self.fails_when_writing = data.startswith(b"fail later")
            self._connection.send(data)

    def writing_paused(self) -> None:
        if self.fails_when_writing:
            raise ValueError("scripted")

    def writing_resumed(self) -> None:
        self.writing_paused()

    def connection_lost(self) -> None:
        self.is_lost = True


class Stage:
    """An ExecutorSocket without a network, whose streams are Fragile."""

    def __init__(self, serve: Callable | None = None, **limits: Any) -> None:
        self.wire = Wire()
        self.born: list[Fragile] = []
        self.socket = ExecutorSocket(
            new_mux(Limits(**limits)),
            serve=serve or (lambda each: each.attach(Fragile(each, self.born))),
            judge=self._judge,
            limits=LIMITS,
        )
        self.socket.socket_opened(cast(FrameSocket, self.wire))
        self.verdict: Callable[[], Awaitable[bool]] | None = None

    async def _judge(self, _question) -> bool:
        return True if self.verdict is None else await self.verdict()

    async def turn(self) -> None:
        await self.socket.settle()
        await asyncio.sleep(0)

    async def open(self, stream_id: str, *, key=HARNESS) -> HarnessEnd:
        harness = new_harness(stream_id, key=key)
        for effect in harness.start("let me in"):
            assert isinstance(effect, Send)
            self.socket.frame_received(effect.data)
        await self.turn()
        self.read(harness)
        return harness

    def say(self, harness: HarnessEnd, message: bytes) -> None:
        for effect in harness.send(message):
            assert isinstance(effect, Send)
            self.socket.frame_received(effect.data)

    def read(self, harness: HarnessEnd) -> list[bytes]:
        """The messages that came for *harness*. Raises RelayError for a reset."""
        found = [
            each for data in self.wire.take(harness.stream_id) for each in harness.receive(data)
        ]
        return [each.data for each in found if isinstance(each, Message)]

    def end(self) -> None:
        self.socket.socket_lost("over")


@pytest.fixture
async def stage(caplog):
    caplog.set_level(logging.CRITICAL)
    # No harness is paused, so that the attacker always gets in again.
    made = Stage(relay_failure_pause=0, relay_all_failures=10_000)
    yield made
    made.end()
    await made.turn()
    assert all(each.is_lost for each in made.born)
    assert await made.socket.wait_lost() == "over"


@requirement("remote/executor:isolation")
async def test_an_error_in_the_code_of_a_stream_ends_that_stream_alone(stage):
    good, bad = await stage.open(INNOCENT), await stage.open("bad")
    stage.say(bad, b"raise")
    stage.say(good, b"hello")
    await stage.turn()
    (reset,) = stage.wire.take(StreamId("bad"))
    assert isinstance(decode(reset).body, Reset)
    assert stage.read(good) == [b"hello"]
    assert [each.is_lost for each in stage.born] == [False, True]


@requirement("remote/executor:isolation")
async def test_an_error_while_writing_pauses_ends_that_stream_alone(stage):
    bad, good = await stage.open("bad"), await stage.open(INNOCENT)
    stage.say(bad, b"fail later")
    stage.socket.writing_paused()
    stage.socket.writing_resumed()
    await stage.turn()
    assert [each.is_lost for each in stage.born] == [True, False]
    stage.say(good, b"hello")
    assert stage.read(good) == [b"hello"]


@requirement("remote/executor:isolation")
async def test_a_stream_that_cannot_be_served_ends_alone(caplog):
    caplog.set_level(logging.CRITICAL)
    served: list[Fragile] = []

    def serve(connection) -> None:
        if served:
            raise MemoryError
        connection.attach(Fragile(connection, served))

    stage = Stage(serve)
    good = await stage.open(INNOCENT)
    for data in knock(new_harness("bad")):
        stage.socket.frame_received(data)
    await stage.turn()
    assert isinstance(decode(stage.wire.take(StreamId("bad"))[-1]).body, Reset)
    stage.say(good, b"hello")
    assert stage.read(good) == [b"hello"]
    stage.end()
    await stage.turn()


@requirement("remote/executor:isolation")
async def test_an_error_in_the_relay_itself_ends_the_stream_of_its_frame(stage, monkeypatch):
    good, bad = await stage.open(INNOCENT), await stage.open("bad")

    class Broken:
        def receive(self, _data):
            raise ZeroDivisionError

    monkeypatch.setitem(stage.socket._mux._open, "bad", Broken())
    stage.say(bad, b"hello")
    stage.say(good, b"hello")
    await stage.turn()
    assert [each.is_lost for each in stage.born] == [False, True]
    assert stage.read(good) == [b"hello"]


# Anything at all.


class Attacker:
    """A harness that sends anything on streams of its own."""

    STREAMS = ("a", "b", "c", " d ", "e" * 300, "x\u2028", "innocent ")

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self._stage = stage
        self._rng = rng
        self._open: dict[str, HarnessEnd] = {}
        self._bytes = known_bytes(f"attacker {rng.random()}")

    async def act(self) -> None:
        act = self._rng.choice(
            [
                self._noise,
                self._frame,
                self._frame,
                self._knock,
                self._speak,
                self._speak,
                self._record,
            ]
        )
        await act()

    async def _noise(self) -> None:
        self._stage.socket.frame_received(self._bytes(self._rng.randrange(1, 400)))

    async def _frame(self) -> None:
        self._receive(frame(self._body(), self._rng.choice(self.STREAMS)))

    def _body(self) -> Body:
        rng, size = self._rng, self._rng.choice([1, 17, 40, 3568, 3600, 61_456])
        kinds: list[Callable[[], Body]] = [
            lambda: Data(rng.choice([0, 1, 5, 70, 2**32 - 1]), self._bytes(size)),
            lambda: Handshake(self._bytes(size)),
            lambda: Reset("go away"),
            lambda: Resume(rng.randrange(3)),
            Ack,
            Heartbeat,
        ]
        return rng.choice(kinds)()

    def _receive(self, data: bytes) -> None:
        if self._rng.random() < 0.2:
            at = self._rng.randrange(len(data))
            data = data[:at] + self._bytes(1) + data[at + 1 :]
            try:
                if decode(data).stream_id == INNOCENT:
                    return
            except RelayError:
                pass
        self._stage.socket.frame_received(data)

    async def _knock(self) -> None:
        stream_id = self._rng.choice(self.STREAMS)
        harness = new_harness(stream_id, key=STRANGER)
        for effect in harness.start("x" * self._rng.choice([0, 9, 5000])):
            assert isinstance(effect, Send)
            self._receive(effect.data)
        if self._rng.random() < 0.7:
            await self._stage.turn()
        self._open[stream_id] = harness
        self._listen(harness)

    def _listen(self, harness: HarnessEnd) -> None:
        try:
            self._stage.read(harness)
        except RelayError:
            self._open.pop(harness.stream_id, None)

    async def _speak(self) -> None:
        if not self._open:
            return
        harness = self._rng.choice(list(self._open.values()))
        words = [b"hi", b"raise", b"close", b"pause", b"empty", b"fail later", b"x" * 200_000]
        for effect in harness.send(self._rng.choice(words)):
            assert isinstance(effect, Send)
            for _ in range(self._rng.choice([1, 1, 1, 0, 2])):
                self._receive(effect.data)
        self._listen(harness)

    async def _record(self) -> None:
        """Encrypt something that is not a message."""
        for harness in self._open.values():
            if stream := harness._stream:
                lengths = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\5hi", b"\0"]
                self._receive(stream._frame(self._rng.choice(lengths), None).data)
                return


@requirement("remote/executor:isolation")
@pytest.mark.parametrize("seed", range(12))
async def test_whatever_one_harness_sends_another_lives_and_stays_exact(stage, seed):
    rng = random.Random(seed)
    good, attacker = await stage.open(INNOCENT), Attacker(stage, rng)
    for number in range(150):
        await attacker.act()
        if rng.random() < 0.1:
            stage.socket.writing_paused()
            stage.socket.writing_resumed()
        message = b"%d " % number + bytes(rng.choice([1, 100, 100_000]))
        stage.say(good, message)
        assert stage.read(good) == [message]
    await stage.turn()
    assert not stage.born[0].is_lost


# The whole executor.


NESTED = b'{"id":1,"method":"initialize","params":' + b"[" * 600 + b"]" * 600 + b"}"


@requirement("remote/executor:isolation", "security:one-harness")
@pytest.mark.parametrize(
    "message",
    [
        NESTED,
        NESTED.replace(b"[", b'{"a":').replace(b"]", b"}"),
        b"[" * 100_000,
        b'{"id":' + b"9" * 100_000 + b',"method":"environment/status"}',
        b'{"id":1,"method":"\\ud800"}',
        json.dumps({"id": 1, "method": "x", "trace": {"traceparent": "\ud800"}}).encode(),
        b"\xff\xfe",
    ],
)
async def test_no_message_of_a_harness_harms_another_one(online, message):
    async with connect(online) as innocent:
        process = await innocent.start(["cat"], stdin=True)
        link = innocent._session.connection
        for number in range(3):
            harness = await NoiseDialler(online.url, "env-1", HarnessToken(TOKEN), limits=LIMITS)()
            harness.send(message)
            await process.write(b"%d\n" % number)
            harness.abort()
        await process.close_stdin()
        data = b"".join([chunk.data async for chunk in process])
        assert data == b"0\n1\n2\n"
        assert innocent._session.connection is link

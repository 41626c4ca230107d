"""A connection in memory keeps the contract of every connection."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.limits import Limits
from exec_server.transport.connection import Connection
from exec_server.transport.memory_connection import MemoryConnection, memory_pair
from tests.requirements import requirement
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")

MIB = 1 << 20


class Ear:
    """Keeps the calls to its end of a pair, in order."""

    def __init__(self, connection: Connection) -> None:
        self.heard: list[bytes] = []
        self.said: list[str] = []
        self.lost = asyncio.Event()
        self._news = asyncio.Event()
        connection.attach(self)

    def message_received(self, data: bytes) -> None:
        assert not self.lost.is_set()
        self.heard.append(data)
        self._news.set()

    def writing_paused(self) -> None:
        self.said.append("paused")

    def writing_resumed(self) -> None:
        self.said.append("resumed")
        self._news.set()

    def connection_lost(self) -> None:
        assert not self.lost.is_set()
        self.lost.set()

    async def hears(self, count: int) -> list[bytes]:
        async with asyncio.timeout(PATIENCE):
            while len(self.heard) < count:
                self._news.clear()
                await self._news.wait()
        return self.heard

    async def is_lost(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.lost.wait()


def pair(**limits: float) -> tuple[MemoryConnection, MemoryConnection]:
    return memory_pair(limits=Limits(**limits))  # type: ignore[arg-type]


@requirement("client/memory:contract")
async def test_messages_arrive_whole_in_order_and_not_before_the_sender_is_done():
    a, b = pair()
    ear = Ear(b)
    a.send(b"one", b"two")
    a.send(b"three")
    assert ear.heard == []
    assert await ear.hears(2) == [b"onetwo", b"three"]


@requirement("client/memory:contract")
async def test_what_is_sent_before_somebody_listens_waits():
    a, b = pair()
    a.send(b"early")
    assert a.unsent_bytes == 5
    assert await Ear(b).hears(1) == [b"early"]
    assert a.unsent_bytes == 0


@requirement("client/memory:back-pressure")
async def test_a_reader_that_pauses_pauses_the_writer_until_it_has_caught_up():
    a, b = pair()
    writer, reader = Ear(a), Ear(b)
    b.pause_reading()
    a.send(bytes(MIB))
    assert writer.said == ["paused"] and a.unsent_bytes == MIB
    a.send(b"more")
    assert writer.said == ["paused"] and reader.heard == []
    b.resume_reading()
    await reader.hears(2)
    assert writer.said == ["paused", "resumed"] and a.unsent_bytes == 0


@requirement("client/memory:back-pressure")
async def test_a_receiver_that_pauses_is_given_nothing_more():
    a, b = pair()
    ear = Ear(b)
    received = ear.message_received

    def receive_one(data: bytes) -> None:
        received(data)
        b.pause_reading()

    ear.message_received = receive_one  # type: ignore[method-assign]
    for word in (b"1", b"2"):
        a.send(word)
    assert await ear.hears(1) == [b"1"]
    assert a.unsent_bytes == 1
    b.resume_reading()
    assert await ear.hears(2) == [b"1", b"2"]


@requirement("client/memory:end")
async def test_closing_delivers_what_was_sent_and_then_ends_both():
    a, b = pair()
    ours, theirs = Ear(a), Ear(b)
    a.send(b"last words")
    a.close()
    a.close()
    a.send(b"too late")
    await ours.is_lost()
    await theirs.is_lost()
    assert theirs.heard == [b"last words"]


@requirement("client/memory:end")
async def test_a_closed_end_hears_nothing_more():
    a, b = pair()
    ours = Ear(a)
    theirs = Ear(b)
    b.send(b"unheard")
    a.close()
    await theirs.is_lost()
    assert ours.heard == []


@requirement("client/memory:end")
async def test_both_may_close_at_once():
    a, b = pair()
    ours, theirs = Ear(a), Ear(b)
    a.close()
    b.close()
    await ours.is_lost()
    await theirs.is_lost()


@requirement("client/memory:end")
async def test_a_peer_that_does_not_read_loses_the_rest_in_a_moment():
    a, b = pair(close_timeout=0.01)
    ours, theirs = Ear(a), Ear(b)
    b.pause_reading()
    a.send(b"unread")
    a.close()
    await ours.is_lost()
    await theirs.is_lost()
    assert theirs.heard == []


@requirement("client/memory:end")
async def test_an_abort_drops_what_is_queued():
    a, b = pair()
    ours, theirs = Ear(a), Ear(b)
    a.send(b"dropped")
    a.abort()
    await ours.is_lost()
    await theirs.is_lost()
    assert theirs.heard == []
    a.abort()


@requirement("client/memory:end")
async def test_whoever_attaches_too_late_is_told_so():
    a, b = pair()
    a.abort()
    await Ear(b).is_lost()


@requirement("client/memory:contract")
async def test_a_message_beyond_the_limit_ends_the_connection():
    a, b = pair(message_bytes=3)
    ours, theirs = Ear(a), Ear(b)
    a.send(b"123")
    a.send(b"1234")
    await theirs.is_lost()
    await ours.is_lost()
    assert theirs.heard == [b"123"]


@requirement("client/memory:back-pressure")
@given(sizes=st.lists(st.integers(0, 300_000), max_size=12), pauses=st.sets(st.integers(0, 11)))
def test_whatever_is_paused_everything_arrives_once_and_in_order(sizes, pauses):
    async def main() -> None:
        a, b = pair()
        writer, reader = Ear(a), Ear(b)
        for number, size in enumerate(sizes):
            (b.pause_reading if number in pauses else b.resume_reading)()
            a.send(bytes([number]) * size)
        b.resume_reading()
        heard = await reader.hears(len(sizes))
        assert heard == [bytes([n]) * size for n, size in enumerate(sizes)]
        assert writer.said == ["paused", "resumed"] * (len(writer.said) // 2)

    asyncio.run(main())

"""The bytes of a descriptor: all of them, in order, and only while the client can take them."""

from __future__ import annotations

import asyncio
import os
import tty
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.process.pump import OutputGate, Pump
from tests.requirements import requirement
from tests.support import leaks

BULK = 64 * 1024


class Sink:
    """A pump and what it has delivered."""

    def __init__(self, fd: int, gate: OutputGate, *, is_terminal: bool = False) -> None:
        self.chunks: list[bytes] = []
        self.ends = 0
        self.pump = Pump(
            fd,
            loop=asyncio.get_running_loop(),
            gate=gate,
            chunk_bytes=8192,
            is_terminal=is_terminal,
            on_data=self.chunks.append,
            on_end=self._ended,
        )

    def _ended(self) -> None:
        self.ends += 1

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    async def has(self, size: int) -> None:
        await leaks.eventually(lambda: len(self.data) >= size, f"{len(self.data)} of {size} bytes")

    async def ended(self) -> None:
        await leaks.eventually(lambda: self.ends, "the pump did not end")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A reader for the pump, which closes it, and a writer."""
    reader, writer = os.pipe()
    yield reader, writer
    try:
        os.close(writer)
    except OSError:
        return


async def turns(count: int = 20) -> None:
    """Let the loop run, so that a pump that should not read would have read by now."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_nothing_is_read_before_it_is_told_to(no_leaks, pipe):
    reader, writer = pipe
    sink = Sink(reader, OutputGate())
    os.write(writer, b"hello")
    await turns()
    assert sink.chunks == []
    sink.pump.resume()
    sink.pump.resume()
    await sink.has(5)
    os.close(writer)
    await sink.ended()
    assert (sink.data, sink.ends, sink.pump.is_ended) == (b"hello", 1, True)


async def test_a_chunk_is_what_one_read_returns(no_leaks, pipe):
    reader, writer = pipe
    sink = Sink(reader, OutputGate())
    os.write(writer, b"x" * 20_000)
    sink.pump.resume()
    await sink.has(20_000)
    assert [len(chunk) for chunk in sink.chunks] == [8192, 8192, 3616]
    sink.pump.close()


async def test_bulk_output_is_read_in_larger_chunks(no_leaks, pipe):
    reader, writer = pipe
    sink = Sink(reader, OutputGate())
    sink.pump.expect_bulk(BULK)
    os.write(writer, b"x" * BULK)
    sink.pump.resume()
    await sink.has(BULK)
    assert [len(chunk) for chunk in sink.chunks] == [BULK]
    sink.pump.close()
    # A pump that has ended ignores it.
    sink.pump.expect_bulk(BULK)


@requirement("flow:nothing-read-behind-a-closed-gate")
async def test_behind_a_closed_gate_everything_stays_in_the_pipe(no_leaks, pipe):
    reader, writer = pipe
    gate = OutputGate()
    sink = Sink(reader, gate)
    sink.pump.resume()
    gate.close()
    os.set_blocking(writer, False)
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += os.write(writer, b"x" * 4096)
            await turns(2)
    sink.pump.drain(1 << 20)
    assert sink.chunks == []
    gate.open()
    await sink.has(sent)
    assert len(sink.data) == sent
    sink.pump.close()


async def test_a_pump_that_is_closed_while_it_waits_at_the_gate_stays_closed(no_leaks, pipe):
    reader, writer = pipe
    gate = OutputGate()
    sink = Sink(reader, gate)
    sink.pump.resume()
    gate.close()
    os.write(writer, b"hello")
    await turns()
    sink.pump.close()
    gate.open()
    await turns()
    assert (sink.chunks, sink.ends) == ([], 0)


async def test_draining_takes_what_is_there_now_up_to_a_bound(no_leaks, pipe):
    reader, writer = pipe
    sink = Sink(reader, OutputGate())
    os.write(writer, b"x" * 30_000)
    sink.pump.drain(10_000)
    assert [len(chunk) for chunk in sink.chunks] == [8192, 8192]
    sink.pump.drain(1 << 20)
    assert len(sink.data) == 30_000
    os.close(writer)
    sink.pump.drain(1 << 20)
    assert sink.ends == 1
    sink.pump.drain(1 << 20)
    assert sink.ends == 1


@pytest.mark.parametrize("is_bulk", [False, True])
async def test_a_terminal_ends_when_its_last_holder_has_closed_it(no_leaks, is_bulk):
    master, slave = os.openpty()
    tty.setraw(slave)
    sink = Sink(master, OutputGate(), is_terminal=True)
    if is_bulk:
        sink.pump.expect_bulk(BULK)
    sink.pump.resume()
    os.write(slave, b"hello")
    os.write(slave, b" world")
    os.close(slave)
    await sink.ended()
    assert (sink.data, sink.ends) == (b"hello world", 1)


async def test_a_gathered_terminal_yields_to_others_in_time(no_leaks):
    master, slave = os.openpty()
    tty.setraw(slave)
    os.set_blocking(slave, False)
    sink = Sink(master, OutputGate(), is_terminal=True)
    sink.pump.expect_bulk(BULK)
    sink.pump.resume()
    sent = 0
    for _ in range(200):
        try:
            sent += os.write(slave, b"x" * 4096)
        except BlockingIOError:
            await turns(1)
    await sink.has(sent)
    assert max(map(len, sink.chunks)) < 2 * 32 * 1024
    os.close(slave)
    await sink.ended()


@requirement("flow:nothing-lost")
@given(st.lists(st.one_of(st.binary(min_size=1, max_size=20_000), st.booleans()), max_size=12))
def test_whatever_the_gate_does_every_byte_arrives_once_and_in_order(steps):
    async def run() -> None:
        reader, writer = os.pipe()
        gate = OutputGate()
        sink = Sink(reader, gate)
        sink.pump.resume()
        expected = b""
        for step in steps:
            if step is True:
                gate.open()
            elif step is False:
                gate.close()
            elif len(expected) - len(sink.data) + len(step) < 65_536:
                os.write(writer, step)
                expected += step
            await turns(2)
        os.close(writer)
        gate.open()
        await sink.ended()
        assert sink.data == expected

    asyncio.run(run())

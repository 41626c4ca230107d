"""Output that is not read: it is bounded, the reader is told, and other tasks do not suffer."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from exec_server.client.flow.flow_control import FlowControl
from exec_server.client.process.output_buffer import OutputBuffer, OutputChunk
from exec_server.client_urls import connect
from exec_server.errors import ConnectionClosed, ProcessFailed
from exec_server.limits import KIB, MIB, Limits
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.turns import turn
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")

# More than the sockets between the two ends hold.
MUCH = 48 * MIB


class Gate:
    """A connection of which only the reading is of interest."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Consumer:
    """A consumer that can be behind."""


class Deaf:
    """A server without windows."""

    offers_flow = False

    def acknowledge(self, process_id: str, seq: int | None) -> bool:
        raise AssertionError("there is nothing to acknowledge")


def flow_and_gate(patience: float = 60.0, **limits: Any) -> tuple[FlowControl, Gate]:
    flow = FlowControl(Deaf(), limits=Limits(reader_patience=patience, **limits))
    gate = Gate()
    flow.use(gate)  # type: ignore[arg-type]
    return flow, gate


# The rules, one by one.


@requirement("client/flow:slow-reader")
async def test_nothing_is_read_while_somebody_is_behind():
    flow, gate = flow_and_gate()
    one, other = Consumer(), Consumer()
    flow.fall_behind(one)
    flow.fall_behind(other)
    assert not gate.is_read
    flow.catch_up(one)
    assert not gate.is_read
    flow.catch_up(other)
    assert gate.is_read


@requirement("client/flow:calls-go-on")
async def test_a_call_has_the_connection_read():
    flow, gate = flow_and_gate()
    consumer = Consumer()
    flow.fall_behind(consumer)
    with flow.calling():
        assert gate.is_read
        with flow.calling():
            pass
        assert gate.is_read
    assert not gate.is_read


@requirement("client/flow:others-go-on")
async def test_whoever_waits_waits_for_those_behind_but_not_for_ever():
    flow, gate = flow_and_gate(patience=0.01)
    consumer = Consumer()
    flow.fall_behind(consumer)
    with flow.watching():
        assert not gate.is_read
        await eventually(lambda: gate.is_read)
        # It takes something, and has its claim again.
        flow.fall_behind(consumer)
        assert not gate.is_read
        await eventually(lambda: gate.is_read)


@requirement("client/flow:others-go-on")
async def test_patience_lasts_while_something_is_taken():
    flow, gate = flow_and_gate()
    consumer = Consumer()
    with flow.watching():
        flow.fall_behind(consumer)
        # The timer goes off a moment after something was taken.
        assert flow._pacing._timer is not None
        flow._pacing._timer.cancel()
        flow._pacing._lose_patience()
        assert not gate.is_read
        # And again, after nothing was taken for as long as it runs.
        flow._pacing._timer.cancel()
        flow._pacing._progress -= 60
        flow._pacing._lose_patience()
        assert gate.is_read


@requirement("client/flow:others-go-on", "client/process:dropped-handle")
async def test_whoever_is_dropped_claims_nothing():
    flow, gate = flow_and_gate()
    consumer = Consumer()
    flow.fall_behind(consumer)
    del consumer
    gc.collect()
    with flow.watching():
        assert gate.is_read


async def test_a_new_connection_is_read_as_the_old_one_was():
    flow, _ = flow_and_gate()
    consumer = Consumer()
    flow.fall_behind(consumer)
    flow.use(None)
    gate = Gate()
    flow.use(gate)  # type: ignore[arg-type]
    assert not gate.is_read


# The buffer.


def chunk(seq: int, size: int, stream: str = "stdout") -> OutputChunk:
    return OutputChunk(seq, stream, bytes(size))  # type: ignore[arg-type]


@requirement("client/flow:slow-reader")
async def test_a_buffer_falls_behind_and_catches_up():
    flow, gate = flow_and_gate(untaken_bytes=100)
    buffer = OutputBuffer(flow.open("p"), limits=Limits(untaken_bytes=100))
    buffer.append(chunk(1, 60))
    buffer.append(chunk(2, 40))
    assert gate.is_read
    buffer.append(chunk(3, 1))
    assert not gate.is_read
    assert (await buffer.take("all")) == chunk(1, 60)
    assert gate.is_read
    buffer.append(chunk(4, 90))
    assert not gate.is_read
    buffer.end()
    # Nothing more will come: there is nothing to hold back.
    assert gate.is_read
    assert [(await buffer.take("all")) for _ in range(4)] == [
        chunk(2, 40),
        chunk(3, 1),
        chunk(4, 90),
        None,
    ]


@requirement("client/flow:others-go-on")
async def test_whoever_reads_one_stream_is_not_held_up_by_the_other():
    flow, gate = flow_and_gate(untaken_bytes=100)
    buffer = OutputBuffer(flow.open("p"), limits=Limits(untaken_bytes=100))
    taking = asyncio.ensure_future(buffer.take("stdout"))
    await eventually(lambda: buffer._waiters)
    buffer.append(chunk(1, 500, "stderr"))
    await turn()
    assert gate.is_read and not taking.done()
    buffer.append(chunk(2, 1))
    assert await taking == chunk(2, 1)
    assert not gate.is_read


@requirement("client/flow:bounded")
async def test_beyond_the_bound_output_is_discarded_and_told():
    flow, _ = flow_and_gate(untaken_bytes=10, untaken_max_bytes=100)
    buffer = OutputBuffer(flow.open("p"), limits=Limits(untaken_bytes=10, untaken_max_bytes=100))
    for seq in range(1, 5):
        buffer.append(chunk(seq, 40))
    assert [(await buffer.take("all")) for _ in range(2)] == [chunk(1, 40), chunk(2, 40)]
    # Room or not: there is a hole already.
    buffer.append(chunk(5, 1))
    for wanted in ("all", "stdout", "stderr"):
        with pytest.raises(ProcessFailed, match=r"81 bytes of output were discarded"):
            await buffer.take(wanted)


async def test_what_ended_the_output_is_told_after_it():
    flow, _ = flow_and_gate()
    buffer = OutputBuffer(flow.open("p"), limits=Limits())
    buffer.append(chunk(1, 1))
    buffer.end(ConnectionClosed("gone"))
    buffer.end()
    assert await buffer.take("stdout") == chunk(1, 1)
    for _ in range(2):
        with pytest.raises(ConnectionClosed, match="gone"):
            await buffer.take("stdout")


async def test_a_cancelled_taker_takes_nothing():
    flow, _ = flow_and_gate()
    buffer = OutputBuffer(flow.open("p"), limits=Limits())
    taking = asyncio.ensure_future(buffer.take("all"))
    await eventually(lambda: buffer._waiters)
    buffer.append(chunk(1, 1))
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert await buffer.take("all") == chunk(1, 1)


# The same with a server.


def flooding(size: int, done: str) -> list[str]:
    return ["sh", "-c", f"head -c {size} /dev/zero; touch {done}"]


@requirement("client/flow:slow-reader", "client/flow:calls-go-on")
async def test_a_process_waits_for_its_reader_and_nothing_is_lost(client, tmp_path):
    done = tmp_path / "done"
    process = await client.start(flooding(MUCH, str(done)))
    await eventually(lambda: process._tracked.flow.is_behind)
    async with asyncio.timeout(PATIENCE):
        assert await client.environment_status() == "ready"
    assert not done.exists() and process.returncode is None
    taken = 0
    async for piece in process:
        taken += len(piece.data)
    assert taken == MUCH and done.exists()


@requirement("client/flow:slow-reader")
async def test_a_slow_reader_beside_a_quiet_process_loses_nothing(server):
    # What is read at once is delivered at once, and may be more than a MiB.
    limits = Limits(untaken_bytes=128 * KIB, untaken_max_bytes=16 * MIB)
    async with connect(server.url, limits=limits) as client:
        quiet = await client.start(["sh", "-c", "read x; echo $x"], stdin=True)
        reading = asyncio.ensure_future(quiet.stdout.read())
        flood = await client.start(["head", "-c", str(MUCH), "/dev/zero"])
        taken = 0
        async with asyncio.timeout(3 * PATIENCE):
            async for piece in flood:
                taken += len(piece.data)
                await turn()
            assert taken == MUCH
            await quiet.write(b"heard\n")
            assert await reading == b"heard\n"


@requirement("client/flow:others-go-on", "client/flow:bounded")
async def test_an_unread_process_does_not_stop_the_others(server, tmp_path):
    limits = Limits(untaken_bytes=64 * KIB, untaken_max_bytes=1 * MIB, reader_patience=0.05)
    async with connect(server.url, limits=limits) as client:
        unread = await client.start(flooding(MUCH, str(tmp_path / "done")))
        await eventually(lambda: unread._tracked.flow.is_behind)
        async with asyncio.timeout(PATIENCE):
            assert (await client.run(["echo", "hi"])).stdout == b"hi\n"
            # Waiting for it without reading it ends, too.
            assert await unread.wait() == 0
        assert (tmp_path / "done").exists()
        taken = 0
        with pytest.raises(ProcessFailed, match="discarded"):
            async for piece in unread:
                taken += len(piece.data)
        assert MIB - 64 * KIB <= taken <= MIB


@requirement("client/flow:others-go-on")
async def test_a_stream_that_nobody_reads_does_not_stop_the_other(server):
    script = f"head -c {8 * MIB} /dev/zero >&2; echo done"
    async with connect(server.url, limits=Limits(untaken_bytes=64 * KIB)) as client:
        process = await client.start(["sh", "-c", script])
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.read() == b"done\n"
        assert len(await process.stderr.read()) == 8 * MIB


@requirement("client/flow:slow-reader")
async def test_back_pressure_reaches_through_every_transport(tmp_path):
    async with (
        serve(f"unix://{tmp_path}/s") as server,
        connect(server.url) as client,
    ):
        done = tmp_path / "done"
        process = await client.start(flooding(MUCH, str(done)))
        await eventually(lambda: process._tracked.flow.is_behind)
        assert await client.environment_status() == "ready"
        assert not done.exists()
        assert len(await process.stdout.read()) == MUCH

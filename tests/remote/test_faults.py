"""Faults of the rendezvous and the network, and their consequences."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import os
from collections.abc import Callable

import msgspec
import pytest

import exec_server
from exec_server.errors import ConnectError
from exec_server.limits import MIB
from exec_server.relay.frame import Data, Handshake, RelayFrame, StreamId, decode, encode
from exec_server.relay.mux import Mux
from exec_server.remote.credentials.credentials import HarnessToken
from exec_server.remote.executor.executor_socket import ExecutorSocket
from exec_server.remote.harness.dialler import NoiseDialler
from tests.remote.conftest import LIMITS, connect, executor
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.rendezvous import TOKEN


async def lines_of(process) -> list[bytes]:
    return b"".join([chunk.data async for chunk in process]).splitlines()


@requirement("remote/faults:nothing-lost")
async def test_a_hundred_cuts_lose_and_repeat_nothing(online):
    async with connect(online) as client:
        process = await client.start(["cat"], stdin=True)
        for number in range(100):
            await process.write(b"%d\n" % number)
            online.cut("harness")
        await process.close_stdin()
        assert await lines_of(process) == [b"%d" % number for number in range(100)]
        assert await process.wait() == 0
    assert len(online.operations("connect")) >= 50


@requirement("remote/faults:nothing-lost")
async def test_a_rendezvous_that_comes_back_finds_everything_as_it_was(online):
    async with connect(online) as client:
        process = await client.start(["cat"], stdin=True)
        for number in range(3):
            await process.write(b"%d\n" % number)
            await online.stop()
            await online.start()
        await process.close_stdin()
        assert await lines_of(process) == [b"0", b"1", b"2"]


@requirement("remote/faults:nothing-lost")
async def test_a_cut_of_the_executor_detaches_all_streams_and_nothing_else(online):
    async with connect(online) as one, connect(online) as two:
        processes = [await client.start(["cat"], stdin=True) for client in (one, two)]
        for _ in range(5):
            online.cut("environment")
            for process in processes:
                await process.write(b"x\n")
        for process in processes:
            await process.close_stdin()
            assert await lines_of(process) == [b"x"] * 5


@requirement("remote/faults:nothing-lost")
async def test_nothing_runs_twice(online, tmp_path):
    marks = tmp_path / "marks"
    async with connect(online) as client:
        for number in range(20):
            online.cut("harness")
            script = f"echo {number} >> {marks}; echo done"
            process = await client.start(["sh", "-c", script], ensure=True)
            assert await process.wait() == 0
    assert marks.read_text().split() == [str(number) for number in range(20)]


def flip(data: bytes) -> list[bytes]:
    return [data[:-5] + bytes((data[-5] ^ 1,)) + data[-4:]]


def truncate(data: bytes) -> list[bytes]:
    return [data[:-20]]


def replay(data: bytes) -> list[bytes]:
    return [data, data]


class Damage:
    """Changes every tenth of the first hundred data frames to the harness."""

    def __init__(self, how: Callable[[bytes], list[bytes]]) -> None:
        self._how = how
        self._count = 0
        self.done = 0

    def __call__(self, direction: str, data: bytes) -> list[bytes]:
        if direction == "up" or not isinstance(decode(data).body, Data):
            return [data]
        self._count += 1
        if self._count > 100 or self._count % 10:
            return [data]
        self.done += 1
        return self._how(data)


class Swap(Damage):
    """Swaps every tenth frame with the next one."""

    _held = b""

    def __call__(self, direction: str, data: bytes) -> list[bytes]:
        found = super().__call__(direction, data)
        held, self._held = self._held, b""
        if found:
            return [*found, held] if held else found
        self._held = data
        return []


@requirement("remote/faults:damage")
@pytest.mark.parametrize("how", [flip, truncate, replay, "swap"])
async def test_damaged_frames_cost_at_most_a_connection(online, how):
    size = 8_000_000
    damage = Swap(lambda _data: []) if how == "swap" else Damage(how)
    limits = msgspec.structs.replace(LIMITS, retained_bytes=1 << 24)
    async with executor(online, "env-2", limits=limits), connect(online, "env-2") as client:
        online.tamper = damage
        process = await client.start(["sh", "-c", f"seq 1 1200000 | head -c {size}"])
        found = b"".join([chunk.data async for chunk in process])
        assert len(found) == size
        assert found.startswith(b"1\n2\n3\n")
        numbers = found.split()[:-1]
        assert numbers == [b"%d" % n for n in range(1, len(numbers) + 1)]
        assert damage.done >= 5


@requirement("remote/faults:damage")
async def test_frames_that_a_harness_did_not_send_are_not_believed(online):
    async with connect(online) as client:
        process = await client.start(["cat"], stdin=True)
        spoilt: list[bytes] = []

        def spoil(direction: str, data: bytes) -> list[bytes]:
            if direction == "up" and not spoilt and isinstance(decode(data).body, Data):
                spoilt.append(data)
                return flip(data)
            return [data]

        online.tamper = spoil
        await process.write(b"true\n")
        assert (await anext(process)).data == b"true\n"
        assert spoilt
        await process.terminate()


@requirement("remote/faults:damage")
async def test_a_frame_truncated_on_its_way_up_is_as_good_as_lost(online):
    async with connect(online) as client, connect(online) as other:
        process = await client.start(["cat"], stdin=True)
        stream_id = None

        def spoil(direction: str, data: bytes) -> list[bytes]:
            nonlocal stream_id
            if direction == "up" and stream_id is None:
                stream_id = decode(data).stream_id
                return truncate(data)
            return [data]

        online.tamper = spoil
        writing = asyncio.ensure_future(process.write(b"once\n"))
        await eventually(lambda: stream_id is not None)
        assert (await other.run(["echo", "spared"])).stdout == b"spared\n"
        assert not writing.done()
        # The frames that wait for the lost one are bounded: one too many ends the stream, and the
        # session goes on over another.
        connected = len(online.operations("connect"))
        asking = [client.environment_status() for _ in range(LIMITS.relay_reorder_frames + 1)]
        await asyncio.gather(*asking, return_exceptions=True)
        await writing
        await process.close_stdin()
        assert await lines_of(process) == [b"once"]
        assert len(online.operations("connect")) == connected + 1


@requirement("remote/faults:flood")
async def test_a_flood_of_bad_handshakes_leaves_open_streams_alone(relay):
    limits = msgspec.structs.replace(LIMITS, relay_failure_pause=0.2)
    async with executor(relay, limits=limits), connect(relay) as client:
        answered = relay.answered
        for number in range(500):
            frame = RelayFrame(StreamId(f"flood-{number}"), Handshake(os.urandom(3600)))
            relay.send_to_executor(encode(frame))
        assert (await client.run(["echo", "calm"])).stdout == b"calm\n"
        await relay.until(lambda: relay.answered >= answered + 500)
        assert len(relay.operations("validate")) == 1
        # New streams are admitted again after the pause.
        async with asyncio.timeout(60):
            while True:
                try:
                    async with connect(relay) as another:
                        assert (await another.run(["echo", "in"])).stdout == b"in\n"
                    break
                except ConnectError:
                    continue


def physical_connection() -> ExecutorSocket:
    """Return the only open socket of an executor."""
    (found,) = [
        each
        for each in gc.get_objects()
        if type(each) is ExecutorSocket and each._socket is not None
    ]
    return found


@requirement("remote/faults:slow-reader")
async def test_a_rendezvous_that_stops_reading_does_not_fill_the_memory(online):
    size = 50_000_000
    # A window that is larger than what sockets on the way hold.
    roomy = msgspec.structs.replace(LIMITS, flow_window=8 * MIB)
    async with connect(online, limits=roomy) as client, connect(online) as other:
        socket = online.executor_socket()
        socket.transport.pause_reading()
        process = asyncio.ensure_future(client.run(["head", "-c", str(size), "/dev/zero"]))
        physical = physical_connection()
        await eventually(lambda: physical.is_writing_paused)
        waiting = asyncio.ensure_future(other.run(["echo", "patient"]))
        for _ in range(200):
            await asyncio.sleep(0)
        assert physical.unsent_bytes < 8_000_000
        assert not waiting.done()
        socket.transport.resume_reading()
        assert (await waiting).stdout == b"patient\n"
        assert len((await process).stdout) == size


@requirement("remote/faults:slow-reader")
async def test_a_stream_whose_reader_is_behind_does_not_delay_another(online):
    async with connect(online) as slow, connect(online) as quick:
        blocked = await slow.start(["sleep", "60"])
        link = slow._session.connection
        waiting = asyncio.ensure_future(blocked.read(wait=30))
        for _ in range(20):
            assert (await quick.run(["echo", "quick"])).stdout == b"quick\n"
        assert not waiting.done()
        waiting.cancel()
        await blocked.terminate()
        assert slow._session.connection is link


@pytest.mark.one_loop
@requirement("remote/faults:slow-reader", "remote/executor:streams")
async def test_of_128_streams_one_that_does_not_read_holds_up_no_other(online):
    size, others = 20_000_000, LIMITS.relay_streams - 1
    slots, all_are_open = asyncio.Semaphore(16), asyncio.Barrier(others)

    async def use() -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with slots:
                client = await stack.enter_async_context(connect(online))
            await all_are_open.wait()
            assert isinstance(physical._mux, Mux)
            assert physical._mux.open_streams == LIMITS.relay_streams
            assert await client.environment_status() == "ready"
            await all_are_open.wait()

    harness = await NoiseDialler(online.url, "env-1", HarnessToken(TOKEN), limits=LIMITS)()
    physical = physical_connection()
    async with await exec_server.ExecServerClient.connect(harness) as idle:
        flood = await idle.start(["head", "-c", str(size), "/dev/zero"])
        harness.pause_reading()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            for _ in range(others):
                tasks.create_task(use())
        harness.resume_reading()
        assert sum([len(chunk.data) async for chunk in flood]) == size


@requirement("remote/secrecy:capture")
async def test_the_rendezvous_sees_no_command_path_or_output(online, tmp_path):
    online.is_capturing = True
    secret = "velvet-Giraffe-51"
    path = tmp_path / f"file-{secret}"
    async with connect(online) as client:
        await client.fs.write_bytes(str(path), f"content {secret}".encode() * 100)
        assert secret.encode() in await client.fs.read_bytes(str(path))
        script = f"cat {path}; echo out-{secret} >&2; exit 5"
        done = await client.run(["sh", "-c", script], env={"VARIABLE": secret})
        assert done.returncode == 5
        assert secret.encode() in done.stderr
    seen = bytes(online.seen)
    assert len(seen) > 10_000
    raw = secret.encode()
    hidden = [
        raw,
        raw.hex().encode(),
        b"process/start",
        b"exec-server-client",
        str(tmp_path).encode(),
    ]
    # The text may begin anywhere in a group of base64.
    hidden += [base64.b64encode(b"x" * n + raw)[4:-4] for n in range(3)]
    for words in hidden:
        assert words not in seen

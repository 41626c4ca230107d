"""Windows, seen by the client: every byte once, and each process waits for its own reader."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import itertools
from collections.abc import AsyncIterator

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client.connect_options import ExecServerClientConnectOptions
from exec_server.client.flow.flow_control import FlowControl
from exec_server.client.process.output_buffer import OutputBuffer, OutputChunk
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.client_urls import connect
from exec_server.errors import ProcessFailed
from exec_server.limits import KIB, MIB, Limits
from exec_server.server.serving import RunningServer
from exec_server.state.window import CHUNK_COST
from exec_server.transport.dial import dial
from tests.requirements import requirement
from tests.support.children import child
from tests.support.fake_server import Talk, fake_server
from tests.support.fault_proxy import Fault, fault_proxy
from tests.support.leaks import eventually
from tests.support.local import connected, server_with
from tests.support.tether import Tether
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")

# So long a pipe must have no room before its writer counts as blocked.
STILL = 0.2
WINDOW = 128 * KIB
SMALL = Limits(flow_window=WINDOW, recovery_pause=0.01, reader_patience=0.05)
CAPABLE = {
    "sessionId": "s",
    "environmentInfo": {
        "shell": {"name": "sh", "path": "/bin/sh"},
        "cwd": "file:///",
        "capabilities": {"processFlow": True},
    },
}


@pytest.fixture
def tether(tmp_path):
    with Tether(tmp_path) as made:
        yield made


@pytest.fixture
async def small(server: RunningServer) -> AsyncIterator[ExecServerClient]:
    """A client that asks for small windows."""
    async with connect(server.url, limits=SMALL) as connected:
        yield connected


def flood(tether: Tether) -> list[str]:
    return child("says_when_blocked.py", tether.path, STILL)


def counting(upto: int) -> tuple[list[str], bytes]:
    whole = b"".join(b"%d\n" % n for n in range(1, upto + 1))
    return ["seq", "1", str(upto)], whole


async def passed(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    await eventually(lambda: loop.time() > end)


async def granted(client: ExecServerClient, process: RemoteProcess) -> bool:
    """Whether the server lets it wait."""
    return bool((await client.read(process.process_id, max_bytes=1)).flow_window)


# The buffer.


class Acknowledged:
    """A buffer with a window of 100 chunks, and what it acknowledges."""

    def __init__(self, patience: float = 60.0) -> None:
        self.seqs: list[int] = []
        self.is_connected = True
        limits = Limits(reader_patience=patience)
        self.control = FlowControl(self, limits=limits)
        self.flow = self.control.open("p", window=100 * (CHUNK_COST + 1))
        self.buffer = OutputBuffer(self.flow, limits=limits)
        self._numbers = itertools.count(1)

    offers_flow = True

    def acknowledge(self, process_id: str, seq: int | None) -> bool:
        if self.is_connected:
            assert process_id == "p" and seq is not None
            self.seqs.append(seq)
        return self.is_connected

    def say(self, count: int, stream: str = "stdout") -> None:
        for seq in itertools.islice(self._numbers, count):
            self.buffer.append(OutputChunk(seq, stream, b"x"))  # type: ignore[arg-type]

    async def take(self, count: int, wanted: str = "all") -> None:
        for _ in range(count):
            await self.buffer.take(wanted)  # type: ignore[arg-type]


@requirement("window/acknowledged-in-time")
async def test_quarters_are_acknowledged_when_they_are_taken():
    talk = Acknowledged()
    talk.say(100)
    assert talk.seqs == []
    await talk.take(24)
    assert talk.seqs == []
    await talk.take(76)
    assert talk.seqs == [25, 50, 75, 100]


@requirement("window/acknowledged-in-time")
async def test_what_could_not_be_acknowledged_is_the_next_time():
    talk = Acknowledged()
    talk.is_connected = False
    talk.say(100)
    await talk.take(60)
    talk.is_connected = True
    talk.flow.acknowledge()
    assert talk.seqs == [60]
    talk.flow.acknowledge()
    talk.flow.acknowledge(at_once=True)
    assert talk.seqs == [60, 60]


@requirement("window/acknowledged-in-time", "window/unread")
async def test_a_stream_that_nobody_takes_does_not_hold_up_the_other():
    talk = Acknowledged()
    taking = asyncio.ensure_future(talk.take(1, "stdout"))
    await eventually(lambda: talk.buffer._waiters)
    talk.say(100, "stderr")
    assert talk.seqs == [25, 50, 75, 100]
    talk.say(1)
    await taking


@requirement("window/unread")
@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("was_taken", [False, True])
@pytest.mark.parametrize("is_watched", [False, True])
async def test_who_gives_way_to_whom(is_awaited, was_taken, is_watched):
    talk = Acknowledged()
    if was_taken:
        talk.say(1)
        await talk.take(1)
    talk.say(99)
    assert talk.flow.is_behind
    with contextlib.ExitStack() as stack:
        if is_awaited:
            stack.enter_context(talk.flow.awaiting_exit())
        talk.flow.give_way(is_watched=is_watched)
    gives_way = is_awaited or (is_watched and not was_taken)
    assert bool(talk.seqs) == gives_way and talk.flow.is_behind != gives_way
    # A reader that takes something is waited for again.
    await talk.take(1)
    talk.say(60)
    assert talk.flow.is_behind


@requirement("window/unread")
async def test_whoever_waits_in_vain_is_noticed():
    talk = Acknowledged(patience=0.01)
    talk.say(100)
    with talk.flow.awaiting_exit():
        await eventually(lambda: talk.seqs)
    assert talk.seqs == [100]


@requirement("window/unread")
async def test_nobody_is_hurried_while_nobody_waits():
    talk, other = Acknowledged(patience=0.005), Acknowledged(patience=0.005)
    talk.say(100)
    other.say(100)
    with other.flow.watching():
        await eventually(lambda: other.seqs)
    assert not talk.seqs and talk.flow.is_behind
    del talk
    gc.collect()


# With a server.


@pytest.mark.one_loop
@requirement("window/lossless", "window/bounded")
async def test_a_stream_that_is_cut_every_few_mebibytes_arrives_whole(server):
    size = 64 * MIB
    # From short to long: also shorter than a window.
    schedule = (Fault(after) for after in itertools.cycle([3 * MIB, 1 * MIB, 5 * MIB, 9 * MIB]))
    cuts = itertools.islice(schedule, 24)
    script = (
        "import hashlib,os,sys\n"
        "block=os.urandom(1<<20); whole=hashlib.sha256()\n"
        f"for n in range({size >> 20}):\n"
        "    piece=n.to_bytes(4,'big')+block[4:]\n"
        "    whole.update(piece); sys.stdout.buffer.write(piece)\n"
        "sys.stderr.write(whole.hexdigest())\n"
    )
    limits = Limits(recovery_pause=0.01)
    async with fault_proxy(server.url, cuts) as proxy, connect(proxy.url, limits=limits) as client:
        process = await client.start(["python3", "-c", script])
        said, digest, total, seq = hashlib.sha256(), b"", 0, 0
        async with asyncio.timeout(6 * PATIENCE):
            async for chunk in process:
                assert chunk.seq > seq
                seq = chunk.seq
                if chunk.stream == "stderr":
                    digest += chunk.data
                else:
                    said.update(chunk.data)
                    total += len(chunk.data)
        assert await process.wait() == 0
        assert (total, said.hexdigest()) == (size, digest.decode())
        assert not process.is_truncated and proxy.connections > 10


@requirement("window/lossless")
async def test_both_streams_come_whole_and_in_order_through_cuts(server):
    argv, whole = counting(200_000)
    script = f"{' '.join(argv)} & {' '.join(argv)} >&2; wait"
    cuts = [Fault(200_000, kind=kind) for kind in ("reset", "close", "half-close")] * 3
    async with fault_proxy(server.url, cuts) as proxy, connect(proxy.url, limits=SMALL) as client:
        async with asyncio.timeout(3 * PATIENCE):
            done = await client.run(["sh", "-c", script])
        assert (done.stdout, done.stderr, done.truncated) == (whole, whole, False)
        assert proxy.connections > 5


@requirement("window/lossless", "window/bounded")
async def test_a_process_waits_while_its_client_is_away_and_goes_on_afterwards(server, tether):
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=SMALL) as client:
        process = await client.start(flood(tether))
        await anext(process)
        proxy.is_down = True
        proxy.cut()
        await tether.heard(b"blocked\n")
        proxy.is_down = False
        seq = 1
        async with asyncio.timeout(PATIENCE):
            while tether.is_held and b"running\n" not in tether.said:
                chunk = await anext(process)
                seq += 1
                assert chunk.seq == seq
        assert await process.terminate()


@requirement("window/one-by-one", "window/bounded")
async def test_a_flood_is_piped_into_a_slow_process(tmp_path, no_leaks):
    # Far more than the client could keep, and the server for stdin.
    limits = Limits(flow_window=WINDOW, untaken_max_bytes=512 * KIB)
    size, goal = 8 * MIB, tmp_path / "copy"
    async with (
        server_with(stdin_queue_bytes=64 * KIB, stdin_queue_writes=2) as server,
        connect(server.url, limits=limits) as client,
    ):
        source = await client.start(["head", "-c", str(size), "/dev/urandom"])
        slow = f"import sys\nwith open({str(goal)!r},'wb') as f:\n"
        slow += " while data := sys.stdin.buffer.read1(4096): f.write(data)"
        sink = await client.start(["python3", "-c", slow], stdin=True)
        whole = hashlib.sha256()
        async with asyncio.timeout(6 * PATIENCE):
            async for chunk in source:
                whole.update(chunk.data)
                await sink.write(chunk.data)
            await sink.close_stdin()
            assert await sink.wait() == 0
        assert hashlib.sha256(goal.read_bytes()).digest() == whole.digest()


@requirement("window/acknowledged-in-time", "window/not-negotiated")
@pytest.mark.parametrize("concurrent_requests", [1, 64])
async def test_a_write_that_waits_for_room_does_not_hold_up_acknowledgements(concurrent_requests):
    options = ExecServerClientConnectOptions(concurrent_requests=concurrent_requests)
    data = bytes(4 * MIB)
    async with server_with(stdin_queue_bytes=64 * KIB, stdin_queue_writes=2) as server:
        connection = await dial(server.url, limits=SMALL)
        async with await ExecServerClient.connect(connection, options, limits=SMALL) as client:
            async with asyncio.timeout(PATIENCE):
                assert (await client.run(["cat"], input=data)).stdout == data


@requirement("window/one-by-one")
async def test_a_neighbour_is_quick_while_a_reader_sleeps(small, tether):
    asleep = await small.start(flood(tether))
    await anext(asleep)
    await tether.heard(b"blocked\n")
    argv, whole = counting(500_000)
    async with asyncio.timeout(PATIENCE):
        assert (await small.run(argv)).stdout == whole
    # Others waited for longer than the patience, and its reader was not hurried.
    assert tether.said == b"blocked\n"
    assert await asleep.terminate()


@requirement("window/unread")
async def test_waiting_for_a_process_that_nobody_reads_ends(small, tmp_path):
    process = await small.start(["sh", "-c", f"head -c {4 * MIB} /dev/zero; exit 3"])
    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == 3
    assert sum([len(chunk.data) async for chunk in process]) == 4 * MIB


@requirement("window/unread", "window/bounded")
async def test_what_nobody_takes_in_time_is_told(server):
    limits = Limits(flow_window=WINDOW, reader_patience=0.05, untaken_max_bytes=1 * MIB)
    async with connect(server.url, limits=limits) as client:
        process = await client.start(["head", "-c", str(4 * MIB), "/dev/zero"])
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
        with pytest.raises(ProcessFailed, match="discarded"):
            await process.stdout.read()


@requirement("window/unread")
async def test_a_process_whose_handle_is_dropped_runs_on(small, tether):
    process = await small.start(flood(tether))
    process_id = process.process_id
    await tether.heard(b"blocked\n")
    del process
    gc.collect()
    await tether.heard(b"running\n")
    assert await small.terminate(process_id)


@requirement("window/unread")
async def test_a_handle_that_another_thread_is_just_letting_go_of_is_dropped(small, tether):
    process = await small.start(flood(tether))
    process_id = process.process_id
    # What the other thread still holds while it runs `__del__`.
    held = process._tracked.flow
    await tether.heard(b"blocked\n")
    del process
    gc.collect()
    await tether.heard(b"running\n")
    assert held.has_window
    assert await small.terminate(process_id)


@requirement("window/unread", "window/lossless")
async def test_a_handle_that_is_dropped_during_an_outage_is_told_of_later(server, tether):
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=SMALL) as client:
        process = await client.start(flood(tether))
        await tether.heard(b"blocked\n")
        proxy.is_down = True
        proxy.cut()
        await eventually(lambda: not client.is_connected)
        process_id = process.process_id
        del process
        gc.collect()
        proxy.is_down = False
        await tether.heard(b"running\n")
        assert await client.terminate(process_id)


@requirement("window/unread")
async def test_a_handle_that_fails_at_a_loss_lets_its_process_run_on(server, tether):
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=SMALL) as client:
        process = await client.start(flood(tether), on_disconnect="fail")
        await tether.heard(b"blocked\n")
        proxy.cut()
        await tether.heard(b"running\n")
        assert await client.terminate(process.process_id)


@requirement("window/closed", "window/unread")
async def test_ended_processes_are_not_kept_for_us():
    async with (
        server_with(closed_process_seconds=0.02) as server,
        connect(server.url, limits=SMALL) as client,
    ):
        assert (await client.run(["echo", "hi"])).stdout == b"hi\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.run(["sleep", "60"])
        running = await client.start(["sleep", "60"])
        running.abandon()
        async with asyncio.timeout(PATIENCE):
            while await client.list_processes():
                pass


# Leaving, and coming back.


@requirement("window/detach")
async def test_leaving_a_retained_session_lets_its_processes_run_on(server, tether):
    async with connect(server.url, limits=SMALL) as client:
        await client.retain(600)
        process = await client.start(flood(tether))
        await tether.heard(b"blocked\n")
        token = client.session_token()
    await tether.heard(b"running\n")
    async with connect(server.url, limits=SMALL, session_token=token) as client:
        again = await client.attach(process.process_id)
        assert not await granted(client, again)
        assert await again.terminate()


@requirement("window/attach", "window/lossless")
async def test_another_client_goes_on_at_the_exact_byte(server):
    argv, whole = counting(400_000)
    async with connect(server.url, limits=SMALL) as client:
        process = await client.start(argv)
        taken = b"".join([(await anext(process)).data for _ in range(5)])
        token = client.session_token()
    async with connect(server.url, limits=SMALL, session_token=token) as client:
        again = await client.attach(process.process_id)
        assert await granted(client, again)
        async with asyncio.timeout(PATIENCE):
            taken += await again.stdout.read()
        assert taken == whole and not again.is_truncated


@requirement("window/attach")
async def test_going_on_from_a_later_event_acknowledges_what_is_not_wanted(server, tether):
    async with connect(server.url, limits=SMALL) as client:
        process = await client.start(flood(tether))
        await tether.heard(b"blocked\n")
        last = process._tracked.cursor
        token = client.session_token()
    async with connect(server.url, limits=SMALL, session_token=token) as client:
        again = await client.attach(process.process_id, last)
        await tether.heard(b"running\n")
        assert (await anext(again)).seq == last + 1
        assert await again.terminate()


@requirement("window/attach")
async def test_what_was_acknowledged_may_be_gone_and_what_follows_is_not():
    argv, whole = counting(200_000)
    async with server_with(retained_bytes=64 * KIB) as server:
        async with connect(server.url, limits=SMALL) as client:
            process = await client.start(["sh", "-c", f"{' '.join(argv)}; exit 3"])
            taken = 0
            while taken < 4 * WINDOW:
                taken += len((await anext(process)).data)
            token = client.session_token()
        async with connect(server.url, limits=SMALL, session_token=token) as client:
            again = await client.attach(process.process_id, 0)
            assert again.is_truncated and await granted(client, again)
            async with asyncio.timeout(PATIENCE):
                rest = await again.stdout.read()
            assert whole.endswith(rest) and len(whole) - len(rest) == again.dropped_bytes <= taken
            assert await again.wait() == 3


@requirement("window/lossless")
async def test_a_start_that_is_gone_on_with_keeps_its_window(server):
    argv, whole = counting(200_000)
    # The answer is lost with the connection, after the handshake.
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=SMALL) as client:
        await client.environment_status()
        proxy.cut_next("down")
        async with asyncio.timeout(PATIENCE):
            process = await client.start(argv, ensure=True)
            assert await process.stdout.read() == whole
        assert proxy.connections == 2 and process._tracked.flow.has_window


@requirement("window/attach", "window/unread")
async def test_a_process_that_is_not_attached_to_soon_runs_on(server, tether):
    async with connect(server.url, limits=SMALL) as client:
        process = await client.start(flood(tether))
        await tether.heard(b"blocked\n")
        token = client.session_token()
    limits = Limits(flow_window=WINDOW, recovery_window=0.01)
    async with connect(server.url, limits=limits, session_token=token) as client:
        await tether.heard(b"running\n")
        assert await client.terminate(process.process_id)


@requirement("window/older-client")
async def test_after_somebody_else_the_handle_goes_on_without_a_window(server, tether):
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=SMALL) as client:
        process = await client.start(flood(tether), on_gap="skip")
        await tether.heard(b"blocked\n")
        proxy.is_down = True
        proxy.cut()
        await eventually(lambda: not client.is_connected)
        async with connected(server.url, resumeSessionId=client.session_id):
            await tether.heard(b"running\n")
        proxy.is_down = False
        await eventually(lambda: client.is_connected)
        assert not await granted(client, process) and not process._tracked.flow.has_window
        assert await process.terminate()


# What is said.

ENDED = {"exited": True, "exitCode": 0, "closed": True, "failure": None}


@requirement("window/not-negotiated")
@pytest.mark.parametrize("why", ["no capability", "not wanted", "not granted"])
async def test_nothing_is_said_of_windows_to_servers_without(why):
    result = {"sessionId": "s"} if why == "no capability" else CAPABLE
    limits = Limits(recovery_pause=0.01, flow_window=0 if why == "not wanted" else 4 * KIB)
    seen = []

    async def script(talk: Talk) -> None:
        seen.append(await talk.shake_hands(result))
        if len(seen) == 1:
            seen.append(await talk.start())
            for seq in range(1, 9):
                await talk.output("p", seq, bytes(1000))
        else:
            read = await talk.expect("process/read")
            seen.append(read["params"])
            await talk.answer(read, {"chunks": [], "nextSeq": 11, **ENDED})
        # Nothing else was said before it.
        await talk.answer(await talk.expect("environment/status"), {"status": "ready"})
        if len(seen) == 2:
            talk.socket.transport.abort()
        else:
            await talk.gone()

    async with fake_server(script) as url, connect(url, limits=limits) as client:
        process = await client.start(["x"], cwd="/", process_id="p")
        for _ in range(8):
            await anext(process)
        await client.environment_status()
        assert [chunk async for chunk in process] == []
        await client.environment_status()
    assert ("flowWindow" in seen[1]) == (why == "not granted")
    assert not any("flowProcesses" in params for params in seen)
    assert seen[3] == {"processId": "p", "afterSeq": 8, "waitMs": 0}


@requirement("reconnect/recover-for")
async def test_the_time_to_resume_is_what_the_server_grants(server, tmp_path):
    states: list[str] = []
    limits = Limits(recovery_window=0.05, recovery_pause=0.01)
    async with (
        fault_proxy(server.url) as proxy,
        connect(proxy.url, limits=limits, on_state=states.append) as client,
    ):
        await client.retain(600)
        process = await client.start(["cat"], stdin=True)
        for _ in range(2):
            proxy.is_down = True
            proxy.cut()
            await eventually(lambda: states[-1] == "recovering")
            # Longer than it is tried without being granted anything.
            await passed(2 * limits.recovery_window)
            assert states[-1] == "recovering"
            proxy.is_down = False
            async with asyncio.timeout(PATIENCE):
                await process.write(b"x")
                assert (await anext(process)).data == b"x"
        token = client.session_token()
    # The next client learns it from the server.
    async with connect(server.url, session_token=token) as client:
        assert client._session.link._recovery_window == 600
        assert await client.terminate(process.process_id)
    async with connect(server.url, recover_for=7) as client:
        await client.retain(600)
        assert client._session.link._recovery_window == 7

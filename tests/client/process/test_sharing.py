"""`client.watch`, and the input that goes from one client to another."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import exec_server
from exec_server import sync
from exec_server.client.process.output_buffer import OutputChunk
from exec_server.client.process.watched_process import WatchedProcess
from exec_server.errors import ControlLost, ControlRefused, InvalidRequest
from exec_server.protocol.sharing import ScreenPicture
from exec_server.recording.recorder import TerminalRecorder
from exec_server.server.serving import serve
from exec_server.terminal import open_engine
from tests.requirements import requirement
from tests.support.casts import events
from tests.support.fault_proxy import fault_proxy

ECHO = ["sh", "-c", 'stty -echo 2>/dev/null; echo ready; while read -r line; do echo "$line"; done']
PATIENCE = 30


async def until(watched: WatchedProcess, text: bytes) -> bytes:
    """Look on until *text* was shown."""
    data = b""
    async with asyncio.timeout(PATIENCE):
        async for seen in watched:
            if isinstance(seen, OutputChunk):
                data += seen.data
            elif isinstance(seen, ScreenPicture):
                data += seen.data.data
            if text in data:
                return data
    raise AssertionError(f"{text!r} was not shown: {data!r}")


@requirement("recording:drivers")
async def test_a_recording_says_who_drove(tmp_path):
    with contextlib.closing(TerminalRecorder(tmp_path, quota=1 << 20)) as recorder:
        async with (
            serve(recorder=recorder) as running,
            exec_server.connect(running.url) as agent,
            exec_server.connect(running.url) as desk,
        ):
            process = await agent.start(ECHO, tty=True)
            watching = desk.watch(process.process_id, kind="person", name="ann")
            async with process, await watching as watched:
                await watched.take()
    (path,) = tmp_path.glob("*.cast")
    assert "ann (person) drives" in [text for _, code, text in events(path) if code == "m"]


@requirement("sharing/client:watch", "sharing/client:handle")
async def test_an_agent_and_a_person_at_one_terminal(server):
    async with exec_server.connect(server.url) as agent, exec_server.connect(server.url) as desk:
        process = await agent.start(ECHO, tty=True, name="work")
        async with process, await desk.watch(process.process_id, kind="person") as watched:
            assert watched.is_terminal and not watched.drives and process.drives
            await until(watched, b"ready")
            with pytest.raises(ControlLost):
                await watched.write(b"x\n")
            state = await watched.take()
            assert watched.drives and state.epoch == watched.epoch == 2
            async with asyncio.timeout(PATIENCE):
                change = await anext(process.control_changes())
            assert (change.reason, change.driver.kind, process.drives) == ("taken", "person", False)
            assert len(process.viewers) == 2
            with pytest.raises(ControlLost) as caught:
                await process.write(b"agent\n")
            assert (caught.value.epoch, caught.value.driver_kind) == (2, "person")
            assert caught.value.seq is not None and not caught.value.is_back
            with pytest.raises(ControlRefused):
                await process.take()
            await watched.write(b"person\n")
            await until(watched, b"person")
            await watched.give_back()
            await process.write(b"agent again\n")
            await until(watched, b"agent again")
            await process.terminate()
            assert await watched.wait() == 137


@requirement("sharing/list:every")
async def test_the_list_has_names_viewers_and_drivers(server):
    async with exec_server.connect(server.url) as agent, exec_server.connect(server.url) as desk:
        async with await agent.start(ECHO, tty=True, name="work") as process:
            async with await desk.watch(process.process_id, kind="person", name="ann") as watched:
                await watched.take()
                [job] = await desk.jobs(every=True)
                assert (job.name, job.viewers, job.driver, job.durable) == ("work", 1, "ann", False)
                assert job.process_id == process.process_id
                assert await desk.jobs() == []
            [job] = await desk.jobs(every=True)
            assert (job.viewers, job.driver) == (0, None)
        with pytest.raises(InvalidRequest):
            await desk.watch("there is none")


@requirement("sharing/client:watch")
async def test_a_watch_goes_on_after_a_lost_connection(server):
    async with (
        fault_proxy(server.url) as proxy,
        exec_server.connect(server.url) as agent,
        exec_server.connect(proxy.url) as desk,
        await agent.start(ECHO, tty=True) as process,
        await desk.watch(process.process_id, kind="person") as watched,
    ):
        await until(watched, b"ready")
        await watched.take()
        proxy.cut()
        # Its place is kept, and the write waits for the connection.
        async with asyncio.timeout(PATIENCE):
            await watched.write(b"after\n")
        await until(watched, b"after")
        assert watched.drives


@requirement("sharing/client:sync")
def test_the_synchronous_client_shares_as_well():
    with sync.local() as client:
        with client.start(["cat"], stdin=True) as process:
            with client.watch(process.process_id, kind="person", name="ann") as watched:
                watched.take()
                watched.write(b"typed\n")
                seen = next(watched)
                assert isinstance(seen, OutputChunk) and seen.data == b"typed\n"
                watched.give_back()
                assert [each.drives for each in process.control_state().participants] == [
                    True,
                    False,
                ]


@requirement("sharing/client:watch")
async def test_a_watch_that_begins_again_shows_each_byte_once(server):
    script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; done; read x"
    async with (
        exec_server.connect(server.url) as client,
        await client.start(["sh", "-c", script], stdin=True) as process,
        await client.watch(process.process_id, window=2000) as watched,
    ):
        data = b""
        async with asyncio.timeout(PATIENCE):
            async for seen in watched:
                assert isinstance(seen, OutputChunk)
                data += seen.data
                if len(data) % 7 == 0:
                    await watched.refresh()
                if data.endswith(b"\n3000\n"):
                    break
        assert data.split() == [b"%d" % number for number in range(1, 3001)]


@requirement("sharing/watch:picture")
async def test_who_comes_while_output_flows_sees_what_the_others_see(server):
    script = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i .; sleep 0.002; done; read x"
    async with (
        exec_server.connect(server.url) as client,
        await client.start(["sh", "-c", script], tty=True) as process,
    ):
        for _ in range(4):
            engine = open_engine(80, 24)
            async with (
                asyncio.timeout(PATIENCE),
                await client.watch(process.process_id) as watched,
            ):
                async for seen in watched:
                    if isinstance(seen, ScreenPicture):
                        engine.feed(seen.data.data)
                    elif isinstance(seen, OutputChunk):
                        engine.feed(seen.data)
                    whole = [text for text in engine.lines() if text.endswith(" .")]
                    numbers = [int(text.split()[1]) for text in whole]
                    if numbers:
                        assert numbers == list(range(numbers[0], numbers[-1] + 1))
                    if len(numbers) > 20:
                        break
            engine.close()

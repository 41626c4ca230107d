"""Process handles: output, input, control, and how they end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal

import pytest

from exec_server.client.process.remote_process import signal_name
from exec_server.client_urls import connect
from exec_server.errors import (
    CallTimeout,
    ConnectionClosed,
    InternalError,
    InvalidParams,
    InvalidRequest,
    ProcessFailed,
    StdinClosed,
)
from exec_server.protocol.env_policy import EnvPolicy
from exec_server.protocol.process import StartParams
from tests.requirements import requirement
from tests.support.children import child
from tests.support.fake_server import Talk, fake_server
from tests.support.leaks import eventually
from tests.support.tether import Tether
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")


async def sh(client, script: str, **options):
    return await client.start(["sh", "-c", script], **options)


# Output.


@requirement("client/process:output", "client/process:wait")
async def test_output_comes_in_order(client):
    process = await sh(client, "echo one; echo two >&2; read x; exit 7", stdin=True)
    first, second = await anext(process), await anext(process)
    assert {(c.stream, c.data) for c in (first, second)} == {
        ("stdout", b"one\n"),
        ("stderr", b"two\n"),
    }
    assert [first.seq, second.seq] == [1, 2]
    assert process.returncode is None and "running" in repr(process)
    await process.write(b"\n")
    assert [chunk async for chunk in process] == []
    assert await process.wait() == 7 == process.returncode
    assert await process.wait() == 7
    assert "returncode=7" in repr(process)


@requirement("client/process:output")
async def test_much_output_is_whole(client):
    process = await client.start(["seq", "1000000"])
    data = b"".join([chunk.data async for chunk in process])
    assert data == "".join(f"{n}\n" for n in range(1, 1_000_001)).encode()


@requirement("client/process:views")
async def test_each_stream_has_a_view(client):
    process = await sh(client, "seq 20000; seq 20000 >&2; seq 20000 >&2; seq 20000")
    numbers = "".join(f"{n}\n" for n in range(1, 20_001)).encode()
    async with asyncio.timeout(PATIENCE):
        out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
    assert out == err == numbers * 2
    assert await process.stdout.read() == b""


@requirement("client/process:views")
async def test_a_view_keeps_its_process(client):
    view = (await sh(client, "echo early; read x; echo late", stdin=True, process_id="p")).stdout
    assert await anext(view) == b"early\n"
    gc.collect()
    await client.write("p", b"\n")
    assert [data async for data in view] == [b"late\n"]


@requirement("client/process:views")
async def test_each_chunk_is_handed_out_once(client):
    process = await sh(client, "echo out; echo err >&2")
    await process.wait()
    assert [data async for data in process.stderr] == [b"err\n"]
    assert [chunk.data async for chunk in process] == [b"out\n"]


@requirement("client/process:overtaking")
async def test_events_may_overtake_the_answer():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        request = await talk.expect("process/start")
        process_id = request["params"]["processId"]
        await talk.output(process_id, 1, b"early")
        await talk.event("process/exited", process_id, seq=2, exitCode=3)
        await talk.answer(request, {"processId": process_id})
        await talk.event("process/closed", process_id, seq=3)
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await client.start(["x"], cwd="/")
        assert await process.stdout.read() == b"early"
        assert await process.wait() == 3
        assert process.sandbox_type is None


@requirement("client/order:by-number", "client/process:wait")
async def test_events_in_disorder_are_put_right():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        process_id = (await talk.start())["processId"]
        await talk.event("process/closed", process_id, seq=5)
        await talk.output(process_id, 4, b"late")
        await talk.event("process/exited", process_id, seq=2, exitCode=0, sandboxDenied=False)
        await talk.output(process_id, 3, b"then ", stream="stderr")
        await talk.output(process_id, 3, b"again", stream="stderr")
        await talk.expect("environment/status")
        await talk.output(process_id, 1, b"first ")
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await client.start(["x"], cwd="/")
        async with asyncio.timeout(PATIENCE):
            # The exit is known although nothing can be delivered yet.
            assert await process.wait() == 0
            asking = asyncio.ensure_future(client.environment_status())
            chunks = [(chunk.seq, chunk.data) async for chunk in process]
        assert chunks == [(1, b"first "), (3, b"then "), (4, b"late")]
        asking.cancel()


@requirement("client/process:unordered")
@pytest.mark.parametrize("is_large", [False, True], ids=["missing", "oversized"])
async def test_events_that_cannot_be_ordered_fail_the_process_alone(is_large):
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        process_id = (await talk.start())["processId"]
        await talk.output(process_id, 1, b"good")
        if is_large:
            await talk.output(process_id, 2, b"x" * (1024 * 1024 + 1))
        for seq in range(3, 260):
            await talk.output(process_id, seq, b"")
        await talk.answer(await talk.expect("environment/status"), {"status": "ready"})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await client.start(["x"], cwd="/")
        assert await anext(process.stdout) == b"good"
        for use in (process.wait, process.stdout.read, process.stderr.read):
            with pytest.raises(ProcessFailed, match="over the limit" if is_large else "missing"):
                await use()
        assert await client.environment_status() == "ready"


async def test_a_close_without_an_exit_is_a_failure():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.event("process/closed", (await talk.start())["processId"], seq=1)
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await client.start(["x"], cwd="/")
        with pytest.raises(ProcessFailed, match="closed without an exit status"):
            await process.wait()


@requirement("client/process:lost")
async def test_a_lost_connection_ends_the_handle():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.output((await talk.start())["processId"], 1, b"last words")
        await talk.expect("environment/status")
        talk.socket.transport.abort()

    async with fake_server(script) as url, connect(url, reconnect=False) as client:
        process = await client.start(["x"], cwd="/")
        waiting = asyncio.ensure_future(process.wait())
        reading = asyncio.ensure_future(process.stderr.read())
        with pytest.raises(ConnectionClosed):
            await client.environment_status()
        for task in (waiting, reading):
            with pytest.raises(ConnectionClosed):
                await task
        assert await anext(process.stdout) == b"last words"
        with pytest.raises(ConnectionClosed):
            await anext(process.stdout)
        with pytest.raises(ConnectionClosed):
            await process.write(b"x")


@requirement("client/process:dropped-handle")
async def test_a_dropped_handle_leaves_the_process_running(client):
    await sh(client, "echo unheard; read x; echo more; read x", stdin=True, process_id="p")
    await eventually(lambda: gc.collect() >= 0 and not client._session.processes.handles)
    assert (await client.read("p", wait=PATIENCE)).chunks[0].chunk.data == b"unheard\n"
    assert await client.write("p", b"\n") == "accepted"
    result = await client.read("p", after_seq=1, wait=PATIENCE)
    assert result.chunks[0].chunk.data == b"more\n" and not result.exited
    assert await client.terminate("p")


# Input.


@requirement("client/process:write", "client/process:close-stdin")
async def test_what_is_written_arrives_in_order(client):
    process = await client.start(["cat"], stdin=True)
    data = bytes(range(256)) * 8192
    collecting = asyncio.ensure_future(process.stdout.read())
    await asyncio.gather(process.write(data), process.write(b"second"))
    await process.write(b"")
    await process.close_stdin()
    await process.close_stdin()
    assert await collecting == data + b"second"


@requirement("client/process:write-ids")
async def test_writes_are_counted():
    ids = []

    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.start()
        for _ in range(4):
            request = await talk.expect("process/write")
            ids.append((request["params"]["writeId"], len(request["params"]["chunk"])))
            await talk.answer(request, {"status": "accepted"})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await client.start(["x"], cwd="/", stdin=True)
        await process.write(b"abc")
        await process.write(b"x" * 600_000)
    assert ids == [("1", 4), ("2", 349528), ("3", 349528), ("4", 100952)]


@requirement("client/process:stdin-closed")
async def test_a_process_without_input_takes_none(client):
    process = await client.start(["sleep", "60"])
    with pytest.raises(StdinClosed, match="it was started without stdin=True"):
        await process.write(b"x")
    await process.close_stdin()
    await process.terminate()


@requirement("client/process:stdin-closed")
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("unknownProcess", StdinClosed),
        ("stdinClosed", StdinClosed),
        ("starting", InvalidRequest),
    ],
)
async def test_other_answers_to_a_write_are_errors(status, kind):
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.start()
        await talk.answer(await talk.expect("process/write"), {"status": status})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await client.start(["x"], cwd="/", stdin=True)
        with pytest.raises(kind):
            await process.write(b"x")


# Control.


@requirement("client/process:signal")
@pytest.mark.parametrize("signum", [signal.SIGINT, "interrupt", "SIGINT", signal.SIGUSR1, "USR1"])
async def test_signals_have_numbers_and_names(client, signum):
    traps = "trap 'echo INT; exit' INT; trap 'echo USR1; exit' USR1"
    process = await sh(client, f"{traps}; echo ready; while :; do sleep 0.01; done")
    assert await anext(process.stdout) == b"ready\n"
    await process.send_signal(signum)
    expected = b"USR1\n" if "USR1" in str(signum) or signum == signal.SIGUSR1 else b"INT\n"
    assert await process.stdout.read() == expected


@requirement("client/process:signal")
def test_the_one_signal_that_every_server_knows_keeps_its_name():
    assert [signal_name(s) for s in (2, "INT", "SIGINT", "interrupt")] == ["interrupt"] * 4
    assert [signal_name(s) for s in (15, "TERM", "SIGHUP")] == ["SIGTERM", "TERM", "SIGHUP"]
    with pytest.raises(ValueError, match="4711"):
        signal_name(4711)


@requirement("client/process:signal")
async def test_an_unknown_signal_is_refused(client):
    process = await client.start(["sleep", "60"])
    with pytest.raises(InvalidParams):
        await process.send_signal("SIGNOSUCH")
    await process.terminate()


@requirement("client/process:terminate")
async def test_terminating_kills(client):
    process = await sh(client, "trap '' TERM INT HUP; echo ready; while :; do sleep 1; done")
    assert await anext(process.stdout) == b"ready\n"
    assert await process.terminate()
    assert await process.wait() == 137
    assert await process.stdout.read() == b""
    assert not await process.terminate()


async def test_an_abandoned_process_is_killed(client):
    process = await client.start(["sleep", "60"], process_id="p")
    process.abandon()
    with pytest.raises(ProcessFailed, match="abandoned"):
        await process.wait()
    result = await client.read("p", wait=PATIENCE)
    assert result.exit_code == 137


@requirement("client/process:abandon-tree")
async def test_what_an_abandoned_process_has_left_behind_ends_with_it(client, tmp_path):
    with Tether(tmp_path) as tether:
        process = await client.start(child("leaves_a_daemon.py", tether.path, "keep"))
        assert await process.wait() == 0
        # The daemon has left the group of the process, and holds the output open.
        assert tether.is_held
        process.abandon()
        await tether.released()


@requirement("client/process:terminal")
async def test_a_terminal_has_a_size_that_can_change(client):
    process = await sh(client, "stty size; read x; stty size", tty=True, rows=11, cols=22)
    assert process.is_terminal
    assert await anext(process.stdout) == b"11 22\r\n"
    await process.resize(33, 44)
    await process.write(b"\n")
    assert (await process.stdout.read()).endswith(b"33 44\r\n")


@requirement("client/process:terminal", "client/process:close-stdin")
async def test_the_end_of_input_is_typed_on_a_terminal(client):
    process = await client.start(["cat"], tty=True)
    await process.write(b"word\n")
    assert (await anext(process)).stream == "pty"
    await process.close_stdin()
    assert await process.wait() == 0


async def test_what_has_no_terminal_has_no_size(client):
    process = await client.start(["sleep", "60"])
    with pytest.raises(InvalidRequest, match="has no terminal"):
        await process.resize(1, 1)
    await process.terminate()


# Starting.


@requirement("client/process:cwd")
async def test_the_working_directory(client, tmp_path):
    (tmp_path / "ä b").mkdir()
    here = os.getcwd()
    relative = os.path.relpath(tmp_path, here)
    cases = {
        None: here,
        "/usr": "/usr",
        "file:///usr/bin": "/usr/bin",
        str(tmp_path / "ä b"): str(tmp_path / "ä b"),
        relative: str(tmp_path),
    }
    for cwd, expected in cases.items():
        done = await client.run(["pwd"], cwd=cwd)
        assert done.stdout.decode() == f"{expected}\n", cwd
    assert (await client.run(["pwd"], cwd=tmp_path)).stdout.decode() == f"{tmp_path}\n"


@requirement("client/process:env")
async def test_the_environment_is_the_servers_with_ours_over_it(server, monkeypatch):
    async def env(**options) -> dict[str, str]:
        async with connect(server.url) as client:
            lines = (await client.run(["/usr/bin/env"], **options)).stdout.decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    path = os.environ["PATH"]
    assert (await env())["PATH"] == path
    both = await env(env={"WORD": "ours", "HOME": "/nowhere"})
    assert both["WORD"] == "ours" and both["HOME"] == "/nowhere" and both["PATH"] == path
    assert await env(env={"WORD": "alone"}, env_policy=None) == {"WORD": "alone"}
    core = EnvPolicy("core", False, [], {"ADDED": "1"}, [])
    assert {"ADDED", "PATH"} <= set(await env(env_policy=core))


@requirement("client/process:arg0")
async def test_a_program_can_have_another_name(client):
    process = await client.start(["/bin/cat", "/proc/self/cmdline"], arg0="other")
    assert (await process.stdout.read()).startswith(b"other\0")


@requirement("client/process:id-in-use")
async def test_an_id_is_used_once(client):
    process = await client.start(["sleep", "60"], process_id="p")
    with pytest.raises(InvalidRequest, match="process p already exists"):
        await client.start(["true"], process_id="p")
    assert await process.terminate()
    assert await process.stdout.read() == b""
    # Closed here, and still known there.
    with pytest.raises(InvalidRequest, match="process p already exists"):
        await client.start(["true"], process_id="p")


async def test_a_program_that_does_not_exist_is_told(client):
    with pytest.raises(InternalError, match="No such file or directory"):
        await client.start(["/no/such"], process_id="p")
    assert await (await client.start(["true"], process_id="p")).wait() == 0


@pytest.mark.parametrize("argv", ["echo hi", b"echo"])
async def test_a_command_is_a_list_of_words(client, argv):
    with pytest.raises(TypeError):
        await client.start(argv)


async def test_a_process_is_started_exactly_as_said(client):
    params = StartParams("p", ["sh", "-c", "echo $A"], "/", {"A": "b"}, False)
    process = await client.start_process(params)
    assert process.sandbox_type == "none"
    assert await process.stdout.read() == b"b\n"


@requirement("client/process:cancelled-start")
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_start_that_nobody_waits_for_is_undone(how):
    started, terminated = asyncio.Event(), asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        start = await talk.expect("process/start")
        started.set()
        request = await talk.expect("process/terminate")
        assert request["params"] == {"processId": start["params"]["processId"], "tree": True}
        await talk.answer(request, {"running": True})
        await talk.refuse(start, -32600, "start was cancelled")
        terminated.set()
        await talk.gone()

    seconds = PATIENCE if how == "cancelled" else 0.05
    async with fake_server(script) as url, connect(url, call_timeout=seconds) as client:
        starting = asyncio.ensure_future(client.start(["x"], cwd="/"))
        if how == "cancelled":
            await started.wait()
            starting.cancel()
        with pytest.raises(asyncio.CancelledError if how == "cancelled" else CallTimeout):
            await starting
        async with asyncio.timeout(PATIENCE):
            await terminated.wait()
        assert not client._session.processes.handles


@requirement("client/process:wait")
async def test_late_output_follows_the_exit(client):
    # Without job control a background command's stdin is empty, so it gets the pipe as another one.
    process = await sh(client, "exec 3<&0; (read x <&3; echo late) & exit 5", stdin=True)
    assert await process.wait() == 5
    await process.write(b"\n")
    assert await process.stdout.read() == b"late\n"

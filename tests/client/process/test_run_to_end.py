"""Commands that run to their end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.client.process.bounded_output import BoundedOutput
from exec_server.client_urls import connect
from exec_server.errors import (
    CommandFailed,
    CommandTimeout,
    ConnectionClosed,
    InternalError,
    MethodNotFound,
)
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.leaks import eventually
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")


@requirement("client/run")
async def test_output_and_status_are_collected(client):
    done = await client.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert done.argv == ["sh", "-c", "echo out; echo err >&2; exit 3"]


@requirement("client/run")
async def test_many_commands_run_at_once(client):
    results = await asyncio.gather(*(client.run(["echo", str(n)]) for n in range(30)))
    assert [done.stdout for done in results] == [b"%d\n" % n for n in range(30)]


@requirement("client/run")
async def test_a_command_can_have_a_terminal(client):
    assert (await client.run(["tty"], tty=True)).stdout.startswith(b"/dev/pts/")


@requirement("client/run:input")
@pytest.mark.parametrize("size", [0, 3, 3_000_000])
async def test_input_is_fed_and_ended(client, size):
    data = bytes(range(256)) * (size // 256 + 1)
    assert (await client.run(["cat"], input=data[:size])).stdout == data[:size]


@requirement("client/run:input")
async def test_a_command_need_not_read_its_input(client):
    async with asyncio.timeout(PATIENCE):
        done = await client.run(["true"], input=b"x" * 3_000_000)
    assert done.returncode == 0


@requirement("client/run")
async def test_without_input_stdin_is_empty(client):
    assert (await client.run(["cat"])).stdout == b""


@requirement("client/run:input-unsupported")
async def test_input_needs_a_server_that_can_end_it():
    async def script(talk: Talk) -> None:
        info = {"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": {}}
        await talk.shake_hands({"sessionId": "s", "environmentInfo": info})
        # Nothing is started.
        await talk.answer(await talk.expect("environment/status"), {"status": "ready"})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        with pytest.raises(MethodNotFound, match="processCloseStdin"):
            await client.run(["cat"], input=b"x")
        assert await client.environment_status() == "ready"


@requirement("client/run:check")
async def test_a_failure_is_raised_when_asked_for(client):
    with pytest.raises(CommandFailed, match="sh ended with status 4") as caught:
        await client.run(["sh", "-c", "echo so; echo why >&2; exit 4"], check=True)
    error = caught.value
    assert (error.returncode, error.stdout, error.stderr) == (4, b"so\n", b"why\n")
    assert not error.retryable
    assert (await client.run(["true"], check=True)).returncode == 0


async def test_what_cannot_be_started_is_raised(client):
    with pytest.raises(InternalError):
        await client.run(["/no/such"])


@requirement("client/run:timeout")
async def test_a_slow_command_is_killed_and_its_output_kept(client):
    with pytest.raises(CommandTimeout, match=r"sh took longer than 0\.3 seconds") as caught:
        await client.run(["sh", "-c", "echo so far; echo hm >&2; sleep 60"], timeout=0.3)
    assert (caught.value.stdout, caught.value.stderr) == (b"so far\n", b"hm\n")
    [info] = await client.list_processes()
    assert info.exit_code == 137


@requirement("client/run:timeout")
async def test_a_command_that_is_fast_enough_is_left_alone(client):
    assert (await client.run(["true"], timeout=PATIENCE)).returncode == 0


@requirement("client/run:cancelled")
async def test_a_cancelled_run_ends_its_command(client, tmp_path):
    told = tmp_path / "pid"
    told.touch()
    running = asyncio.ensure_future(client.run(["sh", "-c", f"echo $$ > {told}; exec sleep 60"]))
    await eventually(told.read_text)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: not Path(f"/proc/{told.read_text().strip()}").exists())


@requirement("client/run:cancelled")
async def test_a_command_that_was_given_up_is_ended_even_if_we_leave_at_once(server):
    async with connect(server.url) as client:
        # It floods the connection, so that leaving resets it.
        process = await client.start(["yes"])
        await eventually(lambda: process._tracked.flow.is_behind)
        process.abandon()
    await eventually(lambda: not server.core._spawner._live)


async def test_a_connection_that_is_lost_fails_the_run():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.start()
        talk.socket.transport.abort()

    async with fake_server(script) as url, connect(url, reconnect=False) as client:
        with pytest.raises(ConnectionClosed):
            await client.run(["x"], cwd="/")


async def test_a_refusal_to_close_stdin_ends_the_command():
    ended = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.shake_hands({"sessionId": "s"})
        # It does not say what it can do.
        await talk.refuse(await talk.expect("environment/info"), -32601, "no")
        await talk.start()
        await talk.answer(await talk.expect("process/write"), {"status": "accepted"})
        await talk.refuse(await talk.expect("process/closeStdin"), -32601, "no such method")
        await talk.answer(await talk.expect("process/terminate"), {"running": True})
        ended.set()
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        with pytest.raises(MethodNotFound, match="no such method"):
            await client.run(["x"], cwd="/", input=b"x")
        async with asyncio.timeout(PATIENCE):
            await ended.wait()


# Long output.


@requirement("client/run:bounded")
@given(
    pieces=st.lists(st.binary(max_size=20), max_size=30),
    max_bytes=st.none() | st.integers(0, 60),
)
def test_of_a_long_output_the_beginning_and_the_end_are_kept(pieces, max_bytes):
    output = BoundedOutput(max_bytes)
    for piece in pieces:
        output.add(piece)
    whole, kept = b"".join(pieces), output.content()
    if max_bytes is None or len(whole) <= max_bytes:
        assert (kept, output.dropped_bytes) == (whole, 0)
    else:
        tail = max_bytes // 2
        assert kept == whole[: max_bytes - tail] + whole[len(whole) - tail :]
        assert output.dropped_bytes == len(whole) - max_bytes


@requirement("client/run:bounded")
async def test_the_result_says_how_much_is_missing(client):
    done = await client.run(["seq", "200000"], max_output=1000)
    whole = b"".join(b"%d\n" % n for n in range(1, 200_001))
    assert done.stdout == whole[:500] + whole[-500:]
    assert done.is_truncated and done.truncated
    assert done.dropped_bytes == len(whole) - 1000
    assert not (await client.run(["seq", "10"], max_output=1000)).truncated


@requirement("client/run:bounded")
async def test_a_command_that_never_stops_writing_is_bounded_when_it_times_out(client):
    with pytest.raises(CommandTimeout) as caught:
        await client.run(["yes"], timeout=0.5, max_output=100_000)
    assert len(caught.value.stdout) == 100_000


@requirement("client/run:bounded")
@pytest.mark.parametrize(("size", "kind"), [("1", TypeError), (1.5, TypeError), (-1, ValueError)])
async def test_a_bound_is_a_number_of_bytes(client, size, kind):
    with pytest.raises(kind, match="max_output"):
        await client.run(["true"], max_output=size)

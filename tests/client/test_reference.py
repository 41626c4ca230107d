"""Our client and the reference server."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client_urls import connect
from exec_server.errors import InvalidParams, MethodNotFound, StdinClosed
from tests.requirements import requirement
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
async def client(reference):
    async with connect(reference.url) as connected:
        yield connected


@requirement("client/reference")
async def test_it_runs_commands(client: ExecServerClient):
    done = await client.run(["sh", "-c", "pwd; echo err >&2; exit 3"], cwd="/usr")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"/usr\n", b"err\n")
    assert client.session_id and client.concurrency == 1
    assert await client.environment_status() == "ready"
    assert (await client.environment_info()).platform_os == "linux"


@requirement("client/reference")
async def test_it_runs_where_the_server_is_with_its_environment(client: ExecServerClient):
    done = await client.run(["sh", "-c", "pwd; echo $PATH; echo $WORD"], env={"WORD": "ours"})
    cwd, path, word = done.stdout.decode().splitlines()
    assert (cwd, word) == (os.getcwd(), "ours") and path.endswith(os.environ["PATH"])


@requirement("client/reference")
async def test_much_output_is_whole_and_many_run_at_once(client: ExecServerClient):
    results = await asyncio.gather(*(client.run(["seq", "20000"]) for _ in range(8)))
    assert {done.stdout for done in results} == {
        "".join(f"{n}\n" for n in range(1, 20001)).encode()
    }


@requirement("client/reference")
async def test_it_types_on_a_terminal(client: ExecServerClient):
    process = await client.start(["sh", "-c", "tty; read x; echo got:$x"], tty=True)
    assert (await anext(process)).data.startswith(b"/dev/pts/")
    await process.write(b"word\n")
    assert b"got:word" in await process.stdout.read()
    assert await process.wait() == 0


@requirement("client/reference")
async def test_it_writes(client: ExecServerClient):
    process = await client.start(["head", "-c", "300000"], stdin=True)
    await process.write(b"x" * 300_000)
    assert await process.stdout.read() == b"x" * 300_000
    with pytest.raises(StdinClosed):
        await (await client.start(["true"])).write(b"x")


@requirement("client/reference")
async def test_it_signals(client: ExecServerClient):
    process = await client.start(["sleep", "60"])
    await process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == 130


@requirement("client/reference")
async def test_it_terminates(client: ExecServerClient):
    process = await client.start(["sleep", "60"])
    assert await process.terminate()
    assert await process.wait() == 137
    assert await process.stdout.read() == b""
    assert not await process.terminate()


@requirement("client/reference", "client/run:input-unsupported")
async def test_it_says_what_the_reference_lacks(client: ExecServerClient):
    with pytest.raises(MethodNotFound, match="processCloseStdin"):
        await client.run(["cat"], input=b"x")
    process = await client.start(["cat"], tty=True, rows=10, cols=20)
    with pytest.raises(MethodNotFound):
        await process.resize(1, 1)
    with pytest.raises(MethodNotFound):
        await process.close_stdin()
    with pytest.raises(MethodNotFound):
        await client.list_processes()
    with pytest.raises(InvalidParams):
        await process.send_signal("SIGTERM")
    await process.terminate()

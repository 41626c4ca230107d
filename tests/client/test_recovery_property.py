"""Whatever happens to the connection: every byte once, every write once, every command once."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_server.client.client import ExecServerClient
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.client_urls import connect
from exec_server.errors import ConnectError, ConnectionClosed
from exec_server.limits import Limits
from tests.requirements import requirement
from tests.support.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.support.servers import ServerProcess, start_server

QUICK = Limits(recovery_pause=0.01)
# Turns a hang into a failure.
ENOUGH = 60.0
CUTS = 200
NUMBERS = b"".join(b"%d\n" % n for n in range(1, 20_001))
COUNTING = """
import itertools, time
for n in itertools.count(1):
    print(n, flush=True)
    time.sleep(0.001)
"""

faults = st.builds(
    Fault,
    # A handshake has about 300 bytes each way; larger numbers reach into what follows.
    st.integers(0, 1000) | st.integers(0, 60_000),
    st.sampled_from(["up", "down"]),
    st.sampled_from(["reset", "close", "half-close"]),
)


@pytest.fixture(scope="module")
def ours() -> Iterator[ServerProcess]:
    with start_server() as server:
        yield server


@pytest.fixture(scope="module", params=["ours", "reference"])
def server(request) -> ServerProcess:
    running: ServerProcess = request.getfixturevalue(request.param)
    return running


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(ENOUGH):
            await main

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


@contextlib.asynccontextmanager
async def connected(proxy: FaultProxy) -> AsyncIterator[ExecServerClient]:
    """A client; the first connection may take a few attempts."""
    async with contextlib.AsyncExitStack() as stack:
        while True:
            try:
                client = await stack.enter_async_context(connect(proxy.url, limits=QUICK))
                break
            except ConnectError:
                continue
        yield client


async def start(
    client: ExecServerClient, script: str, folder: Path, *, can_ensure: bool
) -> RemoteProcess:
    """Start a script that first says so in a file, as often as it takes."""
    while True:
        ran = Path(tempfile.mktemp(dir=folder))
        argv = ["sh", "-c", f"echo x >> {ran}; {script}"]
        try:
            return await client.start(argv, stdin=True, ensure=can_ensure)
        except ConnectionClosed as exc:
            assert exc.may_have_run and not can_ensure


async def settle(process: RemoteProcess) -> None:
    """Kill it, as often as it takes."""
    while True:
        try:
            await process.terminate()
            return
        except ConnectionClosed:
            continue


async def echo(
    client: ExecServerClient, writes: list[bytes], folder: Path, *, can_ensure: bool
) -> None:
    process = await start(client, "exec cat", folder, can_ensure=can_ensure)
    wanted = b"".join(writes)
    for data in writes:
        await process.write(data)
    got = b""
    if can_ensure:
        await process.close_stdin()
        got = await process.stdout.read()
        assert await process.wait() == 0
    else:
        while len(got) < len(wanted):
            got += await anext(process.stdout)
        await settle(process)
        got += await process.stdout.read()
    assert got == wanted


async def stream(client: ExecServerClient, folder: Path, *, can_ensure: bool) -> None:
    process = await start(client, "exec seq 20000", folder, can_ensure=can_ensure)
    chunks = [chunk async for chunk in process]
    assert b"".join(chunk.data for chunk in chunks) == NUMBERS
    assert await process.wait() == 0


async def survive(
    url: str, schedule: list[Fault], writes: list[bytes], folder: Path, *, can_ensure: bool
) -> None:
    async with fault_proxy(url, schedule) as proxy, connected(proxy) as client:
        await asyncio.gather(
            echo(client, writes, folder, can_ensure=can_ensure),
            stream(client, folder, can_ensure=can_ensure),
        )
    ran = [path.read_text() for path in folder.iterdir()]
    if can_ensure:
        assert ran == ["x\n"] * 2
    else:
        # One that was killed may not have come to it.
        assert "x\n" in ran and set(ran) <= {"x\n", ""}


@requirement("reconnect/property", "reconnect/reference", "reconnect/ensure")
# Each takes processes and connections; the long profile is for hunting.
@settings(max_examples=settings().max_examples // 2)
@given(
    schedule=st.lists(faults, max_size=10),
    writes=st.lists(st.binary(min_size=1, max_size=3000), max_size=6),
)
def test_any_schedule_of_cuts(server, request, schedule, writes):
    can_ensure = "ours" in request.node.callspec.id
    with tempfile.TemporaryDirectory() as folder:
        run(survive(server.url, schedule, writes, Path(folder), can_ensure=can_ensure))


async def stream_through_cuts(url: str) -> None:
    async with fault_proxy(url) as proxy, connect(proxy.url, limits=QUICK) as client:
        process = await client.start([sys.executable, "-c", COUNTING])
        got, last_cut = b"", 0
        async for chunk in process:
            got += chunk.data
            # A connection that has carried something, and that nothing has happened to yet.
            if proxy.faults < CUTS and client.is_connected and proxy.connections > last_cut:
                last_cut = proxy.connections
                proxy.cut()
            elif proxy.faults == CUTS and client.is_connected and proxy.connections > last_cut:
                await settle(process)
        # It may have been killed in the middle of a line.
        count = got.count(b"\n")
        assert b"".join(b"%d\n" % n for n in range(1, count + 2)).startswith(got)
        assert proxy.faults == CUTS and proxy.connections > CUTS
        assert await process.wait() == 137


@requirement("reconnect/many-cuts", "reconnect/reference")
def test_a_stream_survives_two_hundred_cuts(server):
    run(stream_through_cuts(server.url))

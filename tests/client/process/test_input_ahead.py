"""Input with two writes under way: in order, once, also over lost connections."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client.process.input_ahead import InputAhead, can_write_ahead
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.client_urls import connect
from exec_server.errors import StdinClosed
from tests.requirements import requirement
from tests.support.fault_proxy import fault_proxy
from tests.support.wire import PATIENCE

SIZE = 256 * 1024


@requirement("ssh:input-ahead")
async def test_input_is_written_in_order_and_once_over_lost_connections(server):
    parts = [os.urandom(SIZE) for _ in range(60)]
    async with fault_proxy(server.url) as proxy, connect(proxy.url) as client:
        process = await client.start(["sha256sum"], stdin=True)
        assert await can_write_ahead(process)
        async with asyncio.timeout(PATIENCE), InputAhead(process) as ahead:
            for number, part in enumerate(parts):
                await ahead.write(part)
                if number % 4 == 1:
                    # Some writes have not left, some are on their way, some are accepted.
                    for _ in range(number % 7):
                        await asyncio.sleep(0)
                    proxy.cut()
            await ahead.flush()
        await process.close_stdin()
        printed, _ = await process.communicate()
    assert printed.split()[0].decode() == hashlib.sha256(b"".join(parts)).hexdigest()


@requirement("ssh:input-ahead")
async def test_writes_that_wait_for_a_reader_keep_their_order(server, tmp_path):
    """The process does not read until the connection was lost with two writes that wait."""
    # The pipe takes 8 of them, and the queue of the server 128.
    parts = [bytes([number]) * 8192 for number in range(200)]
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with fault_proxy(server.url) as proxy, connect(proxy.url) as client:
        process = await client.start(["sh", "-c", f"read x < {gate}; sha256sum"], stdin=True)
        async with asyncio.timeout(PATIENCE), InputAhead(process) as ahead:
            writing = asyncio.create_task(_write_all(ahead, parts))
            # The queue of the server is full once writes are not answered.
            while not await _is_stuck(client, process):
                assert not writing.done()
            proxy.cut()
            await client.environment_info()
            with gate.open("w") as opened:
                opened.write("go\n")
            await writing
        await process.close_stdin()
        printed, _ = await process.communicate()
    assert printed.split()[0].decode() == hashlib.sha256(b"".join(parts)).hexdigest()


async def _write_all(ahead: InputAhead, parts: list[bytes]) -> None:
    for part in parts:
        await ahead.write(part)
    await ahead.flush()


async def _is_stuck(client: ExecServerClient, process: RemoteProcess) -> bool:
    """True if no write is accepted while other requests are answered."""
    before = process._last_write_id
    for _ in range(50):
        await client.fs.exists("/")
    return before > 2 and process._last_write_id == before


@requirement("ssh:input-ahead")
async def test_a_process_that_takes_no_input_is_said_and_later_writes_work(client):
    process = await client.start(["true"])
    async with InputAhead(process) as ahead:
        await ahead.write(b"a")
        await ahead.write(b"b")
        with pytest.raises(StdinClosed):
            await ahead.flush()
    other = await client.start(["cat"], stdin=True)
    async with InputAhead(other) as ahead:
        await ahead.write(b"a")
        await ahead.flush()
    await other.write(b"b")
    await other.close_stdin()
    assert await other.communicate() == (b"ab", b"")


@requirement("ssh:input-ahead")
async def test_the_last_write_is_repeated_though_none_follows(server):
    async with fault_proxy(server.url) as proxy, connect(proxy.url) as client:
        process = await client.start(["cat"], stdin=True)
        async with asyncio.timeout(PATIENCE), InputAhead(process) as ahead:
            for _ in range(5):
                proxy.cut()
                # The client has not noticed the loss yet.
                await ahead.write(b"x\n")
                assert await anext(process.stdout) == b"x\n"

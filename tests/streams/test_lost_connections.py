"""Byte streams whose connection is lost: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random

import pytest

from exec_server.client_urls import connect
from exec_server.errors import SessionLost
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.fault_proxy import Direction, Fault, fault_proxy
from tests.support.listening import echo, listening
from tests.support.wire import PATIENCE

STREAMS = 16
CUTS = 10
SMALL = 400_000


def digest(data):
    return hashlib.sha256(data).hexdigest()


async def exchange(reader, writer, data):
    """Send *data* in pieces and end; returns what came back."""

    async def send():
        for start in range(0, len(data), 50_000):
            writer.write(data[start : start + 50_000])
            await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    try:
        back = await reader.read()
        await sending
    finally:
        sending.cancel()
    writer.close()
    await writer.wait_closed()
    return back


@requirement("streams/lost:exact")
async def test_cuts_during_many_streams_alter_no_byte(no_leaks):
    faults = [
        Fault(random.randrange(200_000, 500_000), random.choice(("up", "down")))
        for _ in range(CUTS)
    ]
    async with (
        asyncio.timeout(PATIENCE),
        serve() as running,
        fault_proxy(running.url, faults) as proxy,
        connect(proxy.url) as client,
        listening(echo) as port,
    ):
        async with await client.start_server(echo) as remote:
            # All that is sent may have passed before its echo meets a cut that waits for it.
            while proxy.faults < CUTS:
                data = [random.randbytes(SMALL) for _ in range(STREAMS)]
                pairs = [
                    await (
                        client.open_connection("127.0.0.1", port)
                        if index % 2
                        else asyncio.open_connection(*remote.address)
                    )
                    for index in range(STREAMS)
                ]
                back = await asyncio.gather(
                    *(exchange(*pair, each) for pair, each in zip(pairs, data, strict=True))
                )
                assert list(map(digest, back)) == list(map(digest, data))
        assert proxy.faults == CUTS


@requirement("streams/lost:listener")
async def test_a_listener_accepts_while_there_is_no_connection(no_leaks):
    async with (
        asyncio.timeout(PATIENCE),
        serve() as running,
        fault_proxy(running.url) as proxy,
        connect(proxy.url) as client,
        await client.start_server(echo) as remote,
    ):
        proxy.is_down = True
        proxy.cut()
        pairs = [await asyncio.open_connection(*remote.address) for _ in range(3)]
        for number, (_, writer) in enumerate(pairs):
            writer.write(b"%d" % number)
            writer.write_eof()
        proxy.is_down = False
        for number, (reader, writer) in enumerate(pairs):
            assert await reader.read() == b"%d" % number
            writer.close()


@requirement("streams/wire:repeat")
async def test_an_open_that_is_cut_is_made_once(no_leaks):
    accepted = 0

    async def count(reader, writer):
        nonlocal accepted
        accepted += 1
        await echo(reader, writer)

    async with (
        asyncio.timeout(PATIENCE),
        serve() as running,
        fault_proxy(running.url) as proxy,
        connect(proxy.url) as client,
        listening(count) as port,
    ):
        await client.list_streams()
        directions: tuple[Direction, ...] = ("down", "up", "down", "up")
        for direction in directions:
            proxy.cut_next(direction)
            reader, writer = await client.open_connection("127.0.0.1", port)
            writer.write(b"x")
            assert await reader.read(1) == b"x"
            writer.close()
            await writer.wait_closed()
        assert accepted == 4


@requirement("streams/lost:server")
async def test_a_server_that_is_gone_loses_its_streams(no_leaks):
    async with asyncio.timeout(PATIENCE), contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(serve())
        async with connect(running.url, recover_for=0.5) as client, listening(echo) as port:
            reader, writer = await client.open_connection("127.0.0.1", port)
            remote = await client.start_server(echo)
            await stack.aclose()
            with pytest.raises(ConnectionResetError):
                await reader.read()
            with pytest.raises(ConnectionResetError):
                await remote.serve_forever()
            with pytest.raises(SessionLost):
                await client.open_connection("127.0.0.1", port)
            writer.close()


@requirement("streams/wire:cleanup")
async def test_a_client_that_leaves_takes_its_streams_along(no_leaks):
    ended = asyncio.get_running_loop().create_future()

    async def wait_for_end(reader, writer):
        try:
            await reader.read()
        except ConnectionResetError as exc:
            ended.set_result(exc)
        finally:
            writer.close()

    async with asyncio.timeout(PATIENCE), serve() as running, listening(wait_for_end) as port:
        async with connect(running.url) as client:
            reader, writer = await client.open_connection("127.0.0.1", port)
            remote = await client.start_server(echo)
        await ended
        with pytest.raises(OSError):
            while True:
                _, other = await asyncio.open_connection(*remote.address)
                other.close()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()

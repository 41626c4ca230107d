"""Half-open and swallowing connections between a harness and the rendezvous."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from exec_server.limits import Limits
from tests.remote.conftest import LIMITS, connect, executor
from tests.requirements import requirement
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.rendezvous import Rendezvous
from tests.support.wire import PATIENCE

WATCHFUL: Limits = msgspec.structs.replace(LIMITS, silence=0.3, silence_limit=0.9)


@pytest.fixture
async def proxy(relay: Rendezvous, monkeypatch) -> AsyncIterator[FaultProxy]:
    """Between harnesses and the rendezvous, which has an executor."""
    quick = msgspec.structs.replace(LIMITS, take_over_probe=0.5)
    async with executor(relay, limits=quick), fault_proxy(relay.url) as running:
        port = relay.port
        monkeypatch.setattr(relay, "port", running.port)
        yield running
        relay.port = port


@requirement("reconnect/half-open")
async def test_a_harness_that_alone_has_lost_its_socket_resumes_at_once(relay, proxy):
    proxy.keeps_server_side = True
    async with connect(relay) as client:
        process = await client.start(["cat"], stdin=True)
        for number in range(3):
            await process.write(b"%d\n" % number)
            proxy.cut(only_client=True)
        await process.close_stdin()
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.read() == b"0\n1\n2\n"


@requirement("reconnect/silence")
async def test_a_swallowing_socket_of_a_harness_is_replaced(relay, proxy):
    async with connect(relay, limits=WATCHFUL) as client:
        process = await client.start(["cat"], stdin=True)
        proxy.stall()
        async with asyncio.timeout(PATIENCE):
            await process.write(b"x\n")
            assert await anext(process.stdout) == b"x\n"


@requirement("reconnect/take-over:probe")
async def test_the_holder_of_a_token_gets_in_through_the_relay(relay, proxy):
    proxy.keeps_server_side = True
    async with connect(relay, reconnect=False) as first:
        process = await first.start(["cat"], stdin=True)
        token = first.session_token()
        proxy.cut(only_client=True)
        async with asyncio.timeout(PATIENCE), connect(relay, session_token=token) as second:
            handle = await second.attach(process.process_id)
            await handle.write(b"x\n")
            assert await anext(handle.stdout) == b"x\n"


@requirement("remote/executor:silence")
async def test_a_swallowing_socket_of_the_executor_is_replaced(relay, monkeypatch):
    """The client alone cannot help itself: each new socket of it leads to the dead one."""
    async with fault_proxy(relay.url) as running:
        port = relay.port
        monkeypatch.setattr(relay, "port", running.port)
        async with executor(relay, limits=WATCHFUL):
            monkeypatch.setattr(relay, "port", port)
            async with connect(relay, limits=WATCHFUL) as client:
                process = await client.start(["cat"], stdin=True)
                running.stall()
                async with asyncio.timeout(PATIENCE):
                    await process.write(b"x\n")
                    assert await anext(process.stdout) == b"x\n"

"""Connections that one side has lost and the other believes in, and links that swallow all."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client_urls import connect
from exec_server.errors import SessionLost
from exec_server.limits import Limits
from tests.requirements import requirement
from tests.support.fault_proxy import Direction, Fault, FaultProxy, Kind, fault_proxy
from tests.support.leaks import eventually
from tests.support.local import server_with
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")

QUICK = Limits(recovery_pause=0.01)
WATCHFUL = Limits(recovery_pause=0.01, recovery_dial=0.4, silence=0.15, silence_limit=0.4)
NUMBERS = b"".join(b"%d\n" % n for n in range(1, 50_001))


async def _reconnected(proxy: FaultProxy, connections: int) -> None:
    await proxy.wait(lambda proxy: proxy.connections == connections)


@requirement("reconnect/half-open")
async def test_a_connection_that_only_the_client_has_lost_is_resumed_at_once(server):
    async with fault_proxy(server.url) as proxy:
        proxy.keeps_server_side = True
        async with connect(proxy.url, limits=QUICK) as client:
            process = await client.start(["cat"], stdin=True)
            for number in range(10):
                await process.write(b"%d\n" % number)
                proxy.cut(only_client=True)
                # The server believes in every earlier connection.
                await _reconnected(proxy, number + 2)
            await process.close_stdin()
            async with asyncio.timeout(PATIENCE):
                assert await process.stdout.read() == b"".join(b"%d\n" % n for n in range(10))


async def _marked(client: ExecServerClient, folder: Path, number: int) -> None:
    mark = folder / f"{number}"
    process = await client.start(["sh", "-c", f"echo x >> {mark}; seq 50000"], ensure=True)
    assert await process.stdout.read() == NUMBERS
    assert await process.wait() == 0


async def _echoed(client: ExecServerClient, seed: int) -> None:
    chance = random.Random(seed)
    process = await client.start(["cat"], stdin=True, ensure=True)
    sent = [chance.randbytes(chance.randrange(1, 3000)) for _ in range(30)]

    async def feed() -> None:
        for data in sent:
            await process.write(data)
        await process.close_stdin()

    _, got = await asyncio.gather(feed(), process.stdout.read())
    assert got == b"".join(sent)


@requirement("reconnect/half-open")
@pytest.mark.parametrize("seed", range(4))
async def test_random_half_open_cuts_under_load_lose_and_repeat_nothing(server, tmp_path, seed):
    chance = random.Random(seed)
    schedule = [Fault(20_000, "down", "half-open")]
    for _ in range(8):
        direction: Direction = chance.choice(("up", "down"))
        # A handshake has about 1000 bytes up and 3000 down.
        most = chance.choice((1000, 6000) if direction == "up" else (3000, 60_000))
        kind: Kind = chance.choice(("half-open", "half-open", "stall", "reset"))
        schedule.append(Fault(chance.randrange(most), direction, kind))
    async with (
        asyncio.timeout(60),
        fault_proxy(server.url, schedule) as proxy,
        connect(proxy.url, limits=WATCHFUL) as client,
    ):
        proxy.keeps_server_side = True
        await asyncio.gather(
            *(_marked(client, tmp_path, number) for number in range(4)),
            *(_echoed(client, number) for number in range(3)),
        )
        assert proxy.faults >= 3
    assert [path.read_text() for path in tmp_path.iterdir()] == ["x\n"] * 4


@requirement("reconnect/silence")
async def test_a_link_that_swallows_everything_is_replaced(server):
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=WATCHFUL) as client:
        process = await client.start(["cat"], stdin=True)
        for number in range(3):
            proxy.stall()
            async with asyncio.timeout(PATIENCE):
                await process.write(b"%d\n" % number)
                assert await anext(process.stdout) == b"%d\n" % number
        assert proxy.connections == 4


@requirement("reconnect/silence")
async def test_a_handle_that_only_waits_notices_a_dead_link(server, tmp_path):
    go = tmp_path / "go"
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=WATCHFUL) as client:
        process = await client.start(
            ["sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done; exit 7"]
        )
        proxy.stall()
        await proxy.wait(lambda proxy: proxy.connections == 2)
        go.touch()
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 7


@requirement("reconnect/silence")
def test_with_the_shipped_limits_a_dead_link_is_noticed_within_ten_seconds():
    limits = Limits()
    looks = limits.silence / 3
    assert limits.silence_limit + looks + looks / 2 <= 10


@requirement("reconnect/silence:idle")
async def test_a_slow_command_is_no_silence(server):
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=WATCHFUL) as client:
        assert (await client.run(["sleep", "1.2"])).returncode == 0
        assert proxy.connections == 1


@requirement("reconnect/silence:idle")
async def test_an_idle_client_watches_nothing(server):
    async with connect(server.url, limits=WATCHFUL) as client:
        await client.run(["true"])
        await eventually(lambda: client._session._watch._timer is None)


@requirement("reconnect/silence")
async def test_a_network_that_is_away_for_longer_than_the_window_is_waited_for(server):
    # The server believes in the old connection, so it keeps the session.
    limits = Limits(
        recovery_pause=0.01,
        silence=0.15,
        silence_limit=0.3,
        recovery_window=0.3,
        recovery_dial=0.2,
        pong_timeout=30,
    )
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=limits) as client:
        process = await client.start(["cat"], stdin=True)
        proxy.stall()
        proxy.is_down = True
        lost = time.monotonic()
        await eventually(lambda: client.state == "recovering")
        await eventually(lambda: time.monotonic() - lost > 1.5)
        proxy.is_down = False
        async with asyncio.timeout(PATIENCE):
            await process.write(b"back\n")
            assert await anext(process.stdout) == b"back\n"


@requirement("reconnect/take-over:probe")
async def test_the_holder_of_a_token_gets_in_while_the_server_believes_in_a_dead_connection():
    async with server_with(take_over_probe=0.2) as server, fault_proxy(server.url) as proxy:
        proxy.keeps_server_side = True
        async with connect(proxy.url, reconnect=False) as first:
            process = await first.start(["sh", "-c", "echo one; read x; echo $x"], stdin=True)
            assert await anext(process.stdout) == b"one\n"
            token = first.session_token()
            proxy.cut(only_client=True)
            async with asyncio.timeout(60), connect(server.url, session_token=token) as second:
                handle = await second.attach(process.process_id)
                await handle.write(b"two\n")
                assert await handle.stdout.read() == b"two\n"


@requirement("reconnect/taken-over")
async def test_a_client_does_not_take_back_what_another_has_taken():
    limits = Limits(recovery_pause=0.01, taken_over_patience=0.2)
    async with server_with(take_over_probe=0.2) as server, fault_proxy(server.url) as proxy:
        async with connect(proxy.url, limits=limits) as first:
            process = await first.start(["cat"], stdin=True)
            token = first.session_token()
            proxy.stall()
            async with connect(server.url, session_token=token) as second:
                handle = await second.attach(process.process_id)
                with pytest.raises(SessionLost, match="another client has taken the session over"):
                    async with asyncio.timeout(PATIENCE):
                        proxy.cut()
                        await process.wait()
                await handle.write(b"mine\n")
                assert await anext(handle.stdout) == b"mine\n"


@requirement("reconnect/taken-over")
async def test_a_short_visit_of_another_client_costs_nothing():
    async with server_with(take_over_probe=0.2) as server, fault_proxy(server.url) as proxy:
        async with connect(proxy.url, limits=QUICK) as first:
            process = await first.start(["cat"], stdin=True)
            proxy.stall()
            async with connect(server.url, session_token=first.session_token()) as second:
                proxy.cut()
                assert await second.list_processes()
            async with asyncio.timeout(PATIENCE):
                await process.write(b"x\n")
                assert await anext(process.stdout) == b"x\n"

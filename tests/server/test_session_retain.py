"""`session/retain`: work that goes on while no client is connected."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from exec_server.client_urls import connect
from exec_server.errors import MethodNotFound
from tests.requirements import requirement
from tests.support.children import Watched
from tests.support.fake_server import Talk, fake_server
from tests.support.leaks import eventually
from tests.support.local import connected, resumed, server_with
from tests.support.servers import OURS
from tests.support.wire import PATIENCE, Wire, decoded

WAITS = ["sh", "-c", "echo $$; read x"]
WINDOW = 0.1


async def retain(wire: Wire, seconds: float) -> float:
    granted: float = (await wire.call("session/retain", {"seconds": seconds}))["seconds"]
    return granted


async def detached(url: str, seconds: float | None) -> tuple[str, Watched]:
    """Make a session with a process and leave it; returns its id and the process."""
    async with Wire(url) as wire:
        session_id = (await wire.initialize())["sessionId"]
        if seconds is not None:
            await retain(wire, seconds)
        await wire.start("p", WAITS, pipeStdin=True)
        child = Watched(int(decoded(await wire.event("p", "process/output"))))
        wire.cut()
    return session_id, child


@requirement("retain/granted")
async def test_a_server_grants_up_to_its_limit():
    limits = {"detached_session_seconds": 20.0, "max_detached_session_seconds": 100.0}
    async with server_with(**limits) as server, connected(server.url) as wire:
        assert [await retain(wire, asked) for asked in (60, 5.5, 101, 0, -1)] == [
            60,
            5.5,
            100,
            20,
            20,
        ]
        assert (await wire.error("session/retain", {}))["code"] == -32602
        info = await wire.call("environment/info")
        assert info["capabilities"]["sessionRetain"] is True


@requirement("retain/granted")
async def test_the_limit_is_never_below_the_usual_time():
    limits = {"detached_session_seconds": 20.0, "max_detached_session_seconds": 1.0}
    async with server_with(**limits) as server, connected(server.url) as wire:
        assert await retain(wire, 60) == 20


async def test_it_takes_a_session(server):
    async with Wire(server.url) as wire:
        error = await wire.error("session/retain", {"seconds": 1})
        assert "initialize" in error["message"]


@requirement("retain/session")
async def test_a_retained_session_outlives_others():
    async with server_with(detached_session_seconds=WINDOW) as server:
        # The timer of a session that was resumed has no effect on other sessions.
        returned, _ = await detached(server.url, None)
        holder = await resumed(server.url, returned)
        kept, child = await detached(server.url, 3600)
        _, expiring = await detached(server.url, None)
        await expiring.ended()
        second = await resumed(server.url, kept)
        second.cut()
        holder.cut()
        # The time applies to each detachment, until the client asks for another one.
        _, expiring = await detached(server.url, None)
        await expiring.ended()
        third = await resumed(server.url, kept)
        await retain(third, 0)
        third.cut()
        await child.ended()


@requirement("retain/session")
async def test_a_session_without_processes_is_not_kept_for_long():
    async with server_with(detached_session_seconds=0.01) as server:
        async with connected(server.url) as wire:
            await retain(wire, 3600)
        await eventually(lambda: not server.core._sessions)


@requirement("retain/session")
async def test_only_so_many_sessions_are_kept():
    async with server_with(detached_session_seconds=WINDOW, retained_sessions=1) as server:
        kept, _ = await detached(server.url, 3600)
        _, surplus = await detached(server.url, 3600)
        await surplus.ended()
        (await resumed(server.url, kept)).cut()


async def closed(wire: Wire, process_id: str) -> None:
    await wire.start(process_id, ["echo", process_id])
    await wire.event(process_id, "process/closed")


async def is_forgotten(wire: Wire, process_id: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while "error" not in await wire.answer(
            await wire.request("process/read", {"processId": process_id})
        ):
            pass


@requirement("retain/processes")
async def test_ended_processes_can_be_read_as_long():
    limits = {"closed_process_seconds": WINDOW, "retained_processes": 2}
    async with server_with(**limits) as server, connected(server.url) as wire:
        await retain(wire, 3600)
        for process_id in ("a", "b", "surplus"):
            await closed(wire, process_id)
        await is_forgotten(wire, "surplus")
        for process_id in ("a", "b"):
            [chunk] = (await wire.call("process/read", {"processId": process_id}))["chunks"]
            assert decoded(chunk) == f"{process_id}\n".encode()


@requirement("retain/stdio")
@pytest.mark.one_loop
async def test_a_server_on_stdio_keeps_nothing():
    async with connect(f"stdio:{' '.join(OURS)} --listen stdio") as client:
        assert await client.retain(60) == 0


@requirement("retain/client")
async def test_a_client_asks(server):
    async with connect(server.url) as client:
        assert await client.retain(60) == 60


@requirement("retain/client")
async def test_other_servers_cannot_be_asked():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.refuse(await talk.expect("session/retain"), -32601, "no such method")
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        with pytest.raises(MethodNotFound):
            await client.retain(60)


@requirement("retain/granted")
def test_the_limit_is_an_option():
    text = subprocess.run([*OURS, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--max-detached-session-seconds <SECONDS>" in text

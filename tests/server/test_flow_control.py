"""A client that does not read: only its child waits, and no output is lost."""

from __future__ import annotations

import pytest

from tests.requirements import requirement
from tests.support.children import child
from tests.support.local import connected, resumed
from tests.support.raw import RawSocket
from tests.support.servers import start_server
from tests.support.tether import Tether
from tests.support.wire import Wire, decoded, start_params

# A writer counts as blocked if its pipe was full for this time.
PATIENCE = 0.2


@pytest.fixture
def tether(tmp_path):
    with Tether(tmp_path) as made:
        yield made


async def session_on(sock: RawSocket) -> str:
    """The handshake on a raw socket."""
    await sock.upgrade()
    await sock.send_json({"id": 0, "method": "initialize", "params": {"clientName": "x"}})
    await sock.send_json({"method": "initialized"})
    session_id: str = (await sock.receive_json())["result"]["sessionId"]
    return session_id


async def start_flood(sock: RawSocket, tether: Tether) -> None:
    """Start a child that writes without end, read its first words, and wait until it blocks."""
    params = start_params("p", child("says_when_blocked.py", tether.path, PATIENCE))
    await sock.send_json({"id": 1, "method": "process/start", "params": params})
    assert (await sock.receive_json())["id"] == 1
    assert (await sock.receive_json())["params"]["seq"] == 1
    await tether.heard(b"blocked\n")
    assert tether.said == b"blocked\n"


@requirement("flow:child-blocks", "flow:nothing-lost")
async def test_a_child_waits_for_a_client_that_does_not_read(server, tether):
    async with RawSocket(server.url) as sock:
        await session_on(sock)
        await start_flood(sock, tether)
        # The child writes again as soon as the client reads.
        seq = 1
        while b"running" not in tether.said:
            event = (await sock.receive_json())["params"]
            seq += 1
            assert event["seq"] == seq
            assert tether.is_held
        for _ in range(1000):
            seq += 1
            assert (await sock.receive_json())["params"]["seq"] == seq


@requirement("flow:nothing-lost")
async def test_a_slow_reader_gets_every_byte(server):
    async with RawSocket(server.url) as sock, connected(server.url) as other:
        await session_on(sock)
        params = start_params("p", ["seq", "1", "2000000"])
        await sock.send_json({"id": 1, "method": "process/start", "params": params})
        # The output is larger than all buffers, and other clients are served meanwhile.
        for number in range(20):
            await other.run(str(number), ["true"])
        assert (await sock.receive_json())["id"] == 1
        parts, seq, message = [], 0, {"method": ""}
        while message["method"] != "process/closed":
            message = await sock.receive_json()
            seq += 1
            assert message["params"]["seq"] == seq
            if message["method"] == "process/output":
                parts.append(decoded(message["params"]))
        assert b"".join(parts) == b"".join(b"%d\n" % n for n in range(1, 2_000_001))


@requirement("flow:others-unaffected")
async def test_other_connections_are_unaffected(server, tether):
    async with RawSocket(server.url) as sock, connected(server.url) as other:
        await session_on(sock)
        await start_flood(sock, tether)
        finished = await other.run("q", ["seq", "1", "100000"])
        assert finished.stdout.endswith(b"\n100000\n")


@requirement("flow:detach-lets-run", "retention:one-mebibyte")
async def test_a_blocked_child_runs_on_when_its_client_is_gone(server, tether):
    async with RawSocket(server.url) as sock:
        session_id = await session_on(sock)
        await start_flood(sock, tether)
    await tether.heard(b"running\n")
    wire = await resumed(server.url, session_id)
    # The client is attached again and reads; the missed output was retained up to its limit.
    page = await wire.call("process/read", {"processId": "p"})
    assert 0 < sum(len(decoded(chunk)) for chunk in page["chunks"]) <= 1 << 20
    assert page["droppedBytes"] > 0
    assert await wire.call("process/terminate", {"processId": "p"}) == {"running": True}
    await wire.event("p", "process/closed")
    wire.cut()


@requirement("flow:terminate-unread")
async def test_a_client_that_does_not_read_can_still_terminate(server, tether):
    async with RawSocket(server.url) as sock:
        await session_on(sock)
        await start_flood(sock, tether)
        await sock.send_json({"id": 2, "method": "process/terminate", "params": {"processId": "p"}})
        await tether.released()
        message = await sock.receive_json()
        while message.get("id") != 2:
            message = await sock.receive_json()
        assert message["result"] == {"running": True}


@pytest.mark.one_loop
@requirement("flow:memory-is-flat")
async def test_memory_stays_small_while_a_client_does_not_read(tether):
    with start_server() as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            await wire.run("warm", ["seq", "1", "100000"])
        before = server.resident_bytes
        async with RawSocket(server.url) as sock:
            await session_on(sock)
            await start_flood(sock, tether)
            assert server.resident_bytes - before < 32 << 20


@requirement("flow:pipelined-requests")
async def test_many_pipelined_requests_are_all_answered(wire):
    sent = [await wire.request("environment/info") for _ in range(2000)]
    for request_id in sent:
        assert "result" in await wire.answer(request_id)

"""`processFlow`: output is kept until it is acknowledged, and its process waits meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from exec_server.limits import DEFAULT_LIMITS, KIB, MIB
from tests.requirements import requirement
from tests.support.children import child
from tests.support.leaks import eventually
from tests.support.local import connected, resumed, server_with
from tests.support.servers import start_server
from tests.support.tether import Tether
from tests.support.wire import PATIENCE, Wire, decoded, start_params

WINDOW = 256 * KIB
# A writer counts as blocked if its pipe was full for this time.
STILL = 0.2
COUNTS = ["seq", "1", "1000000"]
COUNTED = b"".join(b"%d\n" % n for n in range(1, 1_000_001))


# Acknowledgements must be able to overtake requests.
ORDERLY: dict[str, Any] = {"concurrentRequests": 8}


@pytest.fixture
async def wire(server) -> AsyncIterator[Wire]:
    """A raw connection to `server`, whose requests may overtake each other."""
    async with connected(server.url, **ORDERLY) as connection:
        yield connection


@pytest.fixture
def tether(tmp_path):
    with Tether(tmp_path) as made:
        yield made


async def ack(wire: Wire, seq: int | None, process_id: str = "p") -> None:
    await wire.send({"method": "process/ack", "params": {"processId": process_id, "seq": seq}})


async def resumed_with(url: str, session_id: str, taken: dict[str, int]) -> Wire:
    """A new connection of a client that knows windows."""
    wire = await Wire(url).__aenter__()
    params = {"clientName": "wire", "resumeSessionId": session_id, **ORDERLY}
    params["flowProcesses"] = taken
    answer = await wire.answer(await wire.request("initialize", params))
    while answer.get("error", {}).get("code") == -32010:
        answer = await wire.answer(await wire.request("initialize", params))
    assert "result" in answer, answer
    await wire.send({"method": "initialized"})
    return wire


async def start_flood(wire: Wire, tether: Tether, **params: Any) -> dict[str, Any]:
    """Start a child that writes without end, and wait until its window is full."""
    argv = child("says_when_blocked.py", tether.path, STILL)
    answer = await wire.start("p", argv, flowWindow=WINDOW, **params)
    await tether.heard(b"blocked\n")
    return answer


async def listed(wire: Wire, process_id: str = "p") -> dict[str, Any] | None:
    processes = (await wire.call("process/list"))["processes"]
    return next((each for each in processes if each["processId"] == process_id), None)


def unacknowledged(events: list[dict[str, Any]]) -> int:
    return sum(len(decoded(event["params"])) for event in events)


def outputs(wire: Wire) -> list[dict[str, Any]]:
    return [message for message in wire.unread if message.get("method") == "process/output"]


@requirement("window/bounded", "window/lossless")
async def test_a_process_waits_until_its_output_is_acknowledged(wire, tether):
    assert (await start_flood(wire, tether))["flowWindow"] == WINDOW
    # An answer comes after all earlier events.
    await wire.call("environment/status")
    said = outputs(wire)
    assert WINDOW // 2 < unacknowledged(said) <= WINDOW + 64 * KIB
    assert tether.said == b"blocked\n"
    await ack(wire, said[-1]["params"]["seq"])
    await tether.heard(b"running\n")
    await tether.heard(b"running\nblocked\n")
    await wire.call("environment/status")
    seqs = [event["params"]["seq"] for event in outputs(wire)]
    assert seqs == list(range(1, len(seqs) + 1)) and len(seqs) > len(said)
    assert unacknowledged(outputs(wire)[len(said) :]) <= WINDOW + 64 * KIB


@requirement("window/lossless", "window/bounded")
async def test_a_process_waits_for_a_client_that_is_away(server, tether):
    wire = await Wire(server.url).__aenter__()
    session_id = (await wire.initialize(**ORDERLY))["sessionId"]
    await start_flood(wire, tether)
    wire.cut()
    await eventually(lambda: server.core._attachments.detached_count)
    # A process without a window goes on as usual.
    assert tether.is_held and tether.said == b"blocked\n"
    wire = await resumed_with(server.url, session_id, {"p": 0})
    page = await wire.call("process/read", {"processId": "p"})
    assert "droppedBytes" not in page and page["flowWindow"] == WINDOW
    assert [chunk["seq"] for chunk in page["chunks"]] == list(range(1, page["nextSeq"]))
    assert tether.said == b"blocked\n"
    await ack(wire, page["nextSeq"] - 1)
    await tether.heard(b"running\n")
    wire.cut()


@requirement("window/lossless")
async def test_a_client_that_is_cut_again_and_again_misses_nothing(server):
    wire = await Wire(server.url).__aenter__()
    session_id = (await wire.initialize(**ORDERLY))["sessionId"]
    await wire.start("p", COUNTS, flowWindow=WINDOW)
    taken, seq, is_closed = b"", 0, False
    while not is_closed:
        wire.cut()
        wire = await resumed_with(server.url, session_id, {"p": seq})
        page = await wire.call("process/read", {"processId": "p", "afterSeq": seq})
        assert "droppedBytes" not in page
        taken += b"".join(decoded(chunk) for chunk in page["chunks"])
        seq, is_closed = page["nextSeq"] - 1, page["closed"]
    assert taken == COUNTED
    wire.cut()


@requirement("window/released")
async def test_a_released_process_runs_on(wire, tether):
    await start_flood(wire, tether)
    await ack(wire, None)
    await tether.heard(b"running\n")
    page = await wire.call("process/read", {"processId": "p", "maxBytes": 1})
    assert "flowWindow" not in page
    await wire.call("process/terminate", {"processId": "p"})


@requirement("window/older-client", "window/released")
async def test_a_client_that_names_no_windows_lets_the_processes_run_on(server, tether):
    wire = await Wire(server.url).__aenter__()
    session_id = (await wire.initialize(**ORDERLY))["sessionId"]
    await start_flood(wire, tether)
    wire.cut()
    wire = await resumed(server.url, session_id)
    await tether.heard(b"running\n")
    page = await wire.call("process/read", {"processId": "p"})
    assert "flowWindow" not in page and page["chunks"]
    await wire.call("process/terminate", {"processId": "p"})
    wire.cut()


@requirement("window/older-client")
async def test_a_resuming_client_keeps_the_windows_that_it_names(server):
    wire = await Wire(server.url).__aenter__()
    session_id = (await wire.initialize(**ORDERLY))["sessionId"]
    for name in ("p", "q"):
        await wire.start(name, ["cat"], pipeStdin=True, flowWindow=WINDOW)
    wire.cut()
    wire = await resumed_with(server.url, session_id, {"q": 0, "unknown": 7})
    assert "flowWindow" not in await wire.call("process/read", {"processId": "p"})
    assert (await wire.call("process/read", {"processId": "q"}))["flowWindow"] == WINDOW
    wire.cut()


@requirement("window/odd-acknowledgements")
async def test_odd_acknowledgements_do_no_harm(wire, tether):
    await start_flood(wire, tether)
    await wire.start("plain", ["cat"], pipeStdin=True)
    for seq in (0, 1 << 40, (1 << 64) - 1):
        await ack(wire, seq)
    for process_id in ("unknown", "plain"):
        await ack(wire, 1, process_id)
        await ack(wire, None, process_id)
    await wire.call("environment/status")
    assert tether.said == b"blocked\n"
    assert await wire.write("plain", b"x") == "accepted"


@requirement("window/odd-acknowledgements")
@pytest.mark.parametrize(
    "params", [None, {}, {"processId": "p"}, {"processId": "p", "seq": -1}, {"seq": "1"}, [1]]
)
async def test_malformed_acknowledgements_end_the_connection(wire, params):
    await wire.send({"method": "process/ack", "params": params})
    answer = await wire.receive()
    assert (answer["id"], answer["error"]["code"]) == (-1, -32600)
    await wire.closed()


@requirement("window/odd-acknowledgements")
async def test_nothing_is_acknowledged_before_the_handshake(server):
    async with Wire(server.url) as wire:
        await ack(wire, 1)
        await wire.closed()


@requirement("window/not-negotiated")
async def test_a_client_that_is_served_in_order_gets_no_window(server):
    async with connected(server.url) as wire:
        assert "flowWindow" not in await wire.start("p", ["true"], flowWindow=WINDOW)
        await wire.events_until_closed("p")


@requirement("window/not-negotiated")
async def test_a_client_that_asks_for_no_window_gets_no_member_about_it(wire):
    assert await wire.start("p", ["true"]) == {"processId": "p", "sandboxType": "none"}
    await wire.events_until_closed("p")
    page = await wire.call("process/read", {"processId": "p"})
    assert set(page) == {
        "chunks", "nextSeq", "exited", "exitCode", "closed", "failure", "sandboxDenied",
    }  # fmt: skip


@requirement("window/bounds")
async def test_a_window_has_bounds():
    limits = {"retained_bytes": 1000, "max_flow_window": 5000, "flow_total_bytes": 6000}
    async with server_with(**limits) as server, connected(server.url, **ORDERLY) as wire:

        async def granted(process_id: str, asked: int) -> int:
            answer = await wire.start(process_id, ["cat"], pipeStdin=True, flowWindow=asked)
            window: int = answer["flowWindow"]
            return window

        assert [await granted("a", 9000), await granted("b", 10), await granted("c", 4000)] == [
            5000,
            10,
            1000,
        ]
        assert await granted("d", 3000) == 3000
        # A window that was given up is available to others.
        await ack(wire, None, "a")
        assert await granted("e", 4000) == 4000
        error = await wire.error("process/start", start_params("z", ["true"], flowWindow=0))
        assert error["code"] == -32602


@requirement("window/bounds")
async def test_windows_are_given_back_whatever_becomes_of_their_processes(no_leaks):
    limits = {"flow_total_bytes": 100 * MIB, "detached_session_seconds": 0.1}
    async with server_with(**limits) as server:
        budget = server.core._factory.windows
        async with connected(server.url, **ORDERLY) as wire:
            await wire.start("ends", ["true"], flowWindow=4 * MIB)
            await wire.events_until_closed("ends")
            assert budget.left == 100 * MIB
            await wire.error("process/start", start_params("no", ["/none"], flowWindow=4 * MIB))
            assert budget.left == 100 * MIB
            await wire.start("stays", ["cat"], pipeStdin=True, flowWindow=4 * MIB)
            assert budget.left == 97 * MIB
            # The server keeps more than the usual retention until it is acknowledged.
            await wire.start("full", ["head", "-c", str(2 * MIB), "/dev/zero"], flowWindow=4 * MIB)
            await wire.events_until_closed("full")
            assert budget.left == 94 * MIB
            last = (await wire.call("process/read", {"processId": "full", "maxBytes": 1 << 30}))[
                "nextSeq"
            ]
            await ack(wire, last - 1, "full")
            await wire.call("environment/status")
            assert budget.left == 97 * MIB
        # The session expires.
        await eventually(lambda: not server.core._sessions)
        assert budget.left == 100 * MIB


@requirement("window/closed")
async def test_a_closed_process_stays_until_its_end_is_acknowledged():
    async with (
        server_with(closed_process_seconds=0.02) as server,
        connected(server.url, **ORDERLY) as wire,
    ):
        for name in ("kept", "released", "last"):
            await wire.start(name, ["echo", name], flowWindow=WINDOW)
            await wire.events_until_closed(name)
        await ack(wire, 2, "kept")
        await ack(wire, None, "released")
        await ack(wire, 3, "last")
        while await listed(wire, "last") or await listed(wire, "released"):
            pass
        assert await listed(wire, "kept")
        await ack(wire, 3, "kept")
        while await listed(wire, "kept"):
            pass


@requirement("window/lossless")
async def test_what_was_written_before_an_exit_is_told_before_it_although_the_window_is_full(wire):
    await wire.start("p", ["sh", "-c", "head -c 60000 /dev/zero; exit 3"], flowWindow=1)
    events: list[dict[str, Any]] = []
    while not events or events[-1]["method"] != "process/closed":
        events.append(await wire.find(lambda m: "method" in m))
        await ack(wire, events[-1]["params"]["seq"])
    kinds = [event["method"] for event in events]
    assert kinds[-2:] == ["process/exited", "process/closed"]
    assert unacknowledged(events[:-2]) == 60000


@requirement("window/bounded")
async def test_a_process_that_waits_can_be_terminated(wire, tether):
    await start_flood(wire, tether)
    assert await wire.call("process/terminate", {"processId": "p"}) == {"running": True}
    await tether.released()
    await wire.event("p", "process/closed")


@requirement("window/bounded", "window/one-by-one")
async def test_neighbours_do_not_wait(wire, tether):
    await start_flood(wire, tether)
    async with asyncio.timeout(PATIENCE):
        finished = await wire.run("q", COUNTS)
    assert finished.stdout == COUNTED
    assert tether.said == b"blocked\n"


@pytest.mark.one_loop
@requirement("window/bounded")
async def test_memory_stays_small_without_acknowledgements(tether):
    window = DEFAULT_LIMITS.max_flow_window
    with start_server() as server:
        async with Wire(server.url) as wire:
            await wire.initialize(**ORDERLY)
            await wire.run("warm", ["seq", "1", "100000"])
            before = server.resident_bytes
            argv = child("says_when_blocked.py", tether.path, STILL)
            await wire.start("p", argv, flowWindow=64 * MIB)
            await tether.heard(b"blocked\n")
            wire.cut()
        assert tether.is_held
        assert server.resident_bytes - before < 4 * window


@requirement("memory:acknowledged")
@pytest.mark.parametrize("is_retained", [False, True])
async def test_acknowledged_output_of_an_ended_process_is_freed(server, wire, is_retained):
    if is_retained:
        await wire.call("session/retain", {"seconds": 60})
    done = await wire.start("p", ["seq", "1", "1000"], flowWindow=WINDOW)
    events = await wire.events_until_closed("p")
    await ack(wire, events[-1]["params"]["seq"])
    page = await wire.call("process/read", {"processId": "p"})
    assert bool(page["chunks"]) is is_retained and page["closed"] is True
    later = await wire.call("process/read", {"processId": "p", "afterSeq": page["nextSeq"] - 1})
    assert "droppedBytes" not in later
    assert done["processId"] == "p"

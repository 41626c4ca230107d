"""The order of requests: serial by default, and two lanes with concurrency."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.local import connected, resumed, server_with
from tests.support.raw import TEXT, RawSocket, frame
from tests.support.tether import Tether
from tests.support.wire import Wire, start_params


class Gate:
    """A FIFO; `cat` of it prints nothing until `open` writes to it, and then ends."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self.path = str(folder / name)
        os.mkfifo(self.path)

    def open(self, text: bytes = b"open\n") -> None:
        with open(self.path, "wb") as pipe:
            pipe.write(text)


@pytest.fixture
def gate(tmp_path) -> Gate:
    return Gate(tmp_path)


async def ids_of_answers(wire: Wire, count: int) -> list[object]:
    """The ids of the next *count* answers, in the order of arrival."""
    found: list[object] = []
    while len(found) < count:
        message = await wire.receive()
        if "method" not in message:
            found.append(message["id"])
    return found


def poll(process_id: str) -> dict[str, object]:
    return {"processId": process_id, "waitMs": 60_000}


@requirement("scheduling:serial", "scheduling:connections-are-independent")
async def test_a_request_that_waits_holds_up_everything_behind_it(server, wire, gate):
    await wire.start("p", ["cat", gate.path])
    waiting = await wire.request("process/read", poll("p"))
    status = await wire.request("environment/status")
    await wire.send("not JSON")
    unknown = await wire.request("no/such")
    bad = await wire.request("process/read", {})
    terminate = await wire.request("process/terminate", {"processId": "p"})
    async with connected(server.url) as other:
        assert await other.call("environment/status") == {"status": "ready"}
    gate.open()
    assert await ids_of_answers(wire, 6) == [waiting, status, -1, unknown, bad, terminate]


@requirement("scheduling:serial")
async def test_a_thousand_pipelined_requests_are_answered_in_order(wire, gate):
    await wire.start("p", ["cat", gate.path])
    sent: list[object] = [await wire.request("process/read", poll("p"))]
    sent += [await wire.request("process/list") for _ in range(1000)]
    gate.open()
    assert await ids_of_answers(wire, 1001) == sent


@requirement("scheduling:disconnect-is-noticed-at-once")
async def test_a_disconnect_is_noticed_while_a_request_waits(server, gate):
    async with Wire(server.url) as wire:
        session_id = (await wire.initialize())["sessionId"]
        await wire.start("p", ["cat", gate.path])
        await wire.request("process/read", poll("p"))
        await wire.request("process/terminate", {"processId": "p"})
        wire.cut()
    second = await resumed(server.url, session_id)
    # The server has not read the terminate.
    assert (await second.call("process/list"))["processes"][0]["state"] == "running"
    second.cut()


@requirement("scheduling:backlog")
async def test_a_server_that_is_behind_stops_reading(gate):
    async with (
        server_with(backlog_messages=4) as server,
        connected(server.url) as other,
        RawSocket(server.url) as sock,
    ):
        await sock.upgrade()
        params = {"clientName": "x"}
        await sock.send_json({"id": 1, "method": "initialize", "params": params})
        await sock.send_json({"method": "initialized"})
        start = start_params("p", ["cat", gate.path])
        await sock.send_json({"id": 2, "method": "process/start", "params": start})
        assert [(await sock.receive_json())["id"] for _ in range(2)] == [1, 2]
        await sock.send_json({"id": 3, "method": "process/read", "params": poll("p")})

        # Requests of 64 KiB are sent until the kernel accepts no more of them.
        request = frame(TEXT, b'{"id":4,"method":"environment/status"}'.ljust(1 << 16))
        raw = sock.writer.get_extra_info("socket")
        count, rest, full = 0, b"", 0
        with socket.socket(fileno=os.dup(raw.fileno())) as writer:
            writer.setblocking(False)
            while full < 20 and count < 10_000:
                rest = rest or request
                try:
                    rest = rest[writer.send(rest) :]
                    count += not rest
                    full = 0
                except BlockingIOError:
                    full += 1
                    await other.call("environment/status")
        assert count < 10_000
        gate.open()
        await sock.send(rest)
        answers = [m for m in [await sock.receive_json() for _ in range(4)] if "id" in m]
        assert answers[0]["id"] == 3
        received = len(answers) - 1
        while received < count + bool(rest):
            received += "id" in await sock.receive_json()


# Two lanes.


@requirement("scheduling:control-lane", "scheduling:outside-the-lanes", "scheduling:slots")
async def test_control_requests_pass_a_full_ordinary_lane(tmp_path):
    gates = {name: Gate(tmp_path, name) for name in ("a", "b")}
    async with server_with(concurrent_requests=2) as server, connected(server.url) as wire:
        # The first such request waits until the backends were tried out.
        await wire.call("environment/info")
        for name, gate in gates.items():
            await wire.start(name, ["cat", gate.path])
        polls = {name: await wire.request("process/read", poll(name)) for name in gates}
        # The lane is full, so these wait for a slot, also the one with wrong parameters.
        waiting = await wire.request("process/read", {"processId": "a"})
        bad = await wire.request("process/read", {})
        # Control requests do not wait.
        unknown = await wire.request("no/such")
        await wire.send("not JSON")
        status = await wire.request("environment/status")
        info = await wire.request("environment/info")
        signal = await wire.request("process/signal", {"processId": "none", "signal": "interrupt"})
        terminate = await wire.request("process/terminate", {"processId": "none"})
        assert await ids_of_answers(wire, 6) == [unknown, -1, status, info, signal, terminate]
        gates["b"].open()
        assert await ids_of_answers(wire, 3) == [polls["b"], waiting, bad]
        gates["a"].open()
        assert await ids_of_answers(wire, 1) == [polls["a"]]


@requirement("scheduling:slots")
async def test_requests_beyond_the_slots_wait_and_none_is_lost(tmp_path):
    gate = Gate(tmp_path)
    async with server_with(concurrent_requests=2) as server, connected(server.url) as wire:
        await wire.start("p", ["cat", gate.path])
        sent = {await wire.request("process/read", poll("p")) for _ in range(500)}
        assert await wire.call("environment/status") == {"status": "ready"}
        gate.open()
        assert set(await ids_of_answers(wire, 500)) == sent


@requirement("scheduling:in-order-until-initialized")
async def test_everything_runs_in_order_until_initialized():
    async with server_with(concurrent_requests=4) as server, Wire(server.url) as wire:
        order = [
            await wire.request("process/list"),
            await wire.request("initialize", {"clientName": "x"}),
            await wire.request("process/list"),
            await wire.request("environment/status"),
        ]
        await wire.send({"method": "initialized"})
        order.append(await wire.request("process/list"))
        answers = [await wire.receive() for _ in order]
        assert [answer["id"] for answer in answers] == order
        assert ["result" in answer for answer in answers] == [False, True, False, False, True]


@requirement(
    "process/start:starting",
    "process/write:starting",
    "process/read:starting",
    "process/terminate:starting",
)
async def test_a_process_that_is_starting_can_be_cancelled(tmp_path):
    with Tether(tmp_path) as tether:
        async with (
            server_with(concurrent_requests=16) as server,
            RawSocket(server.url) as sock,
        ):
            await sock.upgrade()
            await sock.send_json({"id": 0, "method": "initialize", "params": {"clientName": "x"}})
            await sock.send_json({"method": "initialized"})
            assert (await sock.receive_json())["id"] == 0
            start = start_params("p", ["sh", "-c", f"exec 9>{tether.path}; echo no; sleep 60"])
            write = {"processId": "p", "chunk": "", "writeId": "1"}
            requests = [
                ("process/start", start),
                ("process/write", write),
                ("process/read", {"processId": "p"}),
                ("process/signal", {"processId": "p", "signal": "interrupt"}),
                ("process/closeStdin", {"processId": "p"}),
                ("process/list", {}),
                ("process/start", start),
                ("process/terminate", {"processId": "p"}),
                ("process/terminate", {"processId": "p"}),
                # The id can be used again at once.
                ("process/start", start_params("p", ["true"])),
            ]
            # One write to the socket, so that the server sees them all before any start is done.
            await sock.send(
                b"".join(
                    frame(TEXT, json.dumps({"id": n, "method": m, "params": p}).encode())
                    for n, (m, p) in enumerate(requests, start=1)
                )
            )
            answers: dict[int, Any] = {}
            events: list[dict[str, Any]] = []
            while len(answers) < len(requests) or len(events) < 2:
                message = await sock.receive_json()
                if "id" in message:
                    answers[message["id"]] = message.get("result", message.get("error"))
                else:
                    events.append(message)
            await tether.released()
    assert answers[2] == {"status": "starting"}
    assert answers[3] == {"code": -32600, "message": "process id p is starting"}
    assert answers[4] == {}
    assert answers[5] == {"status": "starting"}
    assert answers[6]["processes"][0]["state"] == "starting"
    assert answers[7] == {"code": -32600, "message": "process p already exists"}
    assert answers[8] == {"running": True}
    assert answers[9] == {"running": False}
    assert answers[1] == {"code": -32600, "message": "process p start was cancelled"}
    assert answers[10] == {"processId": "p", "sandboxType": "none"}
    # These events are only those of the second process.
    assert [event["method"] for event in events] == ["process/exited", "process/closed"]

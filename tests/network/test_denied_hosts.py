"""Hosts that the proxy of a process refuses are denials like any other."""

from __future__ import annotations

import asyncio
import contextlib

from tests.requirements import requirement
from tests.support.proxied import answered, get, launch, origin, said


@requirement("denials/records:hosts")
async def test_a_refused_host_is_a_record_with_a_true_count(wire):
    port, _ = await launch(wire, start={"denials": True}, domains={"allowed.invalid": "allow"})
    for _ in range(3):
        await answered(port, get("x.invalid"))
    await answered(port, get("y.invalid"))
    first = (await wire.event("p", "process/denied"))["denial"]
    assert (first["kind"], first["target"]) == ("host", "x.invalid:80")
    answer = await wire.call("process/denials", {"processId": "p"})
    found = [(each["target"], each.get("count", 1)) for each in answer["denials"]]
    assert found == [("x.invalid:80", 3), ("y.invalid:80", 1)]
    assert answer["total"] == 4
    assert answer["denials"][0]["rule"] == "host not allowed (not_allowed)"
    await wire.call("process/terminate", {"processId": "p"})
    await wire.events_until_closed("p")


HOLD = {"denials": True, "denialHoldMs": 30_000}


async def granted(wire, denial, scope: str, process_id: str = "p"):
    params = {"processId": process_id, "grant": denial["grant"], "scope": scope}
    return await wire.call("process/grant", params)


async def denied(wire, process_id: str = "p"):
    return (await wire.event(process_id, "process/denied"))["denial"]


@requirement("denials/grants:hosts")
async def test_a_held_request_goes_on_when_its_host_is_granted(wire):
    async with origin() as (made, there):
        port, _ = await launch(wire, start=HOLD, allowLocalBinding=True)
        host = f"127.0.0.1:{there}"
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(answered(port, get(host)))
            denial = await denied(wire)
            assert (denial["kind"], denial["held"]) == ("host", True)
            assert denial["grant"] == f"host={host}"
            assert not made.heads
            assert await granted(wire, denial, "once") == {"released": 1, "inPlace": False}
        assert first.result()[0].startswith(b"HTTP/1.1 200")
        # The next one is asked about again.
        async with asyncio.TaskGroup() as tasks:
            second = tasks.create_task(answered(port, get(host)))
            denial = await denied(wire)
            assert denial["count"] == 2
            result = await granted(wire, denial, "session")
            assert result == {"released": 1, "inPlace": True}
        assert second.result()[1] == b"ok"
        assert (await answered(port, get(host)))[1] == b"ok"
        # What the session starts later has it, too, and asks for nothing.
        other, _ = await launch(wire, "other", allowLocalBinding=True)
        assert (await answered(other, get(host)))[1] == b"ok"
        assert (await answered(other, get("127.0.0.1:1")))[0].startswith(b"HTTP/1.1 403")
    answer = await wire.call("process/denials", {"processId": "p"})
    assert [(each["target"], each["count"]) for each in answer["denials"]] == [(host, 2)]


@requirement("denials/grants:hosts")
async def test_a_host_that_is_not_granted_stays_refused(wire):
    domains = {"bad.invalid": "deny"}
    port, _ = await launch(wire, start=HOLD, domains=domains)
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(answered(port, get("x.invalid")))
        await granted(wire, await denied(wire), "never")
    assert held.result()[0].startswith(b"HTTP/1.1 403")
    # Nothing waits any more, and what the rules themselves refuse cannot be granted.
    for host in ("x.invalid", "bad.invalid", "localhost"):
        assert (await answered(port, get(host)))[0].startswith(b"HTTP/1.1 403")
    answer = await wire.call("process/denials", {"processId": "p"})
    found = {each["target"]: (each.get("count", 1), "grant" in each) for each in answer["denials"]}
    assert found == {
        "x.invalid:80": (2, True),
        "bad.invalid:80": (1, False),
        "localhost:80": (1, False),
    }
    # A granted name that leads to an address of this machine is refused all the same.
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(answered(port, get("y.invalid")))
        await granted(wire, await denied_of(wire, "y.invalid:80"), "once")
    assert held.result()[0].startswith(b"HTTP/1.1 403")


@requirement("denials/grants:hosts")
async def test_the_end_of_a_process_ends_the_wait_for_a_grant(wire):
    port, _ = await launch(wire, start=HOLD)

    async def told() -> bytes:
        with contextlib.suppress(ConnectionError):
            return await said(port, get("x.invalid"))
        return b""

    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(told())
        assert (await denied(wire))["held"]
        await wire.call("process/signal", {"processId": "p", "signal": "interrupt"})
    # The proxy ends with the process, and may be quicker than its answer.
    assert held.result()[:12] in (b"HTTP/1.1 403", b"")


async def denied_of(wire, target: str):
    while (denial := await denied(wire))["target"] != target:
        pass
    return denial

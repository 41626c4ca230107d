"""Quotas: exact under many starts at once, and no principal takes what is another's."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from exec_server.access.principal import Quotas
from exec_server.server.floors import quotas as quotas_module
from exec_server.server.floors import refusal_lines as refusals_module
from tests.requirements import requirement
from tests.support.tenants import principal, serving
from tests.support.wire import Wire, start_params

pytestmark = pytest.mark.one_loop
QUOTA_REACHED = -32022
LIMIT = 7
STARTS = 200


def tenant(name: str = "ci", **quotas: Any) -> Any:
    return principal(name, quotas=Quotas(**quotas))


def waits(process_id: str) -> dict[str, Any]:
    return start_params(process_id, ["cat"], pipeStdin=True)


async def end(wire: Wire, process_id: str) -> None:
    await wire.call("process/terminate", {"processId": process_id})
    await wire.event(process_id, "process/closed")


async def outcomes(wire: Wire, ids: list[int]) -> tuple[int, list[dict[str, Any]]]:
    """How many of the requests *ids* were accepted, and the errors of the others."""
    answers = [await wire.answer(each) for each in ids]
    errors = [answer["error"] for answer in answers if "error" in answer]
    return len(answers) - len(errors), errors


@requirement("floors/quotas:exact", "floors/quotas:own-error")
async def test_two_hundred_starts_at_once_hold_the_quota_exactly(no_leaks, monkeypatch):
    # Each refusal would come a while after the one before it.
    monkeypatch.setattr(quotas_module, "_REFUSAL_SECONDS", 0.001)
    async with contextlib.AsyncExitStack() as stack:
        running, _, refusals = await stack.enter_async_context(serving(tenant(max_processes=LIMIT)))
        wires = [await stack.enter_async_context(Wire(running.url)) for _ in range(4)]
        ids: list[list[int]] = []
        for wire in wires:
            await wire.initialize(concurrentRequests=64)
        for wire in wires:
            ids.append([])
            for number in range(STARTS // 4):
                ids[-1].append(await wire.request("process/start", waits(f"{number}")))
        found = [await outcomes(*each) for each in zip(wires, ids, strict=True)]
        assert sum(accepted for accepted, _ in found) == LIMIT
        errors = [error for _, several in found for error in several]
        assert len(errors) == STARTS - LIMIT
        text = f"principal `ci` has {LIMIT} processes, and may have no more (max-processes)"
        assert all(error == {"code": QUOTA_REACHED, "message": text} for error in errors)
        assert running.core.spawner.live_count == LIMIT
        assert refusals == [("ci", "process/start", text)] * (STARTS - LIMIT)
        # A process that has ended makes room for one other; so does a start that fails.
        holder = next(wire for wire, (accepted, _) in zip(wires, found, strict=True) if accepted)
        listed = (await holder.call("process/list"))["processes"]
        await end(holder, listed[0]["processId"])
        for _ in range(3):
            error = await wires[0].error("process/start", start_params("bad", ["/no/such"]))
            assert error["code"] != QUOTA_REACHED
            error = await wires[0].error("process/start", {**waits("bad"), "argv": []})
            assert error["code"] != QUOTA_REACHED
        await wires[0].start("again", ["cat"], pipeStdin=True)
        assert (await wires[0].error("process/start", waits("more")))["code"] == QUOTA_REACHED


@requirement("floors/quotas:queue")
async def test_starts_wait_for_room_if_the_operator_says_so(no_leaks):
    async with serving(tenant(max_processes=2), when_full="queue") as (running, _, _):
        async with Wire(running.url) as wire, Wire(running.url) as lost:
            await wire.initialize(concurrentRequests=16)
            await lost.initialize()
            for name in ("1", "2"):
                await wire.start(name, ["cat"], pipeStdin=True)
            leaving = await lost.request("process/start", waits("x"))
            assert leaving
            pending = [await wire.request("process/start", waits(name)) for name in ("3", "4")]
            listed = (await wire.call("process/list"))["processes"]
            assert {each["processId"] for each in listed} == {"1", "2"}
            # The connection that waits first is lost; its start is not wanted any more.
            lost.cut()
            await end(wire, "1")
            assert (await wire.answer(pending[0]))["result"]["processId"] == "3"
            assert running.core.spawner.live_count == 2
            await end(wire, "2")
            assert (await wire.answer(pending[1]))["result"]["processId"] == "4"
            # Events come after the answer, also of a start that had to wait.
            await wire.write("4", b"hello")
            assert await wire.output_until("4", b"hello") == b"hello"
            for name in ("3", "4"):
                await end(wire, name)


@requirement("floors/quotas:in-all", "floors/quotas:connections", "floors/quotas:sessions")
async def test_connections_and_sessions_have_quotas_of_their_own_and_in_all(no_leaks):
    quotas = Quotas(max_connections=3, max_processes=1)
    who = tenant(max_connections=2, max_sessions=1)
    async with serving(who, quotas=quotas) as (running, tenants, refusals):
        async with Wire(running.url) as one, Wire(running.url) as two:
            await one.initialize()
            error = await two.error("initialize", {"clientName": "wire"})
            assert (
                error["message"]
                == "principal `ci` has 1 session, and may have no more (max-sessions)"
            )
            async with Wire(running.url) as three:
                error = await three.error("initialize", {"clientName": "wire"})
                assert "principal `ci` has 2 connections" in error["message"]
                await three.closed()
            tenants.who = tenant("bob")
            async with Wire(running.url) as bob, Wire(running.url) as fourth:
                await bob.initialize()
                error = await fourth.error("initialize", {"clientName": "wire"})
                assert error["message"].startswith("the server has 3 connections")
                await one.start("1", ["cat"], pipeStdin=True)
                error = await bob.error("process/start", waits("2"))
                assert error["message"].startswith("the server has 1 process,")
                await end(one, "1")
                assert (await bob.run("3", ["true"])).exit_code == 0
        assert {error for _, _, error in refusals if "sessions" in error}


@requirement("floors/quotas:rate")
async def test_a_rate_bounds_starts_and_http_requests(no_leaks):
    async with serving(tenant(rate=0.001)) as (running, tenants, _), Wire(running.url) as wire:
        await wire.initialize()
        assert (await wire.run("1", ["true"])).exit_code == 0
        tenants.who = tenant("bob", rate=0.001)
        async with Wire(running.url) as bob:
            await bob.initialize()
            assert (await bob.run("1", ["true"])).exit_code == 0
        error = await wire.error("process/start", waits("2"))
        assert error["code"] == QUOTA_REACHED
        assert "starts more requests per second than it may (rate)" in error["message"]
        request = {"method": "GET", "url": "http://127.0.0.1:1/", "requestId": "r"}
        assert (await wire.error("http/request", request))["code"] == QUOTA_REACHED


@requirement("floors/quotas:held")
async def test_output_of_a_principal_has_a_bound_of_its_own(no_leaks):
    who = tenant(max_held_bytes=64 * 1024)
    async with serving(who) as (running, tenants, _), Wire(running.url) as wire:
        await wire.initialize()
        script = ["sh", "-c", "head -c 300000 /dev/zero"]
        tenants.who = None
        async with Wire(running.url) as other:
            await other.initialize()
            await asyncio.gather(wire.run("1", script), other.run("1", script))
            kept = [await each.call("process/read", {"processId": "1"}) for each in (wire, other)]
        sizes = [sum(len(chunk["chunk"]) for chunk in found["chunks"]) for found in kept]
        assert sizes[0] < 100_000 < 390_000 < sizes[1]


@requirement("floors/quotas:restored")
async def test_durable_jobs_of_an_earlier_server_count(no_leaks, tmp_path):
    who = tenant(max_processes=1)
    async with serving(who, state_directory=tmp_path / "state") as (running, _, _):
        async with Wire(running.url) as wire:
            session = (await wire.initialize())["sessionId"]
            await wire.start("1", ["cat"], pipeStdin=True, durable=True)
    async with serving(who, state_directory=tmp_path / "state") as (running, _, _):
        async with Wire(running.url) as wire:
            await wire.initialize(resumeSessionId=session)
            assert (await wire.error("process/start", waits("2")))["code"] == QUOTA_REACHED
            await end(wire, "1")
            assert (await wire.run("3", ["true"])).exit_code == 0
            await wire.call("job/prune", {})


@requirement("floors/refused:log")
def test_refusals_are_logged_and_do_not_flood_the_log(caplog, monkeypatch):
    now = 100.0
    monkeypatch.setattr("exec_server.server.floors.refusal_lines.time.monotonic", lambda: now)
    lines = refusals_module.RefusalLines()
    with caplog.at_level("WARNING"):
        for _ in range(50):
            lines.refused(tenant("ci\n"), "process/start", "the rule")
        now += 1.0
        lines.refused(tenant("ci\n"), "process/start", "the rule")
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 6
    assert messages[0] == r"refused process/start of principal ci\n: the rule"
    assert messages[-1].endswith("(45 other refusals were not logged)")

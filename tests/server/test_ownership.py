"""Sessions, processes and jobs belong to their principal: own, foreign, and for an admin."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from exec_server.server.principals.refused_requests import RefusedRequest
from exec_server.server.serving import RunningServer, serve
from tests.requirements import requirement
from tests.support.durable import end_jobs
from tests.support.leaks import eventually
from tests.support.principals import LIMITS, MadePrincipals
from tests.support.wire import Wire

TEXT = base64.b64encode(b"typed\n").decode()
# Each of these uses a process of a session that was resumed.
USES: list[tuple[str, dict[str, Any]]] = [
    ("process/list", {}),
    ("process/read", {"processId": "of-ann", "afterSeq": 0, "waitMs": 0}),
    ("process/write", {"processId": "of-ann", "chunk": TEXT}),
    ("process/signal", {"processId": "of-ann", "signal": "interrupt"}),
    ("process/terminate", {"processId": "of-ann"}),
]


async def left_behind(wire: Wire) -> str:
    """A session with a process `of-ann` that goes on; the caller may leave."""
    session: str = (await wire.initialize())["sessionId"]
    await wire.start("of-ann", ["sh", "-c", "trap '' INT; echo ready; cat"], pipeStdin=True)
    await wire.output_until("of-ann", b"ready")
    return session


@pytest.fixture
def made(tmp_path) -> MadePrincipals:
    found = MadePrincipals(tmp_path)
    for name in ("ann", "bob"):
        found.add(name, "exec")
    found.add("boss", "admin")
    return found


async def is_detached(running: RunningServer) -> None:
    await eventually(lambda: not any(each.is_attached for each in running.core.sessions))


@requirement("principals:ownership")
async def test_who_may_use_a_detached_session(no_leaks, made):
    reports: list[RefusedRequest] = []
    async with serve(limits=LIMITS, principals=made.path) as running:
        running.core.on_refused = reports.append
        async with made.wire(running.url, "ann") as wire:
            session = await left_behind(wire)
        await is_detached(running)
        for force in (False, True):
            async with made.wire(running.url, "bob") as wire:
                take = {"takeOver": {"force": True}} if force else {}
                asked = {"clientName": "bob", "resumeSessionId": session, **take}
                error = await wire.error("initialize", asked)
                # The same words as for a session that never was.
                assert error == {"code": -32600, "message": f"unknown session id {session}"}
        assert [(each.principal, each.scope) for each in reports] == [("bob", None)] * 2
        assert all("`ann`" in each.what and session not in each.what for each in reports)
        async with made.wire(running.url, "bob") as wire:
            # The ids of processes are those of one's own session.
            await wire.initialize()
            assert (await wire.call("process/list", {}))["processes"] == []
            for method, params in USES[1:]:
                assert await unknown(wire, method, params)
        for name in ("ann", "boss"):
            async with made.wire(running.url, name) as wire:
                found = await wire.initialize(resumeSessionId=session)
                assert found["sessionId"] == session
                for method, params in USES[:4]:
                    await wire.call(method, params)
            await is_detached(running)
        async with made.wire(running.url, "boss") as wire:
            await wire.initialize(resumeSessionId=session)
            assert await wire.call("process/terminate", {"processId": "of-ann"}) == {
                "running": True
            }
            await wire.event("of-ann", "process/closed")
        # The admin has not become its owner.
        assert {each.owner for each in running.core.sessions if each.id == session} == {"ann"}


async def unknown(wire: Wire, method: str, params: dict[str, Any]) -> bool:
    """True if the answer is that for a process which has never been."""
    answers = []
    for name in ("of-ann", "of-none"):
        answer = await wire.answer(await wire.request(method, {**params, "processId": name}))
        answers.append(str({**answer, "id": 0}).replace(name, "NAME"))
    return answers[0] == answers[1]


@requirement("principals:ownership")
async def test_who_may_take_an_attached_session_over(no_leaks, made):
    reports: list[RefusedRequest] = []
    async with serve(limits=LIMITS, principals=made.path) as running:
        running.core.on_refused = reports.append
        async with made.wire(running.url, "ann") as holder:
            session = await left_behind(holder)
            unknown_one = f"unknown session id {session}"
            for take in ({}, {"force": True}, {"generation": 1}, {"client": "c", "attempt": 9}):
                async with made.wire(running.url, "bob") as wire:
                    asked = {"clientName": "bob", "resumeSessionId": session, "takeOver": take}
                    assert (await wire.error("initialize", asked))["message"] == unknown_one
            assert len(reports) == 4
            # The holder was neither displaced nor asked for a sign of life.
            assert holder.unread == []
            await holder.call("process/list", {})
            async with made.wire(running.url, "boss") as wire:
                await wire.initialize(resumeSessionId=session, takeOver={"force": True})
                await holder.closed()
                await wire.call("process/terminate", {"processId": "of-ann"})


@requirement("principals:ownership")
async def test_whose_jobs_are_listed_and_pruned(no_leaks, made, tmp_path):
    state = tmp_path / "state"
    try:
        async with serve(limits=LIMITS, principals=made.path, state_directory=state) as running:
            for name in ("ann", "bob"):
                async with made.wire(running.url, name) as wire:
                    await wire.initialize()
                    await wire.start(f"of-{name}", ["true"], durable=True)
                    await wire.event(f"of-{name}", "process/closed")
            async with made.wire(running.url, "bob") as bob:
                await bob.initialize()
                (own,) = (await bob.call("job/list", {}))["jobs"]
                assert own["processId"] == "of-bob" and "owner" not in own
                for params in ({"processId": "of-ann"}, {"sessionId": "x"}):
                    assert await bob.call("job/prune", params) == {"removed": 0}
                for method in ("job/list", "job/prune"):
                    assert (await bob.error(method, {"all": True}))["code"] == -32020
            async with made.wire(running.url, "boss") as boss:
                await boss.initialize()
                assert (await boss.call("job/list", {}))["jobs"] == []
                everyones = (await boss.call("job/list", {"all": True}))["jobs"]
                owners = {job["processId"]: job["owner"] for job in everyones}
                assert owners == {"of-ann": "ann", "of-bob": "bob"}
                assert await boss.call("job/prune", {}) == {"removed": 0}
                asked = {"processId": "of-ann", "all": True}
                assert await boss.call("job/prune", asked) == {"removed": 1}
        # The next server knows the owners.
        async with serve(limits=LIMITS, principals=made.path, state_directory=state) as running:
            async with (
                made.wire(running.url, "ann") as ann,
                made.wire(running.url, "bob") as bob,
            ):
                await ann.initialize()
                await bob.initialize()
                assert (await ann.call("job/list", {}))["jobs"] == []
                (job,) = (await bob.call("job/list", {}))["jobs"]
            async with made.wire(running.url, "ann") as ann:
                asked = {"clientName": "ann", "resumeSessionId": job["sessionId"]}
                assert "unknown session id" in (await ann.error("initialize", asked))["message"]
    finally:
        end_jobs(state)


@requirement("principals:ownership")
async def test_only_an_admin_stops_the_server(no_leaks, made):
    async with serve(limits=LIMITS, principals=made.path) as running:
        stopped = running.core.stop_request()
        async with made.wire(running.url, "ann") as ann:
            await ann.initialize()
            assert (await ann.error("server/stop", {}))["code"] == -32020
            assert not stopped.done()
        async with made.wire(running.url, "boss") as boss:
            await boss.initialize()
            await boss.call("server/stop", {})
            await eventually(stopped.done)

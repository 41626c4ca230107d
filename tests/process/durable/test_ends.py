"""The report of a durable job is kept with its exit status, whatever happens to the server."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from exec_server import read_only
from exec_server.client_urls import connect
from exec_server.process.durable.kept_job import STATUS
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap
from tests.support.durable import StateServers, is_running, jobs_of, read_all, until
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


async def report_of(wire: Wire, process_id: str) -> tuple[Any, Any]:
    _, answer = await read_all(wire, process_id)
    return answer["end"], answer["usage"]


@requirement("ends:durable", "ends:wire")
async def test_a_report_is_the_same_at_the_next_server(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("code", sh("exit 137"), durable=True, report=True)
        await wire.start("fault", sh("kill -SEGV $$"), durable=True, report=True)
        await wire.start("terminal", sh("kill -9 $$"), durable=True, report=True, tty=True)
        await wire.start("ended", ["sleep", "100"], durable=True, report=True)
        await wire.start("stock", sh("exit 3"), durable=True)
        await wire.call("process/terminate", {"processId": "ended"})
        names = ("code", "fault", "ended", "terminal")
        before = {name: await report_of(wire, name) for name in names}
        _, stock = await read_all(wire, "stock")
        listed = {job["processId"]: job for job in await jobs_of(wire)}
    servers.restart()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        assert {name: await report_of(wire, name) for name in names} == before
        assert {job["processId"]: job for job in await jobs_of(wire)}.keys() == listed.keys()
        for job in await jobs_of(wire):
            assert (job.get("end"), job.get("usage")) == before.get(job["processId"], (None, None))
    causes = [before[name][0]["cause"] for name in names]
    assert causes == ["exited", "signal", "terminated", "signal"]
    assert before["fault"][0]["signal"] == "SIGSEGV"
    by = {"kind": "client", "principal": f"uid:{os.geteuid()}", "sessionId": session}
    assert before["ended"][0]["by"] == by
    assert before["code"][1].keys() >= {"wall", "cpu", "peakMemory", "read", "written", "from"}
    assert not {"end", "usage"} & (stock.keys() | listed["stock"].keys())


@requirement("ends:durable", "ends:sandbox")
@needs_bubblewrap
async def test_a_report_of_a_sandboxed_job_is_the_same_at_the_next_server(servers):
    sandboxed = {"durable": True, "report": True, "sandbox": read_only().wire}
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("fault", sh("sleep 0.1; kill -SEGV $$"), **sandboxed)
        await wire.start("ended", ["sleep", "100"], **sandboxed)
        await wire.call("process/terminate", {"processId": "ended"})
        before = {name: await report_of(wire, name) for name in ("fault", "ended")}
    servers.restart()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        assert {name: await report_of(wire, name) for name in ("fault", "ended")} == before
    # Older kernels do not tell signals in bubblewrap from exit codes.
    assert before["fault"][0]["cause"] in ("signal", "unknown")
    assert before["ended"][0]["cause"] == "terminated"
    assert before["fault"][1]["peakMemory"] > 0


@requirement("ends:durable")
async def test_the_keeper_knows_who_asked_for_an_end_that_no_server_saw(servers):
    """A server is killed between the order and the exit, and while no server is there."""
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("caught", sh(CATCHES), durable=True, report=True, pipeStdin=True)
        await wire.start("alone", sh("echo up; read x; exit 5"), durable=True, report=True)
        await wire.output_until("caught", b"up")
        await wire.call("process/signal", {"processId": "caught", "signal": "TERM"})
        # The program has the signal, and ends by it only after the server.
        await wire.output_until("caught", b"got it")
        keeper = servers.keeper_pid
        pid = {job["processId"]: job["pid"] for job in await jobs_of(wire)}["caught"]
        servers.kill()
    os.kill(pid, signal.SIGUSR1)
    await until(lambda: not is_running(keeper), "the keeper has not ended")
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        end, usage = await report_of(wire, "caught")
        assert (end["cause"], end["signal"]) == ("signal", "SIGTERM")
        # Where the kernel tells it, the program itself has sent the last signal.
        assert end["by"]["kind"] in ("client", "self") and usage["wall"] > 0
        if end["by"]["kind"] == "client":
            assert end["by"]["sessionId"] == session
        end, _ = await report_of(wire, "alone")
        assert end["cause"] == "exited"


# It notes SIGTERM, and ends by it when it gets another signal.
CATCHES = """
trap 'echo got it' TERM
trap 'trap - TERM; kill -TERM $$' USR1
echo up
while :; do sleep 0.05; done
"""


@requirement("ends:stop")
async def test_a_job_that_ends_with_the_server_was_terminated_by_it(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", sh("echo up; exec sleep 100"), durable=True, report=True)
        await wire.output_until("a", b"up")
        await wire.call("server/stop", {"jobs": True})
        await wire.closed()
    servers.server.wait()
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        end, _ = await report_of(wire, "a")
        assert (end["cause"], end["signal"], end["by"]) == (
            "terminated",
            "SIGTERM",
            {"kind": "server"},
        )


@requirement("ends:lost")
async def test_a_job_whose_keeper_was_killed_is_lost(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", ["sleep", "100"], durable=True, report=True)
        servers.kill_keeper()
        event = await wire.event("a", "process/exited")
        assert event["end"] == {"cause": "lost", "evidence": "the keeper died"}
    servers.restart()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        _, answer = await read_all(wire, "a")
        assert answer["end"] == event["end"] and "usage" not in answer


@requirement("ends:durable")
async def test_a_status_of_an_earlier_release_has_an_end_without_usage(servers: StateServers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", sh("exit 3"), durable=True, report=True)
        await read_all(wire, "a")
        (folder,) = servers.jobs
        servers.kill()
    file = folder / STATUS
    known = json.loads(file.read_text())
    assert known["facts"]["wall"] > 0
    file.write_text(json.dumps({name: known[name] for name in ("status", "pid", "endedAt")}))
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        _, answer = await read_all(wire, "a")
        assert answer["end"]["cause"] == "exited" and "usage" not in answer


@requirement("ends:client", "ends:durable")
async def test_a_handle_has_the_report_of_the_next_server(servers):
    async with connect(servers.url) as client:
        process = await client.start(["sleep", "100"], durable=True)
        token = client.session_token()
    servers.restart()
    async with connect(servers.url, session_token=token) as client:
        again = await client.attach(process.process_id)
        await again.terminate()
        await again.wait()
        assert again.end is not None and again.usage is not None
        assert (again.end.cause, again.usage.source) == ("terminated", "rusage")

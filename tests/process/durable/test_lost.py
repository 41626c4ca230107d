"""A process whose exit status cannot be known is lost: said once, with its output readable."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from exec_server.process.durable import durable_spawner
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.durable import is_running, jobs_of, read_all, until
from tests.support.wire import Wire, start_params

pytestmark = pytest.mark.one_loop

PRINTER = ["sh", "-c", "echo before; while :; do sleep .05; done"]


@requirement("durable:keeper-killed")
async def test_if_the_keeper_is_killed_its_jobs_are_lost_and_the_server_serves_on(servers):
    async with Wire(servers.url) as wire:
        await wire.initialize()
        for name in ("a", "b"):
            await wire.start(name, PRINTER, durable=True)
            await wire.output_until(name, b"before")
        pids = [job["pid"] for job in await jobs_of(wire)]
        servers.kill_keeper()
        for name in ("a", "b"):
            exited = await wire.event(name, "process/exited")
            assert (exited["exitCode"], exited["lost"]) == (None, "the keeper died")
            await wire.event(name, "process/closed")
        # Nothing of them is left running.
        await until(lambda: not any(map(is_running, pids)))
        for job in await jobs_of(wire):
            assert (job["state"], job["lost"]) == ("lost", "the keeper died")
            assert (job["exitCode"], job["pid"]) == (None, None)
        data, answer = await read_all(wire, "a")
        assert (data, answer["exited"], answer["exitCode"]) == (b"before\n", True, None)
        assert answer["lost"] == "the keeper died"
        assert {each["state"] for each in (await wire.call("process/list"))["processes"]} == {
            "lost"
        }
        # The next job gets a new keeper.
        await wire.start("c", ["sh", "-c", "echo again"], durable=True)
        data, answer = await read_all(wire, "c")
        assert (data, answer["exitCode"]) == (b"again\n", 0)


@requirement("durable:keeper-killed")
async def test_a_job_whose_folder_was_removed_does_not_hide_the_loss_of_others(servers):
    async with Wire(servers.url) as wire:
        await wire.initialize()
        await wire.start("a", PRINTER, durable=True)
        await wire.output_until("a", b"before")
        (folder,) = servers.jobs
        await wire.start("b", PRINTER, durable=True)
        await wire.output_until("b", b"before")
        shutil.rmtree(folder)
        servers.kill_keeper()
        for name in ("a", "b"):
            exited = await wire.event(name, "process/exited")
            assert (exited["exitCode"], exited["lost"]) == (None, "the keeper died")
        # A new keeper is started.
        await wire.start("c", ["sh", "-c", "echo again"], durable=True)
        data, answer = await read_all(wire, "c")
        assert (data, answer["exitCode"]) == (b"again\n", 0)


@requirement("durable:both-killed")
async def test_if_both_are_killed_jobs_are_lost_once(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", PRINTER, durable=True)
        await wire.output_until("a", b"before")
        (job,) = await jobs_of(wire)
        os.kill(servers.server.pid, signal.SIGSTOP)
        servers.kill_keeper()
        servers.kill()
    assert is_running(job["pid"])
    last = None
    for _ in range(2):
        servers.start()
        async with Wire(servers.url) as wire:
            await wire.initialize(resumeSessionId=session)
            data, answer = await read_all(wire, "a")
            assert (data, answer["exitCode"]) == (b"before\n", None)
            assert answer["lost"] == "the keeper died"
            # Noted once: the numbers do not grow with each server.
            assert last in (None, answer["nextSeq"])
            last = answer["nextSeq"]
        await until(lambda: not is_running(job["pid"]), "the job was not ended")
        servers.kill()
    assert last == 4


@requirement("durable:reboot")
async def test_after_a_restart_of_the_machine_jobs_are_lost(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", PRINTER, durable=True)
        await wire.output_until("a", b"before")
        os.kill(servers.server.pid, signal.SIGSTOP)
        servers.kill_keeper()
        servers.kill()
    (folder,) = servers.jobs
    saved = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps({**saved, "bootId": "another"}))
    # A restart of the machine ends the process, and so no server looks for it.
    durable_spawner.kill_marked([saved["mark"]])
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        data, answer = await read_all(wire, "a")
        assert (data, answer["exitCode"]) == (b"before\n", None)
        assert answer["lost"] == "machine restarted"
        assert [job["lost"] for job in await jobs_of(wire)] == ["machine restarted"]
        assert await wire.call("job/prune", {"olderThanSeconds": 3600}) == {"removed": 0}
        assert await wire.call("job/prune", {}) == {"removed": 1}
        assert servers.jobs == []
        assert list((servers.state / "sessions").iterdir()) == []


async def test_an_exit_that_was_written_is_not_lost_with_the_keeper(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", ["sh", "-c", "echo out; exit 9"], durable=True)
        await wire.event("a", "process/closed")
        servers.kill_keeper()
        servers.kill()
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        data, answer = await read_all(wire, "a")
        assert (data, answer["exitCode"]) == (b"out\n", 9)
        assert "lost" not in answer


@requirement("durable:damage")
@pytest.mark.parametrize("damage", ["truncate", "garbage", "half-record", "no-index"])
async def test_a_damaged_journal_is_reported_and_the_rest_is_served(servers, damage):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        for name in ("broken", "whole"):
            await wire.start(name, ["sh", "-c", f"echo {name}; exit 3"], durable=True)
            await wire.event(name, "process/closed")
        servers.kill()
    for folder in servers.jobs:
        if json.loads((folder / "job.json").read_text())["processId"] == "broken":
            break
    index = folder / "index"
    size = index.stat().st_size
    if damage == "truncate":
        os.truncate(index, 0)
    elif damage == "half-record":
        os.truncate(index, size - 10)
    elif damage == "no-index":
        index.unlink()
    else:
        index.write_bytes(os.urandom(size))
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        data, answer = await read_all(wire, "whole")
        assert (data, answer["exitCode"]) == (b"whole\n", 3)
        data, answer = await read_all(wire, "broken")
        assert data == b"broken\n"
        assert answer["exitCode"] == 3


@requirement("durable:damage")
async def test_a_job_whose_description_is_damaged_is_ended_and_others_are_served(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", ["sleep", "1000"], durable=True)
        (broken,) = servers.jobs
        await wire.start("b", ["sleep", "1000"], durable=True)
        pids = {job["processId"]: job["pid"] for job in await jobs_of(wire)}
        servers.kill()
    (broken / "job.json").write_text("{")
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        assert [job["processId"] for job in await jobs_of(wire)] == ["b"]
        await until(lambda: not is_running(pids["a"]))
    servers.restart()
    assert broken in servers.jobs
    # As long as other output is kept, this one is kept as well.
    for file in broken.iterdir():
        os.utime(file, (0, 0))
    servers.restart()
    assert broken not in servers.jobs


async def test_a_keeper_that_does_not_answer_fails_the_start(no_leaks, tmp_path, monkeypatch):
    monkeypatch.setattr(durable_spawner, "_HELLO_SECONDS", 0.3)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    # Another process has the lock that a keeper waits for.
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state / "keeper.lock")], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    with holder, holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        async with serve(state_directory=state) as running, Wire(running.url) as wire:
            await wire.initialize()
            refusal = await wire.error("process/start", start_params("a", ["true"], durable=True))
            assert "keeper" in refusal["message"]
            assert list((state / "jobs").iterdir()) == []
        holder.kill()


async def test_a_keeper_that_never_begins_fails_the_start(no_leaks, tmp_path, monkeypatch):
    monkeypatch.setattr(durable_spawner, "_HELLO_SECONDS", 0.3)
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\nexec sleep 60\n")
    interpreter.chmod(0o700)
    async with serve(state_directory=tmp_path / "state") as running, Wire(running.url) as wire:
        await wire.initialize()
        # The usual keeper has begun.
        await wire.run("b", ["true"])
        monkeypatch.setattr(sys, "executable", str(interpreter))
        refusal = await wire.error("process/start", start_params("a", ["true"], durable=True))
        assert "keeper" in refusal["message"]
        assert (await wire.run("c", ["true"])).exit_code == 0


HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""

"""Durable processes outlive the server, and the next server goes on with them at the same byte."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.support.durable import is_running, jobs_of, read_all, state_servers, until
from tests.support.servers import OURS
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

ENDS = [signal.SIGKILL, signal.SIGTERM]
ECHO_ONE_LINE = ["sh", "-c", "echo one; read line; echo $line; exit 7"]


@requirement("durable:outlives")
@pytest.mark.parametrize("signum", ENDS)
async def test_a_durable_process_outlives_its_server(servers, signum):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        started = await wire.start("a", ECHO_ONE_LINE, pipeStdin=True, durable=True)
        assert started["durable"] is True
        await wire.output_until("a", b"one")
        servers.kill(signum)
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        (job,) = await jobs_of(wire)
        assert (job["state"], job["processId"], job["attached"]) == ("running", "a", True)
        assert is_running(job["pid"])
        assert await wire.write("a", b"two\n", "w1") == "accepted"
        data, answer = await read_all(wire, "a")
        assert (data, answer["exitCode"]) == (b"one\ntwo\n", 7)


@requirement("durable:terminal")
@pytest.mark.parametrize("signum", ENDS)
async def test_a_terminal_outlives_its_server(servers, signum):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", ["sh"], tty=True, rows=30, cols=90, durable=True, env={"PS1": "$ "})
        await wire.write("a", b"stty size; echo on''e\n", "w1")
        await wire.output_until("a", b"one")
        servers.kill(signum)
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        await wire.call("process/resize", {"processId": "a", "rows": 40, "cols": 100})
        await wire.write("a", b"stty size; exit 3\n", "w2")
        data, answer = await read_all(wire, "a")
    assert b"30 90" in data and b"40 100" in data
    assert data.count(b"one\r\n") == 1
    assert answer["exitCode"] == 3


@requirement("durable:drained")
async def test_output_while_no_server_is_there_is_drained_and_kept_in_order(servers, tmp_path):
    script = "for i in $(seq 20000); do echo line $i; done; touch $0; exit 5"
    done = tmp_path / "done"
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start(
            "a", ["sh", "-c", f"read go; {script}", str(done)], pipeStdin=True, durable=True
        )
        await wire.write("a", b"go\n", "w1")
        servers.kill()
    # No server reads, and a pipe holds less than all of it.
    await until(done.exists)
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        data, answer = await read_all(wire, "a")
    assert data == b"".join(b"line %d\n" % i for i in range(1, 20001))
    assert answer["exitCode"] == 5


@requirement("durable:exit-kept")
async def test_an_exit_without_a_server_is_kept_and_the_keeper_ends(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start(
            "a",
            ["sh", "-c", "echo err >&2; echo out; read x; kill -9 $$"],
            pipeStdin=True,
            durable=True,
        )
        await wire.output_until("a", b"out")
        keeper = servers.keeper_pid
        servers.kill()
        await wire.closed()
    (folder,) = servers.jobs
    os.kill(
        int(json.loads((folder / "job.json").read_text())["mark"] and pid_of(folder, keeper)),
        signal.SIGKILL,
    )
    await until(lambda: not is_running(keeper), "the keeper has not ended")
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        data, answer = await read_all(wire, "a")
        assert sorted(data.split()) == [b"err", b"out"]
        assert answer["exitCode"] == 128 + signal.SIGKILL
        (job,) = await jobs_of(wire)
        assert job["endedAt"] >= job["startedAt"]


def pid_of(folder: Path, keeper: int) -> int:
    """The only child of the keeper."""
    (pid,) = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    return int(pid)


@requirement("durable:input-once")
async def test_a_repeated_write_is_done_once_across_a_crash(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", ["cat"], pipeStdin=True, durable=True)
        assert await wire.write("a", b"once ", "w1") == "accepted"
        servers.kill()
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        assert await wire.write("a", b"once ", "w1") == "accepted"
        assert await wire.write("a", b"twice", "w2") == "accepted"
        assert (await wire.call("process/closeStdin", {"processId": "a"}))["status"] == "accepted"
        data, answer = await read_all(wire, "a")
    assert (data, answer["exitCode"]) == (b"once twice", 0)


async def test_much_input_reaches_a_slow_reader_whole(servers):
    payload = hashlib.sha256(b"x").digest() * (4 << 15)
    async with Wire(servers.url) as wire:
        await wire.initialize()
        await wire.start("a", ["sh", "-c", "read go; sha256sum"], pipeStdin=True, durable=True)
        ids = []
        for number in range(0, len(payload), 1 << 20):
            chunk = payload[number : number + (1 << 20)]
            params = {
                "processId": "a",
                "chunk": _base64(b"go\n" + chunk if not number else chunk),
                "writeId": f"w{number}",
            }
            ids.append(await wire.request("process/write", params))
        for each in ids:
            assert (await wire.answer(each))["result"]["status"] == "accepted"
        await wire.call("process/closeStdin", {"processId": "a"})
        data, _ = await read_all(wire, "a")
    assert data.split()[0].decode() == hashlib.sha256(payload).hexdigest()


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


@requirement("durable:session")
async def test_the_generation_goes_on_and_the_retention_is_the_longest(servers):
    async with Wire(servers.url) as wire:
        first = await wire.initialize(concurrentRequests=4)
        await wire.start("a", ["sleep", "1000"], durable=True)
        servers.kill()
    servers.start()
    async with Wire(servers.url) as wire:
        second = await wire.initialize(resumeSessionId=first["sessionId"], concurrentRequests=4)
        assert second["generation"] == first["generation"] + 1
        assert second["retainedSeconds"] == 24 * 3600
        servers.kill()
    servers.start()
    async with Wire(servers.url) as wire:
        third = await wire.initialize(resumeSessionId=first["sessionId"], concurrentRequests=4)
        assert third["generation"] == first["generation"] + 2


@requirement("durable:others-end")
async def test_other_processes_end_with_the_server(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("kept", ["sleep", "1000"], durable=True)
        plain = await wire.start("plain", ["sleep", "1000"])
        assert "durable" not in plain
        listed = (await wire.call("process/list"))["processes"]
        pids = {each["processId"]: each["pid"] for each in listed}
        servers.kill()
    await until(lambda: not is_running(pids["plain"]))
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        (listed,) = (await wire.call("process/list"))["processes"]
        assert (listed["processId"], listed["pid"]) == ("kept", pids["kept"])
        assert (listed["durable"], listed["state"]) == (True, "running")
        await wire.call("process/terminate", {"processId": "kept"})
        _, answer = await read_all(wire, "kept")
        assert answer["exitCode"] == 137


async def test_a_signal_reaches_an_adopted_process(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        script = "trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep .05; done"
        await wire.start("a", ["sh", "-c", script], durable=True)
        await wire.output_until("a", b"ready")
        servers.restart()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        await wire.call("process/signal", {"processId": "a", "signal": "TERM"})
        data, answer = await read_all(wire, "a")
    assert data.endswith(b"bye\n")
    assert answer["exitCode"] == 4


@requirement("durable:private")
async def test_the_state_is_private_and_made_with_the_first_durable_process(servers):
    async with Wire(servers.url) as wire:
        await wire.initialize()
        await wire.run("plain", ["true"])
        assert not servers.state.exists()
        await wire.start("a", ["sleep", "1000"], durable=True, env={"SECRET": "xyzzy-token"})
    for folder, _, files in os.walk(servers.state):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        for file in files:
            found = os.lstat(os.path.join(folder, file))
            assert stat.S_IMODE(found.st_mode) == 0o600, file
            if stat.S_ISREG(found.st_mode):
                assert b"xyzzy" not in Path(folder, file).read_bytes()


@requirement("durable:one-owner")
async def test_a_second_server_on_the_same_directory_refuses_to_start(servers, tmp_path):
    async with Wire(servers.url) as wire:
        await wire.initialize()
        await wire.start("a", ["sleep", "1000"], durable=True)
        second = subprocess.run(
            [*OURS, "--listen", "ws://127.0.0.1:0", "--state", str(servers.state)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert second.returncode == 1
        owner = f"is used by another exec-server (pid {servers.server.pid})"
        assert f"the state directory {servers.state} {owner}" in second.stderr
        (job,) = await jobs_of(wire)
        assert job["state"] == "running"


@requirement("durable:one-owner")
async def test_two_servers_that_start_on_a_directory_that_is_not_there_never_both_own_it(tmp_path):
    state = tmp_path / "state"
    with state_servers(state) as first, state_servers(state) as second:
        async with Wire(first.url) as one, Wire(second.url) as two:
            await one.initialize()
            await two.initialize()
            await one.start("a", ["sleep", "1000"], durable=True)
            params = {
                "processId": "b",
                "argv": ["true"],
                "cwd": "file:///",
                "env": {},
                "tty": False,
                "durable": True,
            }
            refusal = await two.error("process/start", params)
            assert "is used by another exec-server" in refusal["message"]
        # Only the first one may end what it has started.
        second._stack.close()
        async with Wire(first.url) as one:
            await one.initialize()
            assert [job["state"] for job in await jobs_of(one)] == ["running"]


@requirement("durable:stop")
async def test_a_server_that_is_asked_to_stop_leaves_its_jobs(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", ["sleep", "1000"], durable=True)
        (job,) = await jobs_of(wire)
        await wire.call("server/stop", {})
        assert servers.server.wait() == 0
    assert is_running(job["pid"])
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        await wire.call("server/stop", {"jobs": True})
        assert servers.server.wait() == 0
    assert not is_running(job["pid"])
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        _, answer = await read_all(wire, "a")
        assert answer["exitCode"] == 128 + signal.SIGTERM


@requirement("durable:stop")
async def test_sigterm_says_that_jobs_go_on(tmp_path):
    state = tmp_path / "state"
    with state_servers(state) as servers:
        process = subprocess.Popen(
            [*OURS, "--listen", "ws://127.0.0.1:0", "--state", str(tmp_path / "other")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        async with Wire(url) as wire:
            await wire.initialize()
            await wire.start("a", ["sleep", "1000"], durable=True)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert f"1 durable job goes on; the next server on {tmp_path / 'other'} adopts it" in errors
        servers.kill()
        servers.state = tmp_path / "other"

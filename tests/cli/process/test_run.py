"""`exec-server run`, from the outside."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from exec_server.client.process.framed_input import HELPER_WORDS
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support import cli
from tests.support.fake_server import Talk, fake_server
from tests.support.leaks import eventually
from tests.support.servers import OURS
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop


running = partial(cli.running, "run")
run = partial(cli.finished, "run")
line, status = cli.line, cli.status


def pending_signals(pid: int) -> int:
    """Those that a process has not noticed yet: two of a kind would be one to it."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith("ShdPnd"))


def sh(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


# Output and status.


@requirement("cli/run:output", "cli/run:status")
async def test_output_and_status_pass_through(server):
    done = await run(server.url, *sh("printf 'o\\377\\000'; echo e >&2; exit 3"))
    assert (done.status, done.stdout, done.stderr) == (3, b"o\xff\0", "e\n")


@requirement("cli/run:status")
@pytest.mark.parametrize(("script", "expected"), [("true", 0), ("kill -TERM $$", 143)])
async def test_the_status_is_the_commands(server, script, expected):
    assert (await run(server.url, *sh(script))).status == expected


@requirement("cli/run:output")
async def test_much_output_is_whole(server):
    done = await run("-n", server.url, "--", "seq", "300000")
    assert done.stdout == "".join(f"{n}\n" for n in range(1, 300_001)).encode()


@requirement("cli/run:output")
async def test_output_goes_to_files_too(server, tmp_path):
    with open(tmp_path / "out", "wb") as file:
        process = await asyncio.create_subprocess_exec(
            *OURS, "run", "-n", server.url, "seq", "1000", stdout=file
        )
        assert await status(process) == 0
    assert (tmp_path / "out").read_text().splitlines() == [str(n) for n in range(1, 1001)]


@requirement("cli/run:output")
async def test_output_is_live(server):
    async with running(server.url, *sh("echo early; read x"), stdin=subprocess.PIPE) as process:
        assert await line(process) == b"early\n"
        assert process.returncode is None


@requirement("cli/run:broken-pipe")
async def test_a_reader_that_has_enough_ends_the_command(server):
    script = f"{' '.join(OURS)} run -n {server.url} -- yes | head -1; echo ${{PIPESTATUS[0]}}"
    process = await asyncio.create_subprocess_exec("bash", "-c", script, stdout=subprocess.PIPE)
    async with asyncio.timeout(PATIENCE):
        stdout, _ = await process.communicate()
    assert stdout == b"y\n141\n"
    await eventually(lambda: not server.core._spawner._live)


# Input.


@requirement("cli/run:stdin")
@pytest.mark.parametrize("size", [0, 10, 1_000_000])
async def test_input_and_its_end_are_forwarded(server, size):
    data = os.urandom(size)
    assert (await run(server.url, "--", "cat", input=data)).stdout == data


@requirement("cli/run:stdin")
async def test_input_comes_from_files_too(server, tmp_path):
    (tmp_path / "in").write_bytes(b"from a file")
    with open(tmp_path / "in", "rb") as file:
        assert (await run(server.url, "--", "cat", stdin=file)).stdout == b"from a file"


@requirement("cli/run:stdin")
async def test_a_command_may_end_before_its_input(server):
    async with running(server.url, "--", "true", stdin=subprocess.PIPE) as process:
        assert await status(process) == 0


@requirement("cli/run:stdin")
async def test_a_server_that_cannot_end_input_gets_a_helper_that_is_mentioned_for_the_curious():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        # It is asked once.
        await talk.refuse(await talk.expect("environment/info"), -32601, "no")
        params = await talk.start()
        assert params["argv"][:2] == ["python3", "-I"] and params["argv"][-1] == "x"
        end = await talk.expect("process/write")
        assert base64.b64decode(end["params"]["chunk"]) == bytes(4)
        await talk.answer(end, {"status": "accepted"})
        process_id = params["processId"]
        await talk.output(process_id, 1, b"fine")
        await talk.event("process/exited", process_id, seq=2, exitCode=0)
        await talk.event("process/closed", process_id, seq=3)
        await talk.gone()

    async with fake_server(script) as url:
        quiet = await run(url, "--", "x")
        curious = await run("--verbose", url, "--", "x")
    assert quiet.status == curious.status == 0
    assert quiet.stdout == b"fine" and quiet.stderr == ""
    assert HELPER_WORDS in curious.stderr


@requirement("cli/run:no-stdin")
async def test_input_can_be_left_alone(server):
    script = f"{{ {' '.join(OURS)} run -n {server.url} -- cat; cat; }}"
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        stdout, _ = await process.communicate(b"for the other")
    assert stdout == b"for the other"


# Signals.


@requirement("cli/run:interrupt")
async def test_an_interrupt_is_passed_on(server):
    script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.01; done"
    async with running(server.url, *sh(script)) as process:
        assert await line(process) == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert await line(process) == b"caught\n"
        assert await status(process) == 9


@requirement("cli/run:interrupt")
async def test_a_second_interrupt_kills(server):
    script = "trap 'echo caught' INT; echo ready; while :; do sleep 0.01; done"
    async with running(server.url, *sh(script)) as process:
        assert await line(process) == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert await line(process) == b"caught\n"
        process.send_signal(signal.SIGINT)
        assert await status(process) == 137


@requirement("cli/run:interrupt")
async def test_a_second_interrupt_leaves_what_has_exited(server, tmp_path):
    # The command is gone; what it left behind holds its output and hears no signal.
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; echo ready; exec sleep 60' & exit 4"
    async with running(server.url, *sh(script)) as process:
        assert await line(process) == b"ready\n"
        [child] = server.core._sessions.values()
        table = child.processes
        await eventually(lambda: all(entry.state == "exited" for entry in table._entries.values()))
        process.send_signal(signal.SIGINT)
        await eventually(lambda: not pending_signals(process.pid))
        process.send_signal(signal.SIGINT)
        assert await status(process) == 4
    # The session has ended with the command, and everything that was started in it.
    left = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}")
    await eventually(lambda: not left.exists())


@requirement("cli/run:terminated")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
async def test_a_terminated_run_kills_its_command(server, signum):
    async with running(server.url, *sh("echo ready; sleep 60")) as process:
        assert await line(process) == b"ready\n"
        process.send_signal(signum)
        assert await status(process) == 128 + signum
    await eventually(lambda: not server.core._spawner._live)


# Options.


@requirement("cli/run:cwd-env")
async def test_where_and_with_what_it_runs(server):
    words = ["--cwd", "/usr", "-e", "A=1", "--env=B=x=y", server.url]
    done = await run(*words, *sh("pwd; echo $A $B; command -v sh"))
    assert done.stdout.startswith(b"/usr\n1 x=y\n/")


@requirement("cli/run:timeout")
async def test_a_slow_command_is_killed(server):
    done = await run("--timeout", "0.3", server.url, *sh("echo begun; sleep 60"))
    assert (done.status, done.stdout) == (124, b"begun\n")
    assert done.stderr == "Error: the command took longer than 0.3 seconds\n"
    await eventually(lambda: not server.core._spawner._live)


@requirement("cli/run:json")
async def test_json_is_one_object_at_the_end(server):
    done = await run("-o", "json", server.url, *sh("echo ä; printf '\\377' >&2; exit 3"))
    assert done.status == 3 and done.stdout.count(b"\n") == 1 and done.stderr == ""
    facts = json.loads(done.stdout)
    assert facts.pop("end")["cause"] == "exited" and facts.pop("usage")["wall"] > 0
    assert facts == {"exitCode": 3, "stdout": "ä\n", "stderrBase64": "/w=="}


@requirement("cli/run:json", "cli/run:timeout")
async def test_json_tells_of_a_timeout(server):
    done = await run("-o", "json", "--timeout=0.2", server.url, *sh("echo so far; sleep 60"))
    assert done.status == 124
    facts = json.loads(done.stdout)
    # It was this program that has asked for the end.
    assert facts.pop("end")["cause"] == "terminated" and facts.pop("usage")["wall"] > 0
    assert facts == {
        "exitCode": 124,
        "timedOut": True,
        "stdout": "so far\n",
        "stderr": "",
    }


@requirement("cli/run:token")
async def test_a_token_is_found_in_three_places(tmp_path):
    check = CapabilityToken(hashlib.sha256(b"secret").digest())
    (tmp_path / "token").write_text("secret\n")
    async with serve(authenticator=check) as server:
        for words, env in [
            (["--token", "secret"], {}),
            (["--token-file", str(tmp_path / "token")], {"EXEC_SERVER_TOKEN": "wrong"}),
            ([], {"EXEC_SERVER_TOKEN": "secret"}),
        ]:
            done = await run(*words, server.url, "true", env={**os.environ, **env})
            assert done.status == 0, done.stderr
        refused = await run("--token=wrong", server.url, "true")
    assert refused.status == 1
    assert refused.stderr.endswith("401 Unauthorized: invalid websocket bearer token\n")

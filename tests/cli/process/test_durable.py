"""Jobs that outlive their server, at the prompt: found, followed and ended from any machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.cli.process.detached.recent_output import RECENT_BYTES
from exec_server.cli.process.detached.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.ps import DetachedProcess
from exec_server.client_urls import connect
from exec_server.protocol.jobs import JobInfo
from tests.requirements import requirement
from tests.support.cli import Cue, Finished, MakeTerminal, finished, line, running, status
from tests.support.durable import StateServers, is_running, state_servers
from tests.support.fake_server import Talk, fake_server
from tests.support.leaks import eventually
from tests.support.wire import PATIENCE

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[StateServers]:
    """Servers at one address, on one state directory."""
    listen = f"unix://{tmp_path / 's.sock'}"
    with state_servers(tmp_path / "durable", "--listen", listen) as made:
        yield made


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """The environment of another machine: nothing was left there."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    return {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home), "CODEX_HOME": str(home)}


async def detach(url: str, script: str, *options: str) -> str:
    done = await finished("run", "--detach", *options, url, "--", "sh", "-c", script)
    assert (done.status, done.stderr) == (0, "")
    return done.stdout.decode().strip()


async def listed(*words: str, **options: Any) -> list[dict[str, Any]]:
    done = await finished("ps", "-o", "json", *words, **options)
    assert done.status == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


async def only(*words: str, **options: Any) -> dict[str, Any]:
    [found] = await listed(*words, **options)
    return found


async def until(url: str, is_so: Callable[[list[dict[str, Any]]], bool]) -> None:
    """Ask a server for its jobs until *is_so* is true of them."""
    async with asyncio.timeout(PATIENCE):
        while not is_so(await listed(url)):
            pass


def said(done: Finished) -> tuple[int, bytes]:
    return done.status, done.stdout


# From another machine.


@requirement("cli/durable:found-elsewhere")
async def test_a_job_is_found_followed_and_ended_without_any_file(servers, cue, elsewhere):
    script = f"echo one; {cue.wait}; echo two; exec sleep 60"
    job = await detach(servers.url, script)
    found = await only(servers.url, env=elsewhere)
    assert (found["id"], found["state"], found["durable"]) == (job, "running", True)
    assert found["argv"] == ["sh", "-c", script]
    assert (found["exitCode"], found["attached"], found["endedAt"]) == (None, False, None)
    assert (await finished("ps", "-q", servers.url, env=elsewhere)).stdout.decode() == f"{job}\n"

    async with running("logs", "-f", servers.url, job, env=elsewhere) as following:
        assert await line(following) == b"one\n"
        assert (await only(servers.url))["viewers"] == 1
        await cue.give()
        assert await line(following) == b"two\n"
        following.send_signal(signal.SIGINT)
        assert await status(following) == 130
    assert said(await finished("logs", servers.url, job, env=elsewhere)) == (0, b"one\ntwo\n")
    # Reading has left nothing there, and attaching leaves the position.
    assert not (Path(elsewhere["HOME"]) / "exec-server" / "sessions").exists()

    assert (await finished("kill", servers.url, job, env=elsewhere)).status == 0
    done = await finished("attach", servers.url, job, env=elsewhere)
    assert said(done) == (143, b"one\ntwo\n")
    # The machine that has started it knows the same.
    assert (await only())["exitCode"] == 143


@requirement("cli/durable:found-elsewhere")
async def test_attaching_elsewhere_continues_where_it_was_left(servers, cue, elsewhere):
    job = await detach(servers.url, f"echo one; {cue.wait}; echo two; exit 5")
    async with running("attach", servers.url, job, env=elsewhere) as first:
        assert await line(first) == b"one\n"
        first.send_signal(signal.SIGINT)
        assert await status(first) == 130
        assert first.stderr is not None
        assert b"exec-server attach" in await first.stderr.read()
    await cue.give()
    assert said(await finished("attach", job, env=elsewhere)) == (5, b"two\n")
    # Here nothing was shown so far.
    assert said(await finished("attach", servers.url, job)) == (5, b"one\ntwo\n")


@requirement("cli/durable:recent")
async def test_attaching_elsewhere_shows_the_newest_output_and_says_what_it_leaves_out(
    servers, cue, elsewhere
):
    lines = b"".join(b"%d\n" % number for number in range(1, 400_001))
    job = await detach(servers.url, f"seq 400000; {cue.wait}; echo last; exit 5")
    async with asyncio.timeout(PATIENCE), connect(servers.url) as client:
        while (await client.jobs())[0].output_bytes != len(lines):
            pass
    async with running("attach", servers.url, job, env=elsewhere) as attached:
        assert attached.stdout is not None and attached.stderr is not None
        notice = (await attached.stderr.readline()).decode()
        await cue.give()
        shown = await attached.stdout.read()
        assert await status(attached) == 5
    left = len(lines) + len(b"last\n") - len(shown)
    # One event at the most is shown beyond the recent output.
    assert lines.endswith(shown.removesuffix(b"last\n"))
    assert RECENT_BYTES <= len(shown) <= 2 * RECENT_BYTES + len(b"last\n")
    assert f"{left} bytes of earlier output is left out" in notice
    assert f"exec-server logs {servers.url} {job}" in notice
    # What has ended is shown in the same way, and short output completely.
    ended = await finished("attach", servers.url, job, env=elsewhere)
    assert (ended.status, lines.endswith(ended.stdout.removesuffix(b"last\n"))) == (5, True)


@requirement("cli/durable:found-elsewhere")
async def test_jobs_are_named_by_how_they_begin(servers, elsewhere):
    job = await detach(servers.url, "echo said")
    done = await finished("logs", servers.url, job[:3], env=elsewhere)
    assert said(done) == (0, b"said\n")
    done = await finished("logs", servers.url, "nope", env=elsewhere)
    assert done.status == 1
    assert f"there is no job `nope` on {servers.url}; see `exec-server ps" in done.stderr
    done = await finished("logs", job, env=elsewhere)
    assert done.status == 1 and "exec-server ps SERVER" in done.stderr


@requirement("cli/durable:found-elsewhere")
@pytest.mark.parametrize("command", ["attach", "logs", "kill"])
async def test_words_that_name_no_job_are_a_usage_error(command):
    done = await finished(command, "ws://127.0.0.1:1")
    assert done.status == 2 and "exec-server ps ws://127.0.0.1:1" in done.stderr
    assert (await finished(command)).status == 2
    if command != "kill":
        assert (await finished(command, "box", "a", "b")).status == 2
        assert (await finished(command, "no server", "a")).status == 2


@requirement("cli/durable:found-elsewhere")
async def test_kill_tells_a_server_from_an_id(servers, home):
    toml = f'[[environments]]\nid = "box"\nurl = "{servers.url}"\n'
    (home / "codex" / "environments.toml").write_text(toml.replace("unix://", "ws://"))
    ids = [await detach(servers.url, "exec sleep 60") for _ in range(2)]
    done = await finished("kill", "-o", "json", *ids)
    assert {each["id"] for each in json.loads(done.stdout)} == set(ids)


@requirement("cli/durable:force")
async def test_a_job_can_be_taken_from_a_program_on_another_machine(servers, cue, elsewhere):
    job = await detach(servers.url, f"echo one; {cue.wait}; echo two; exec sleep 60")
    async with running("attach", servers.url, job, env=elsewhere) as first:
        assert await line(first) == b"one\n"
        assert (await only(servers.url))["attached"]
        async with running("attach", "--force", job) as second:
            assert await line(second) == b"one\n"
            await cue.give()
            assert await line(second) == b"two\n"
            # The other program does not fight for it.
            assert await status(first) == 1
            assert first.stderr is not None
            assert b"another client has taken the session over" in await first.stderr.read()
            second.send_signal(signal.SIGINT)
            assert await status(second) == 130


@requirement("cli/durable:force")
async def test_a_program_on_another_machine_goes_on_after_a_forced_signal(servers, elsewhere):
    script = "trap 'echo told; exit 3' USR1; echo one; while :; do sleep .05; done"
    job = await detach(servers.url, script)
    async with running("attach", servers.url, job, env=elsewhere) as first:
        assert await line(first) == b"one\n"
        done = await finished("kill", "--force", "-s", "USR1", job)
        assert (done.status, done.stderr) == (0, "")
        assert await line(first) == b"told\n"
        assert await status(first) == 3


@requirement("cli/ps:states")
@pytest.mark.parametrize("seconds", [None, 5.0])
def test_the_age_of_a_job_is_the_time_that_it_has_taken(seconds):
    started = int(time.time() * 1000) - 3_600_000
    ended = None if seconds is None else started + int(seconds * 1000)
    job = JobInfo(
        session_id="s",
        process_id="p",
        argv=["x"],
        cwd="file:///",
        tty=False,
        state="running",
        exit_code=None,
        lost=None,
        pid=None,
        started_at=started,
        ended_at=ended,
        next_seq=1,
        attached=False,
    )
    record = SavedSession(
        id="p",
        server="ws://h",
        session_token="",
        process_id="p",
        argv=["x"],
        started_at=started / 1000,
    )
    age = DetachedProcess(session=record, state="running", job=job).row[3]
    assert age == "0:05" if seconds else age.startswith("1:0")


# When the server is replaced.


@requirement("cli/durable:next-server")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
async def test_a_job_goes_on_at_the_same_byte(servers, cue, tmp_path, signum):
    later = Cue(tmp_path / "later")
    script = f"echo one; {cue.wait}; echo two; {later.wait}; echo three; exit 7"
    job = await detach(servers.url, script)
    async with running("attach", "-v", job) as attached:
        assert await line(attached) == b"one\n"
        servers.kill(signum)
        # It goes on while no server is there.
        await cue.give()
        servers.start()
        assert await line(attached) == b"two\n"
        await later.give()
        assert await line(attached) == b"three\n"
        assert await status(attached) == 7
        assert attached.stderr is not None
        told = await attached.stderr.read()
    assert told == b"[connection lost, reconnecting...]\n[reconnected]\n"
    found = await only(servers.url)
    assert (found["state"], found["exitCode"]) == ("exited", 7)
    assert found["endedAt"] is not None


@requirement("cli/durable:next-server")
async def test_while_no_server_is_there_it_is_unreachable_and_then_itself_again(servers):
    job = await detach(servers.url, "exec sleep 60")
    servers.kill()
    assert (await only())["state"] == "unreachable"
    done = await finished("ps", servers.url)
    assert done.status == 1 and job in done.stdout.decode()
    servers.start()
    assert (await only())["state"] == "running"


@requirement("cli/durable:next-server")
async def test_what_is_not_durable_ends_with_the_server(servers):
    job = await detach(servers.url, "exec sleep 60", "--not-durable")
    found = await only(servers.url)
    assert (found["id"], found["state"], "durable" in found) == (job, "running", False)
    servers.restart()
    assert (await only())["state"] == "unknown here"


@requirement("cli/durable:shell")
async def test_a_shell_goes_on_after_its_server_was_killed(servers, terminal: MakeTerminal):
    screen = terminal("shell", servers.url, "--", "sh", "-c", "PS1='$ ' exec sh -i")
    await screen.until(b"$ ")
    screen.type(b"a=kept; echo be''gun\r")
    await screen.until(b"begun\r\n")
    servers.kill()
    await screen.until(b"[connection lost, reconnecting...]")
    servers.start()
    await screen.until(b"[reconnected]")
    screen.type(b"echo $a:$((6*7))\r")
    await screen.until(b"kept:42\r\n")
    screen.type(b"exit 3\r")
    assert await screen.status() == 3
    # Nothing of it is left.
    assert await listed(servers.url) == []
    assert servers.jobs == []


@requirement("cli/durable:shell")
async def test_a_detached_shell_is_durable(servers, terminal: MakeTerminal, elsewhere):
    screen = terminal("shell", servers.url, "--", "sh", "-c", "echo ready; read x; echo got:$x")
    await screen.until(b"ready\r\n")
    screen.type(b"~d")
    await screen.until(b"come back with: exec-server attach ")
    assert await screen.status() == 0
    assert b"it ends if the server" not in screen.all
    servers.restart()
    found = await only(servers.url, env=elsewhere)
    assert (found["state"], found["tty"]) == ("running", True)
    again = terminal("attach", servers.url, found["id"], env=elsewhere)
    await again.until(b"ready")
    again.type(b"word\r")
    await again.until(b"got:word\r\n")
    assert await again.status() == 0


WAITS_FOR_WORD = ["--", "sh", "-c", "echo ready; read x; echo got:$x"]


@requirement("cli/durable:shell-away")
async def test_a_durable_shell_is_detached_while_its_server_is_away(
    servers, terminal: MakeTerminal
):
    screen = terminal("shell", servers.url, *WAITS_FOR_WORD)
    await screen.until(b"ready\r\n")
    servers.kill()
    await screen.until(b"[connection lost, reconnecting...]")
    screen.type(b"~d")
    await screen.until(b"come back with: exec-server attach ")
    assert await screen.status() == 0
    assert screen.attributes == screen.before
    servers.start()
    again = terminal("attach", (await only())["id"])
    await again.until(b"ready")
    again.type(b"word\r")
    await again.until(b"got:word\r\n")


@requirement("cli/durable:shell-away")
async def test_a_durable_shell_that_cannot_be_ended_is_not_forgotten(
    servers, terminal: MakeTerminal
):
    screen = terminal("shell", servers.url, *WAITS_FOR_WORD)
    await screen.until(b"ready\r\n")
    servers.kill()
    await screen.until(b"[connection lost, reconnecting...]")
    screen.type(b"~.")
    await screen.until(b"the shell may run on")
    assert await screen.status() == 129
    servers.start()
    found = await only()
    assert found["state"] == "running"
    assert f"exec-server kill -s HUP {found['id']}".encode() in screen.all


# Lost.


@requirement("cli/durable:lost")
async def test_a_job_whose_keeper_was_killed_is_lost_and_no_status_is_invented(servers):
    job = await detach(servers.url, "echo so far; exec sleep 60")
    async with running("logs", "-f", job) as following:
        assert await line(following) == b"so far\n"
        following.send_signal(signal.SIGINT)
        await status(following)
    servers.kill_keeper()
    await eventually(lambda: not is_running(servers.keeper_pid))

    await until(servers.url, lambda jobs: jobs[0]["state"] != "running")
    for words in ([], [servers.url]):
        found = await only(*words)
        assert (found["state"], found["exitCode"]) == ("lost", None)
        assert "keeper" in found["lost"]
    assert f"lost ({found['lost']})" in (await finished("ps")).stdout.decode()

    done = await finished("logs", "-o", "json", job)
    facts = json.loads(done.stdout)
    assert (done.status, facts["exited"], facts["exitCode"]) == (0, True, None)
    assert (facts["lost"], facts["stdout"]) == (found["lost"], "so far\n")
    for words in (["logs", job], ["logs", "-f", job]):
        done = await finished(*words)
        assert said(done) == (0, b"so far\n")
        assert f"[lost ({found['lost']}): the exit status is unknown]\n" in done.stderr
    done = await finished("attach", job)
    assert said(done) == (125, b"so far\n")
    assert f"the exit status is unknown: {found['lost']}" in done.stderr
    done = await finished("attach", job)
    assert said(done) == (125, b"") and f"it is lost ({found['lost']})" in done.stderr


@requirement("cli/durable:lost")
async def test_run_tells_a_lost_command_as_json(servers, tmp_path):
    os.mkfifo(tmp_path / "ready")
    # Input comes only after the answer to the start.
    script = f"read x; echo so far; echo > {tmp_path / 'ready'}; exec sleep 60"
    words = ["run", "-o", "json", servers.url, "--", "sh", "-c", script]
    async with running(*words, stdin=asyncio.subprocess.PIPE) as command:
        assert command.stdin is not None
        command.stdin.write(b"\n")
        ready = os.open(tmp_path / "ready", os.O_RDONLY | os.O_NONBLOCK)
        await eventually(lambda: _read(ready) == b"\n")
        os.close(ready)
        [keeper] = [pid for pid in _children(servers.server.pid) if _is_keeper(pid)]
        os.kill(keeper, signal.SIGKILL)
        assert await status(command) == 125
        assert command.stdout is not None
        facts = json.loads(await command.stdout.read())
    assert (facts["exitCode"], facts["stdout"]) == (None, "so far\n")
    assert "the process keeper died" in facts["lost"]


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 10)
    except BlockingIOError:
        return b""


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_keeper(pid: int) -> bool:
    return b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


# Forgetting and stopping.


@requirement("cli/durable:prune")
async def test_what_is_over_can_be_forgotten(servers, elsewhere):
    done, also, still = [
        await detach(servers.url, script) for script in ("exit 1", "exit 2", "exec sleep 60")
    ]
    await until(servers.url, lambda jobs: [each["exitCode"] for each in jobs] == [1, 2, None])
    refused = await finished("jobs", "prune", servers.url, still)
    assert refused.status == 1 and f"`{still}` still runs" in refused.stderr
    pruned = await finished("jobs", "prune", servers.url, "--older-than", "1h")
    assert said(pruned) == (0, b"0 jobs forgotten\n")
    pruned = await finished("jobs", "prune", servers.url, done, env=elsewhere)
    assert said(pruned) == (0, b"1 job forgotten\n")
    # The record stays on the machine that did not ask for it.
    states = {each["id"]: each["state"] for each in await listed()}
    assert states == {done: "expired", also: "exited", still: "running"}
    pruned = await finished("jobs", "prune", "-o", "json", servers.url)
    assert json.loads(pruned.stdout) == {"removed": 1}
    assert {each.id for each in SessionStore().all()} == {done, still}
    assert [each["id"] for each in await listed(servers.url, env=elsewhere)] == [still]


@requirement("cli/durable:prune")
async def test_a_server_without_a_directory_has_nothing_to_forget(server):
    done = await finished("jobs", "prune", server.url)
    assert done.status == 1 and "it has no state directory" in done.stderr
    for words in ([], ["prune"], ["list", server.url], ["prune", "no server"]):
        assert (await finished("jobs", *words)).status == 2


@requirement("cli/durable:stop")
@pytest.mark.parametrize("ends_jobs", [False, True])
async def test_a_server_can_be_stopped_with_or_without_its_jobs(servers, tmp_path, ends_jobs):
    trap = f"trap 'echo ended > {tmp_path / 'ended'}; exit' TERM"
    job = await detach(servers.url, f"{trap}; echo ready; while :; do sleep 0.05; done")
    async with running("logs", "-f", job) as following:
        assert await line(following) == b"ready\n"
    options = ["--jobs"] if ends_jobs else []
    done = await finished("stop", *options, servers.url)
    text = b"1 durable job was ended" if ends_jobs else b"1 durable job runs on"
    assert said(done) == (0, b"stopped; %b\n" % text)
    assert servers.server.wait() == 0
    assert (tmp_path / "ended").exists() == ends_jobs
    servers.start()
    assert (await only(servers.url))["state"] == ("exited" if ends_jobs else "running")


@requirement("cli/durable:stop")
async def test_what_cannot_be_stopped_is_told(server, servers):
    done = await finished("stop", server.url)
    assert done.status == 1 and "is a part of another program" in done.stderr
    assert (await finished("stop", "ws://127.0.0.1:1")).status == 1
    assert (await finished("stop")).status == 2
    assert (await finished("stop", "stdio:cat")).status == 1
    done = await finished("stop", "-o", "json", servers.url)
    assert json.loads(done.stdout) == {"stopped": True, "jobsRunning": 0}


@requirement("cli/durable:stop")
async def test_a_server_that_is_lost_before_it_was_asked_to_stop_is_told():
    async def script(talk: Talk) -> None:
        # A server without sessions, so that the client does not come back.
        await talk.shake_hands({})
        await talk.receive()

    async with fake_server(script) as url:
        done = await finished("stop", url)
    assert done.status == 1 and done.stdout == b""
    assert done.stderr.startswith("Error: ") and "Traceback" not in done.stderr


@requirement("cli/durable:next-server")
async def test_a_command_that_ended_with_its_server_is_told_so(servers):
    async with running("run", servers.url, "--", "sh", "-c", "echo begun; sleep 60") as command:
        assert await line(command) == b"begun\n"
        servers.restart()
        assert await status(command) == 1
        assert command.stderr is not None
        told = (await command.stderr.read()).decode()
    assert told.startswith("Error: the server was restarted, or the connection was away")
    assert told.count("\n") == 1


# Output that no one reads.


@requirement("durable:window-ends")
async def test_a_detached_job_does_not_wait_for_a_reader(servers):
    # It is much more than the window of a client.
    await detach(servers.url, "head -c 20000000 /dev/zero; exit 7")
    await until(servers.url, lambda jobs: jobs[0]["state"] == "exited")
    assert (await only(servers.url))["exitCode"] == 7


@requirement("durable:window-ends")
async def test_a_detached_job_does_not_wait_for_a_server(servers, cue):
    await detach(servers.url, f"{cue.wait}; head -c 20000000 /dev/zero")
    keeper = servers.keeper_pid
    servers.kill()
    await cue.give()
    await eventually(lambda: not is_running(keeper), "the keeper has not ended")
    (folder,) = servers.jobs
    assert (folder / "stdout").stat().st_size == 20_000_000

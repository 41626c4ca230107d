"""`run --detach`, and the commands that find it again: `ps`, `attach`, `logs`, `kill`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from exec_server.cli.process.detached.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.detached.session_holder import find_holder
from exec_server.client.session_token import SessionToken
from exec_server.errors import ConfigurationError
from exec_server.process.child import Child
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import RunningServer, serve
from tests.requirements import requirement
from tests.support.cli import Cue, MakeTerminal, finished, line, running, status
from tests.support.fault_proxy import fault_proxy
from tests.support.leaks import eventually
from tests.support.local import server_with
from tests.support.servers import OURS

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]


async def detach(url: str, script: str, *options: str) -> str:
    done = await finished("run", "--detach", *options, url, "--", "sh", "-c", script)
    assert (done.status, done.stderr) == (0, "")
    return done.stdout.decode().strip()


def saved(session_id: str) -> SavedSession:
    return SessionStore().find(session_id)


async def states(*words: str) -> dict[str, str]:
    done = await finished("ps", "-o", "json", *words)
    assert done.status == 0, done.stderr
    return {each["id"]: each["state"] for each in json.loads(done.stdout)}


def process_of(server: RunningServer, session_id: str) -> Child:
    """The only process with its id; those who look on have sessions of their own."""
    process_id = saved(session_id).process_id
    found = [session.processes.get(process_id) for session in server.core.sessions]
    [child] = [each for each in found if each is not None]
    return child


async def ended(server: RunningServer, session_id: str) -> None:
    child = process_of(server, session_id)
    await eventually(lambda: child.state == "closed")


# From beginning to end.


@requirement("cli/detach:id", "cli/attach:exact-byte", "cli/ps:states")
async def test_one_can_come_back_again_and_again(server, cue, tmp_path):
    later = Cue(tmp_path / "later")
    script = f"echo one; echo err >&2; {cue.wait}; echo two; {later.wait}; echo three; exit 5"
    session_id = await detach(server.url, script)
    assert len(session_id) == 8
    assert await states() == {session_id: "running"}

    async with running("attach", session_id) as first:
        assert await line(first) == b"one\n"
        await cue.give()
        assert await line(first) == b"two\n"
        first.send_signal(signal.SIGINT)
        assert await status(first) == 130
        assert first.stderr is not None
        told = (await first.stderr.read()).decode()
    assert told == f"err\n[detached; come back with: exec-server attach {session_id}]\n"

    await later.give()
    second = await finished("attach", session_id)
    assert (second.status, second.stdout, second.stderr) == (5, b"three\n", "")
    assert await states() == {session_id: "exited"}

    third = await finished("attach", session_id)
    assert (third.status, third.stdout) == (5, b"")
    assert f"exec-server logs {session_id}" in third.stderr


@requirement("cli/detach:id")
async def test_it_runs_on_with_its_environment(server, cue, tmp_path):
    script = f"{cue.wait}; pwd; echo $A"
    session_id = await detach(server.url, script, "--cwd", "/usr", "-e", "A=b")
    await cue.give()
    await ended(server, session_id)
    assert (await finished("logs", session_id)).stdout == b"/usr\nb\n"


@requirement("cli/detach:id")
async def test_the_id_comes_as_json_too(server):
    done = await finished("run", "-d", "-o", "json", "--keep", "60", server.url, "sleep", "60")
    facts = json.loads(done.stdout)
    assert facts["argv"] == ["sleep", "60"] and facts["keptSeconds"] == 60
    assert facts.keys() == {"id", "server", "argv", "tty", "startedAt", "keptSeconds"}
    assert saved(facts["id"]).session_token not in done.stdout.decode()


@requirement("cli/detach:not-durable")
async def test_a_person_is_told_of_a_process_that_is_not_durable(server, terminal: MakeTerminal):
    screen = terminal("run", "--detach", server.url, "--", "sleep", "60")
    await screen.until(b"[this server keeps no durable jobs: it ends if the server stops")
    assert await screen.status() == 0
    quiet = await finished("run", "--detach", server.url, "--", "sleep", "60")
    assert (quiet.status, quiet.stderr) == (0, "")
    chosen = terminal("run", "--detach", "--not-durable", server.url, "--", "sleep", "60")
    assert await chosen.status() == 0
    assert b"durable" not in chosen.all


@requirement("cli/detach:id")
async def test_a_detached_terminal_can_be_attached_to(server, terminal: MakeTerminal):
    session_id = await detach(server.url, "stty size; read x; echo got:$x; stty size", "--tty")
    screen = terminal("attach", session_id, rows=44, cols=55)
    await screen.until(b"24 80")
    assert screen.is_raw
    screen.type(b"word\r")
    await screen.until(b"got:word\r\n44 55\r\n")
    assert await screen.status() == 0


@requirement("cli/detach:id")
async def test_what_cannot_be_started_is_not_remembered(server):
    done = await finished("run", "--detach", server.url, "no-such-command")
    assert (done.status, done.stdout) == (127, b"")
    assert SessionStore().all() == []


@requirement("cli/detach:no-record")
@pytest.mark.parametrize("what", ["a file", "full", "missing"])
async def test_nothing_runs_if_the_record_cannot_be_saved(server, home, what, tmp_path):
    place = tmp_path / "place"
    options: dict[str, Any] = {}
    if what == "a file":
        place.touch()
    elif what == "full":
        # No file of this program can grow, as on a full disk.
        options["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    else:
        place = Path("/proc/self/no-such-place")
    env = {**os.environ, "XDG_STATE_HOME": str(place)}
    words = ["--", "touch", str(tmp_path / "ran")]
    done = await finished("run", "--detach", server.url, *words, env=env, **options)
    assert (done.status, done.stdout) == (1, b"")
    where = place / "exec-server" / "sessions"
    assert done.stderr.startswith("Error: cannot ") and f"`{where}`: " in done.stderr
    assert done.stderr.count("\n") == 1
    assert not server.core._sessions or not process_count(server)
    assert not (tmp_path / "ran").exists()


def process_count(server: RunningServer) -> int:
    return sum(len(session.processes._entries) for session in server.core._sessions.values())


@requirement("cli/detach:refused")
async def test_what_would_end_with_the_command_is_refused():
    done = await finished("run", "--detach", f"stdio:{' '.join(OURS)} --listen stdio", "true")
    assert done.status == 1 and "no process can be detached from it" in done.stderr


@requirement("cli/detach:id")
@pytest.mark.parametrize(
    "words", [["--detach", "--timeout", "1"], ["--keep", "1"], ["--keep", "x", "-d"]]
)
async def test_options_that_make_no_sense_are_refused(words):
    assert (await finished("run", *words, "ws://h", "x")).status == 2


@requirement("cli/detach:reference")
async def test_a_server_that_cannot_be_asked_is_told_of(reference):
    done = await finished("run", "--detach", reference.url, "sh", "-c", "echo said; sleep 60")
    assert done.status == 0
    assert "it may end after 30 seconds detached" in done.stderr
    session_id = done.stdout.decode().strip()
    async with running("logs", "-f", session_id) as following:
        assert await line(following) == b"said\n"
        following.send_signal(signal.SIGINT)
        assert await status(following) == 130
    assert await states() == {session_id: "running"}
    refused = await finished("kill", session_id)
    assert refused.status == 1 and "cannot send SIGTERM" in refused.stderr
    assert (await finished("kill", "-s", "KILL", session_id)).status == 0
    assert (await finished("attach", session_id)).stdout == b"said\n"


@requirement("cli/detach:id")
async def test_a_server_that_keeps_it_less_long_is_told_of():
    async with server_with(max_detached_session_seconds=40.0) as server:
        done = await finished("run", "--detach", server.url, "sleep", "60")
        assert done.stderr == "[this server keeps it for 40 seconds while it is detached]\n"


# The records.


@requirement("cli/detach:private")
async def test_what_is_remembered_is_private(server, home):
    session_id = await detach(server.url, "sleep 60")
    directory = home / "state" / "exec-server" / "sessions"
    [file] = directory.iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert saved(session_id).session_token not in repr(saved(session_id))
    assert (
        saved(session_id).session_token not in (await finished("ps", "-o", "json")).stdout.decode()
    )


@requirement("cli/detach:private")
async def test_a_place_that_others_can_enter_is_refused(server, home):
    directory = home / "state" / "exec-server" / "sessions"
    directory.mkdir(parents=True)
    directory.chmod(0o750)
    done = await finished("run", "--detach", server.url, "sleep", "60")
    assert done.status == 1 and "chmod 700" in done.stderr
    assert not list(directory.iterdir())
    assert (await finished("ps")).status == 1


def record(session_id: str, started_at: float = 0.0) -> SavedSession:
    return SavedSession(
        id=session_id,
        server="ws://127.0.0.1:1",
        session_token=str(SessionToken("s", {})),
        process_id="p",
        argv=["x"],
        started_at=started_at,
    )


@requirement("cli/detach:id")
def test_an_id_is_found_by_how_it_begins():
    store = SessionStore()
    for session_id in ("abc1", "abc2", "abc", "f"):
        store.save(record(session_id))
    assert store.find("abc").id == "abc"
    assert store.find("abc2").id == "abc2"
    for text in ("ab", "", "x", "../abc", "f/"):
        with pytest.raises(ConfigurationError):
            store.find(text)
    assert store.free_id("abcdef01-2345") == "abcdef01"
    store.save(record("abcdef01"))
    assert store.free_id("abcdef01-2345") == "abcdef01-"


def test_records_that_cannot_be_read_are_left_out(home, caplog):
    store = SessionStore()
    store.save(record("b", 2.0))
    store.save(record("a", 3.0))
    (home / "state/exec-server/sessions/c.json").write_text("{}")
    assert [session.id for session in store.all()] == ["b", "a"]
    store.remove("a")
    store.remove("a")
    assert [session.id for session in store.all()] == ["b"]


@requirement("cli/detach:private")
async def test_a_bearer_token_is_not_remembered_but_its_file_is(tmp_path, home):
    check = CapabilityToken(hashlib.sha256(b"open-sesame").digest())
    (tmp_path / "token").write_text("open-sesame")
    async with serve(authenticator=check) as server:
        words = ["run", "--detach", "--token-file", "token", server.url, "sleep", "60"]
        by_file = (await finished(*words, cwd=tmp_path)).stdout.decode().strip()
        assert await states() == {by_file: "running"}
        words = ["run", "--detach", "--token", "open-sesame", server.url, "sleep", "60"]
        by_word = (await finished(*words)).stdout.decode().strip()
        assert await states() == {by_file: "running", by_word: "refused"}
        assert (await states("--token", "open-sesame"))[by_word] == "running"
    for file in (home / "state" / "exec-server" / "sessions").iterdir():
        assert "open-sesame" not in file.read_text()


# Where it cannot be had.


@requirement("cli/attach:elsewhere", "cli/ps:states")
async def test_what_is_attached_elsewhere_is_told(server):
    session_id = await detach(server.url, "echo begun; sleep 60")
    async with running("attach", session_id) as holder:
        assert await line(holder) == b"begun\n"
        assert await states() == {session_id: "attached"}
        done = await finished("attach", session_id)
        assert done.status == 1 and f"`{session_id}` is attached elsewhere" in done.stderr
        # These do not take it from there.
        assert (await finished("logs", session_id)).stdout == b"begun\n"
        assert (await finished("kill", session_id)).status == 0
        assert await status(holder) == 128 + signal.SIGTERM


@requirement("cli/attach:elsewhere")
async def test_the_program_that_follows_a_process_is_named_and_can_be_ended(server):
    script = "trap 'exit 3' TERM; echo begun; while :; do sleep 0.01; done"
    session_id = await detach(server.url, script)
    async with running("attach", session_id) as holder:
        assert await line(holder) == b"begun\n"
        done = await finished("attach", session_id)
        assert done.status == 1
        text = f"`exec-server attach {session_id}` follows it (process {holder.pid} "
        assert text in done.stderr
        assert "--force" in done.stderr
        done = await finished("kill", "--force", session_id)
        assert (done.status, done.stderr) == (0, "")
        assert await status(holder) == 128 + signal.SIGTERM
    done = await finished("attach", session_id)
    assert done.status == 3


@requirement("cli/attach:elsewhere")
async def test_the_note_of_a_program_that_was_killed_is_ignored(server):
    session_id = await detach(server.url, "echo begun; read x; sleep 60")
    async with running("attach", session_id) as holder:
        assert await line(holder) == b"begun\n"
        assert find_holder(session_id) is not None
        holder.kill()
        await holder.wait()
    assert find_holder(session_id) is None
    done = await finished("logs", session_id)
    assert (done.status, done.stdout) == (0, b"begun\n")


def _move(home: Path, session_id: str, url: str) -> None:
    """Make the record lead to another server, as when that one has taken a name over."""
    record = home / "state" / "exec-server" / "sessions" / f"{session_id}.json"
    facts = json.loads(record.read_text())
    record.write_text(json.dumps({**facts, "server": url}))


@requirement("cli/ps:unknown-here")
async def test_another_server_does_not_make_ps_forget_a_process(server, home):
    session_id = await detach(server.url, "sleep 60")
    async with server_with() as other:
        _move(home, session_id, other.url)
        assert await states() == {session_id: "unknown here"}
        for words in (["attach"], ["logs"], ["kill"]):
            done = await finished(*words, session_id)
            assert done.status == 1
            assert f"the server that answers now does not know `{session_id}`" in done.stderr
        # The first server still has it.
        _move(home, session_id, server.url)
        assert await states() == {session_id: "running"}
        _move(home, session_id, other.url)
        assert await states("--prune") == {session_id: "unknown here"}
        assert await states() == {}


@requirement("cli/ps:unknown-here")
async def test_a_restarted_server_is_not_an_expiry(home):
    async with server_with() as first:
        session_id = await detach(first.url, "sleep 60")
    async with server_with() as second:
        _move(home, session_id, second.url)
        assert await states() == {session_id: "unknown here"}
    assert await states() == {session_id: "unreachable"}
    assert (await finished("ps", "--forget", session_id)).status == 0
    assert await states() == {}
    assert (await finished("ps", "--forget", session_id)).status == 1


@requirement("cli/attach:expired", "cli/ps:states", "cli/ps:unknown-here")
async def test_what_has_expired_is_told_and_stays_on_record(home):
    limits = {"detached_session_seconds": 0.01, "max_detached_session_seconds": 0.01}
    async with server_with(**limits) as server:
        done = await finished("run", "--detach", server.url, "sleep", "60")
        await eventually(lambda: not server.core._sessions)
        session_id = done.stdout.decode().strip()
        for words in (["attach"], ["logs"], ["kill"]):
            expired = await finished(*words, session_id)
            assert expired.status == 1
            assert expired.stderr == (
                f"Error: `{session_id}` has expired: its server no longer has it; remove the "
                f"record with `exec-server ps --forget {session_id}`\n"
            )
        assert await states() == {session_id: "expired"}
        assert await states("--prune") == {session_id: "expired"}
        assert await states() == {}


@requirement("cli/ps:states")
async def test_a_server_that_is_gone_is_told():
    SessionStore().save(record("abc"))
    done = await finished("ps")
    assert done.status == 0
    head, row = done.stdout.decode().splitlines()
    assert head.split() == ["ID", "SERVER", "STATE", "AGE", "COMMAND"]
    assert row.split()[:3] == ["abc", "ws://127.0.0.1:1", "unreachable"]
    assert (await finished("ps", "ws://127.0.0.1:2")).stdout == b""
    assert (await finished("ps", "-q", "ws://127.0.0.1:1")).stdout == b"abc\n"
    assert (await finished("attach", "abc")).status == 1


# logs


@requirement("cli/logs:retained")
async def test_logs_leave_attach_where_it_was(server, cue):
    session_id = await detach(server.url, f"echo one; echo err >&2; {cue.wait}; echo two")
    for _ in range(2):
        done = await finished("logs", session_id)
        assert (done.status, done.stdout, done.stderr) == (0, b"one\n", "err\n")
    await cue.give()
    assert (await finished("attach", session_id)).stdout == b"one\ntwo\n"
    done = await finished("logs", "-o", "json", session_id)
    facts = json.loads(done.stdout)
    assert facts.pop("end")["cause"] == "exited" and facts.pop("usage")["wall"] > 0
    assert facts == {
        "id": session_id,
        "exited": True,
        "exitCode": 0,
        "droppedBytes": 0,
        "stdout": "one\ntwo\n",
        "stderr": "err\n",
    }


@requirement("cli/logs:retained")
@pytest.mark.parametrize("words", [[], ["-f"]])
async def test_what_was_lost_is_told(words, cue):
    async with server_with(retained_bytes=10) as server:
        session_id = await detach(server.url, f"echo 123456; {cue.wait}; echo abcdef")
        child = process_of(server, session_id)
        await eventually(lambda: child.log.next_seq == 2)
        await cue.give()
        await eventually(lambda: child.state == "closed")
        done = await finished("logs", *words, session_id)
        assert done.stdout == b"abcdef\n"
        assert done.stderr == "[7 bytes before this could not be retained]\n"


@requirement("cli/logs:follow", "cli/notices")
async def test_logs_follow_through_cuts_to_the_end(server, cue):
    async with fault_proxy(server.url) as proxy:
        session_id = await detach(proxy.url, f"echo one; {cue.wait}; echo two; exit 3")
        async with running("logs", "-f", "-v", session_id) as following:
            assert await line(following) == b"one\n"
            proxy.cut()
            await cue.give()
            assert await line(following) == b"two\n"
            assert await status(following) == 0
            assert following.stderr is not None
            told = await following.stderr.read()
    assert told == b"[connection lost, reconnecting...]\n[reconnected]\n"


@requirement("cli/logs:follow")
async def test_following_is_not_for_json():
    assert (await finished("logs", "-f", "-o", "json", "abc")).status == 2


# kill


@requirement("cli/kill:signal")
async def test_signals_are_sent(server):
    traps = "trap 'echo usr1' USR1; trap 'echo term; exit 8' TERM"
    script = f"{traps}; echo ready; while :; do sleep 0.01; done"
    session_id = await detach(server.url, script)
    async with running("attach", session_id) as first:
        assert await line(first) == b"ready\n"
        first.send_signal(signal.SIGINT)
        assert await status(first) == 130
    for words in (["-s", "usr1"], ["-s", "SIGTERM"]):
        done = await finished("kill", *words, session_id)
        assert (done.status, done.stdout, done.stderr) == (0, b"", "")
        async with running("logs", "-f", session_id) as following:
            while words[1].removeprefix("SIG").lower().encode() + b"\n" != await line(following):
                pass
    await ended(server, session_id)
    done = await finished("kill", "-o", "json", session_id)
    assert json.loads(done.stdout) == [{"id": session_id, "signal": "SIGTERM", "wasRunning": False}]
    assert (await finished("kill", session_id)).stderr == f"{session_id} has already ended\n"


@requirement("cli/kill:signal")
async def test_several_are_killed_and_one_that_is_not_known_is_told(server):
    ids = [await detach(server.url, "trap '' TERM; echo ready; sleep 60") for _ in range(2)]
    done = await finished("kill", "-s", "9", "nope", *ids)
    assert done.status == 1 and "there is no detached process `nope`" in done.stderr
    await eventually(lambda: not server.core._spawner._live)
    assert set((await states()).values()) == {"exited"}
    table = (await finished("ps")).stdout.decode()
    assert table.count("exited 137") == 2


@requirement("cli/kill:still-running")
@pytest.mark.parametrize("is_followed", [False, True])
async def test_a_process_that_ignores_the_signal_is_told_with_what_to_do(server, is_followed):
    """As a shell that waits for commands does."""
    session_id = await detach(server.url, "trap '' TERM; echo ready; exec sleep 60")
    async with contextlib.AsyncExitStack() as stack:
        following = await stack.enter_async_context(running("logs", "-f", session_id))
        assert await line(following) == b"ready\n"
        if is_followed:
            holder = await stack.enter_async_context(running("attach", session_id))
            assert await line(holder) == b"ready\n"
        done = await finished("kill", session_id)
        assert done.status == 0
        assert f"{session_id} still runs: it may ignore SIGTERM" in done.stderr
        assert f"`exec-server kill -s KILL {session_id}`" in done.stderr
        done = await finished("kill", "-o", "json", session_id)
        facts = {"id": session_id, "signal": "SIGTERM", "wasRunning": True, "stillRunning": True}
        assert json.loads(done.stdout) == [facts]
        # Other signals do not end processes as a rule.
        assert (await finished("kill", "-s", "WINCH", session_id)).stderr == ""
        done = await finished("kill", "-s", "HUP", session_id)
        assert (done.status, done.stderr) == (0, "")


@requirement("cli/kill:signal")
async def test_a_signal_that_does_not_exist_is_a_usage_error():
    done = await finished("kill", "-s", "NOPE", "x")
    assert done.status == 2 and "`NOPE` is not a signal" in done.stderr

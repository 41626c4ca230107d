"""How a command ended and what it used, at the prompt."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from exec_server.cli.process.end_words import end_line, short_end, stats_text
from exec_server.protocol.ends import EndedBy, EndReport, Usage
from exec_server.sandbox.supervisor.orders import obstacle
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap
from tests.support.cli import finished, line, running
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

STRANGER = EndedBy("process", pid=7, exe="/usr/bin/kill")
CLIENT = EndedBy("client", principal="alice")
LINES = [
    (EndReport("exited"), None, None),
    (EndReport("signal", signal="SIGSEGV"), "the command crashed: SIGSEGV", "SIGSEGV"),
    (
        EndReport("signal", signal="SIGSEGV", by=STRANGER),
        "the command was ended by SIGSEGV, which process 7 (/usr/bin/kill) sent",
        "SIGSEGV",
    ),
    (
        EndReport("signal", signal="SIGKILL", by=EndedBy("self", pid=7)),
        "the command was ended by SIGKILL, which it sent itself",
        "SIGKILL",
    ),
    (
        EndReport("signal", signal="SIGKILL"),
        "the command was ended by SIGKILL; who sent it is not known",
        "SIGKILL",
    ),
    (
        EndReport("terminated", signal="SIGKILL", by=CLIENT),
        "a client of alice ended the command",
        "terminated",
    ),
    (
        EndReport("limit", limit="wall", by=EndedBy("server")),
        "the command was ended: it ran longer than its limit; see --limit wall=SECONDS",
        "limit wall",
    ),
    (
        EndReport("memory", limit="memory"),
        "the command was ended: it used more memory than its limit; see --limit memory=SIZE",
        "memory limit",
    ),
    (EndReport("lost", evidence="why"), "lost (why): the exit status is unknown", None),
    (
        EndReport("unknown", evidence="two may be"),
        "it is not known why the command ended: two may be",
        "unknown",
    ),
]


@requirement("cli/ends:line", "cli/ends:ps")
@pytest.mark.parametrize(("end", "told", "short"), LINES)
def test_the_words_of_an_end(end, told, short):
    assert (end_line(end), short_end(end)) == (told, short)


@requirement("cli/ends:stats")
def test_stats_leave_out_what_is_not_known():
    usage = Usage(1.25, 0.5, 3 << 20, source="rusage")
    assert stats_text(usage).splitlines() == [
        "wall      1.250 s",
        "cpu       0.500 s",
        "memory    3.0 MiB (the largest process)",
    ]
    small = Usage(1.25, 0.5, 3 << 20, source="rusage", peak_memory_at_most=True)
    assert "memory    at most 3.0 MiB (the largest process)" in stats_text(small)
    assert "does not tell" in stats_text(None)


@requirement("cli/ends:line", "cli/ends:json", "cli/ends:stats")
async def test_run_says_one_line_about_an_end_that_is_not_ordinary(server):
    done = await finished("run", server.url, "--", "sh", "-c", "echo out; kill -9 $$")
    assert (done.status, done.stdout) == (137, b"out\n")
    (told,) = done.stderr.splitlines()
    assert told.startswith("[the command was ended by SIGKILL") and told.endswith("]")
    done = await finished("run", server.url, "--", "sh", "-c", "exit 137")
    assert (done.status, done.stderr) == (137, "")
    done = await finished("run", "-o", "json", server.url, "--", "sh", "-c", "kill -TERM $$")
    facts = json.loads(done.stdout)
    assert (facts["end"]["cause"], facts["end"]["signal"]) == ("signal", "SIGTERM")
    assert facts["usage"]["cpu"] >= 0 and done.stderr == ""
    done = await finished("run", "--stats", server.url, "--", "sh", "-c", "exit 3")
    names = [told.split()[0] for told in done.stderr.splitlines()]
    assert (done.status, names) == (3, ["wall", "cpu", "memory", "read", "written"])
    done = await finished("run", "--stats", "--detach", server.url, "--", "true")
    assert done.status == 2 and "--stats" in done.stderr


@requirement("cli/ends:line")
async def test_run_says_nothing_about_an_end_that_its_user_has_asked_for(server):
    done = await finished("run", "--timeout", "0.1", server.url, "--", "sleep", "100")
    assert (done.status, len(done.stderr.splitlines())) == (124, 1)
    async with running("run", server.url, "--", "sh", "-c", "echo up; exec sleep 100") as process:
        assert await line(process) == b"up\n"
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            _, stderr = await process.communicate()
        assert (process.returncode, stderr) == (130, b"")


@requirement("cli/ends:line")
@needs_bubblewrap
async def test_run_says_one_line_about_a_denial(server):
    words = ("--sandbox", "read-only", server.url, "--", "touch", "/var/tmp/exec-server-denied")
    done = await finished("run", *words)
    (error, told) = done.stderr.splitlines()
    assert done.status == 1 and error.startswith("touch:")
    exactly = "[the sandbox refused: write /var/tmp/exec-server-denied ("
    assert told.startswith("[the sandbox has probably refused" if obstacle() else exactly)
    # A program that is missing there is told as anywhere else.
    done = await finished("run", "--sandbox", "read-only", server.url, "--", "/no/such/program")
    assert (done.status, len(done.stderr.splitlines())) == (127, 1)


@requirement("cli/ends:ps", "cli/ends:json")
@pytest.mark.usefixtures("home")
async def test_ps_and_logs_say_why_a_process_ended(server):
    script = "echo out; kill -9 $$"
    done = await finished("run", "--detach", server.url, "--", "sh", "-c", script)
    name = done.stdout.decode().strip()
    async with asyncio.timeout(PATIENCE):
        while not (listed := await finished("ps")).stdout.count(b"exited"):
            pass
    assert b"exited 137 (SIGKILL)" in listed.stdout
    (facts,) = json.loads((await finished("ps", "-o", "json")).stdout)
    logs = json.loads((await finished("logs", "-o", "json", name)).stdout)
    assert facts["end"]["cause"] == logs["end"]["cause"] == "signal"
    assert facts["usage"] == logs["usage"]
    for options in ((), ("--follow",)):
        done = await finished("logs", *options, name)
        (told,) = done.stderr.splitlines()
        assert done.stdout == b"out\n" and told.startswith("[the command was ended by SIGKILL")

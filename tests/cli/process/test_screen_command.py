"""`exec-server screen`: what a terminal shows, as text, JSON and pictures."""

from __future__ import annotations

import json

import pytest

import exec_server
from exec_server.cli.process.screen_command import shown_rows
from exec_server.protocol.jobs import JobInfo
from exec_server.protocol.screen import WaitCondition, WaitForParams
from tests.requirements import requirement
from tests.support.cli import finished

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]

SCRIPT = r"printf '\033]2;title\007one\n\033[31mtwo\033[0m'; read line"


@requirement("cli/screen:prints")
async def test_a_screen_is_printed_and_drawn_beside_the_one_who_follows(server, tmp_path):
    async with exec_server.connect(server.url) as agent:
        command = ["sh", "-c", SCRIPT]
        process = await agent.start(command, tty=True, name="work", rows=5, cols=20)
        await process.wait_for("two")
        printed = await finished("screen", server.url, "work")
        assert (printed.status, printed.stdout, printed.stderr) == (0, b"one\ntwo\n", "")
        facts = json.loads((await finished("screen", "-o", "json", server.url, "work")).stdout)
        assert facts["lines"] == ["one", "two", "", "", ""]
        assert (facts["rows"], facts["columns"], facts["title"]) == (5, 20, "title")
        assert facts["cursor"] == {"row": 1, "column": 3, "visible": True}
        picture = tmp_path / "work.svg"
        drawn = await finished("screen", "--svg", str(picture), server.url, "work")
        assert (drawn.status, drawn.stdout) == (0, b"")
        assert picture.read_text().startswith("<svg")
        # The process goes on, and its own client still drives.
        await process.write(b"\n")
        assert await process.wait() == 0


@requirement("cli/screen:prints")
async def test_what_cannot_be_shown_is_refused(server):
    words = ("run", "--detach", "--name", "pipes", server.url, "--", "sleep", "1000")
    assert (await finished(*words)).status == 0
    for options, status, text in (
        ([], 1, "has no terminal"),
        (["--svg", "x.txt"], 2, "has to end with .svg"),
        (["--history", "10001"], 2, "at most 10000 rows"),
    ):
        done = await finished("screen", *options, "pipes")
        assert done.status == status and text in done.stderr
    assert (await finished("kill", "-s", "KILL", "pipes")).status == 0


@requirement("cli/screen:earlier")
async def test_earlier_screens_are_printed_and_drawn(server, tmp_path):
    script = r"stty -echo; printf 'one '; read line; printf '\033[2Jtwo '; read line"
    async with exec_server.connect(server.url) as agent:
        process = await agent.start(["sh", "-c", script], tty=True, name="work", rows=3, cols=20)
        await process.wait_for("one")
        facts = json.loads((await finished("screen", "-o", "json", server.url, "work")).stdout)
        before = str(facts["at"])
        await process.write(b"\n")
        await process.wait_for("two")
        for options, shown in (
            (["--at", before], b"one"),
            (["--back", "0"], b"two"),
            (["--back", "100000"], b""),
        ):
            done = await finished("screen", *options, server.url, "work")
            assert (done.status, done.stdout.strip()) == (0, shown), done.stderr
        picture = tmp_path / "before.svg"
        drawn = await finished("screen", "--at", before, "--svg", str(picture), server.url, "work")
        assert drawn.status == 0
        assert "one" in picture.read_text() and "two" not in picture.read_text()
        both = await finished("screen", "--at", "1", "--back", "1", server.url, "work")
        assert both.status == 2
        await process.write(b"\n")
        assert await process.wait() == 0


@requirement("cli/screen:command")
async def test_the_last_command_of_a_shell_with_integration_is_data(server, terminal, tmp_path):
    words = ("shell", "--integration", "--name", "work", "--cwd", str(tmp_path))
    seen = terminal(
        *words, "--env", "HOME=/none", server.url, "--", "bash", "--norc", "--noprofile"
    )

    async with exec_server.connect(server.url) as watcher:
        jobs: list[JobInfo] = []
        while not jobs:
            jobs = await watcher.jobs(every=True)
        async with await watcher.watch(jobs[0].process_id) as watched:
            prompt = WaitForParams(watched.watch_id, [WaitCondition("prompt")], 60_000)
            first = await watcher.wait_for_screen(prompt)
            seen.type(b"cd / && expr 40 + 2 && false\r")
            prompt.after = first.version
            await watcher.wait_for_screen(prompt)
    told = await finished("screen", "--command", "-o", "json", server.url, "work")
    command = json.loads(told.stdout)["command"]
    assert command == {
        "state": "done",
        "command": "cd / && expr 40 + 2 && false",
        "cwd": str(tmp_path),
        "exitCode": 1,
        "output": "42",
    }
    seen.type(b"exit\r")
    assert await seen.status() == 1


async def test_a_shell_without_integration_has_told_nothing(server):
    async with exec_server.connect(server.url) as agent:
        await agent.start(["cat"], tty=True, name="work", rows=5, cols=20)
        printed = await finished("screen", "--command", server.url, "work")
        assert printed.status == 0 and b"no command was seen" in printed.stdout
        # What a program claims is printed without what a terminal would act on.
        marks = r"\033]133;A\007\033]133;B\007\033]133;C;cmdline=x\\x1b[2J\007out\n\033]133;D;3\007"
        claims = ["sh", "-c", f"printf '{marks}'; exec cat"]
        process = await agent.start(claims, tty=True, name="claims", rows=5, cols=20)
        await process.wait_for("out")
        printed = await finished("screen", "--command", server.url, "claims")
        assert printed.stdout.endswith(b"exit status 3]\nout\n") and b"\x1b" not in printed.stdout
    refused = await finished("run", "--integration", server.url, "--", "bash")
    assert refused.status == 2 and "--tty" in refused.stderr


@requirement("cli/screen:prints")
async def test_a_server_cannot_control_the_terminal_with_the_rows_of_a_screen():
    assert shown_rows(["a\x1b]0;b\x07", "\x9bc"]) == "a\\x1b]0;b\\x07\n\\x9bc"
    assert shown_rows(["\ue0b0 ~ é 👩\u200d🚀"]) == "\ue0b0 ~ é 👩\u200d🚀"

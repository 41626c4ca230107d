"""`attach --watch`, `attach --take`, names, and commands beside one another."""

from __future__ import annotations

import json
import signal

import pytest

import exec_server
from tests.requirements import requirement
from tests.support.cli import Cue, MakeTerminal, finished, line, running, status
from tests.support.leaks import eventually
from tests.support.local import server_with

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]

# Prints every line that it reads, with the size of its terminal.
LINES = 'stty -echo; echo ready; while read -r line; do echo "<$line> $(stty size)"; done'
ECHO = ["sh", "-c", LINES]


@requirement("sharing/prompt:watch", "sharing/prompt:take")
async def test_a_person_looks_on_takes_the_keyboard_and_gives_it_back(
    server, terminal: MakeTerminal
):
    async with exec_server.connect(server.url) as agent:
        process = await agent.start(ECHO, tty=True, name="work", rows=24, cols=80)
        await process.write(b"one\n")
        screen = terminal("attach", "--watch", server.url, "work")
        await screen.until(b"<one> 24 80")
        # Keys of one who does not drive go nowhere.
        screen.type(b"not mine\r")
        await process.write(b"two\n")
        await screen.until(b"<two> 24 80")
        # They do not begin a line either: an escape key works after them.
        screen.type(b"\r~?not mine")
        await screen.until(b"type a single ~")
        screen.type(b"~t")
        await screen.until(b"you have the keyboard now")
        screen.type(b"three\r")
        # The one who drives has its own size.
        await screen.until(b"<three> 30 90")
        with pytest.raises(exec_server.ControlLost):
            await process.write(b"four\n")
        screen.type(b"~w")
        await screen.until(b"drives")
        screen.type(b"~g")
        await screen.until(b"has the keyboard again")
        await process.write(b"five\n")
        await screen.until(b"<five> 24 80")
        assert b"not mine" not in screen.all
        screen.type(b"\x03")
        assert await screen.status() == 0
        await screen.until(b"attach --watch")
        await process.terminate()


@requirement("sharing/prompt:take")
async def test_take_drives_at_once_and_leaving_gives_back(server, terminal: MakeTerminal):
    async with exec_server.connect(server.url) as agent:
        process = await agent.start(ECHO, tty=True)
        screen = terminal("attach", "--take", server.url, process.process_id)
        await screen.until(b"ready")
        screen.type(b"mine\r")
        await screen.until(b"<mine> 30 90")
        screen.type(b"~d")
        assert await screen.status() == 0
        await eventually(lambda: process.drives)
        await process.control_state()
        await process.write(b"exit\n")
        await process.terminate()


@requirement("sharing/prompt:owner")
async def test_the_shell_whose_keyboard_was_taken_can_take_it_back(server, terminal: MakeTerminal):
    shell = terminal("shell", "--name", "sh1", server.url, "--", *ECHO)
    await shell.until(b"ready")
    other = terminal("attach", "--take", server.url, "sh1")
    await other.until(b"ready")
    await shell.until(b"has taken the keyboard")
    shell.type(b"lost\r")
    other.type(b"won\r")
    await shell.until(b"<won>")
    shell.type(b"~t")
    await shell.until(b"you have the keyboard now")
    shell.type(b"back\r")
    await other.until(b"<back>")
    assert b"<lost>" not in other.all
    shell.type(b"~.")
    assert await shell.status() == 129
    assert await other.status() == 129


# What a picture begins with, and no program here.
PICTURE = b"\x1b[H\x1b[2J"


@requirement("sharing/prompt:sizes")
async def test_the_shell_is_painted_again_when_another_terminal_drives(
    server, terminal: MakeTerminal
):
    shell = terminal("shell", "--name", "sh2", server.url, "--", *ECHO)
    await shell.until(b"ready")
    other = terminal("attach", "--take", server.url, "sh2")
    await other.until(b"ready")
    await shell.until(b"has taken the keyboard")
    await shell.until(PICTURE)
    # Output before it is in the picture, and what comes later follows.
    await shell.until(b"ready")
    other.type(b"more\r")
    await shell.until(b"<more>")
    shell.type(b"~.")
    assert await shell.status() == 129
    assert await other.status() == 129


@requirement("sharing/prompt:sizes")
async def test_a_watcher_is_painted_again_when_the_size_changes(server, terminal: MakeTerminal):
    async with exec_server.connect(server.url) as agent:
        process = await agent.start(ECHO, tty=True, rows=24, cols=80)
        screen = terminal("attach", "--watch", server.url, process.process_id)
        await screen.until(b"ready")
        await process.resize(20, 70)
        await screen.until(PICTURE)
        await screen.until(b"ready")
        screen.type(b"~d")
        assert await screen.status() == 0
        await process.terminate()


@requirement("sharing/prompt:beside")
async def test_logs_beside_attach_and_kill(server, cue: Cue):
    script = f"echo one; {cue.wait}; echo two; sleep 1000"
    done = await finished("run", "--detach", "--name", "job", server.url, "--", "sh", "-c", script)
    session_id = done.stdout.decode().strip()
    async with running("logs", "-f", "job") as log, running("attach", session_id) as other:
        assert await line(log) == b"one\n"
        assert await line(other) == b"one\n"
        listed = json.loads((await finished("ps", "-o", "json", server.url)).stdout)
        assert [(each["name"], each["viewers"]) for each in listed] == [("job", 1)]
        await cue.give()
        assert await line(log) == b"two\n"
        assert await line(other) == b"two\n"
        # The program that follows it goes on.
        assert (await finished("kill", session_id)).status == 0
        assert await status(log) == 0
        assert await status(other) == 128 + signal.SIGTERM


@requirement("sharing/prompt:names")
async def test_names_are_shown_and_taken_as_ids(server):
    words = ("run", "--detach", "--name", "nightly", server.url, "--", "sleep", "1000")
    assert (await finished(*words)).status == 0
    shown = (await finished("ps", server.url)).stdout.decode().splitlines()
    assert shown[0].split()[:2] == ["ID", "NAME"]
    assert shown[1].split()[1] == "nightly"
    assert (await finished("kill", "-s", "KILL", "nightly")).status == 0
    # A name that was used before is that of the job that runs.
    assert (await finished(*words)).status == 0
    assert (await finished("kill", "-s", "KILL", server.url, "nightly")).status == 0
    wrong = await finished("run", "--detach", "--name", "a b", server.url, "--", "true")
    assert wrong.status == 2
    assert (await finished("attach", "--watch", "--force", "nightly")).status == 2


@requirement("sharing/prompt:names")
async def test_a_name_that_is_used_again_is_that_of_the_one_that_runs(server):
    async def started(url: str, script: str) -> str:
        words = ("run", "--detach", "--name", "nightly", url, "--", "sh", "-c", script)
        return (await finished(*words)).stdout.decode().strip()

    first = await started(server.url, "echo first; exec sleep 1000")
    await started(server.url, "echo second")
    assert (await finished("logs", "nightly")).stdout == b"first\n"
    assert (await finished("kill", "-s", "KILL", "nightly")).status == 0
    assert first in (await finished("ps")).stdout.decode()
    async with server_with() as other:
        await started(other.url, "echo third")
        several = await finished("logs", "nightly")
    assert several.status == 1 and "several processes have the name `nightly`" in several.stderr


@requirement("sharing/prompt:keep")
async def test_a_kept_shell_outlives_its_terminal(server, terminal: MakeTerminal):
    shell = terminal("shell", "--keep", "--name", "kept", server.url, "--", *ECHO)
    await shell.until(b"ready")
    shell.hang_up()
    assert await shell.status() == 129
    again = terminal("attach", "kept")
    await again.until(b"ready")
    again.type(b"here\r")
    await again.until(b"<here>")
    again.type(b"~d")
    assert await again.status() == 0
    assert (await finished("kill", "-s", "KILL", "kept")).status == 0

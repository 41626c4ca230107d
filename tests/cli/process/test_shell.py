"""`exec-server shell`, on a real terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import pytest
from msgspec import structs

from exec_server.cli.process.detached.saved_sessions import SessionStore
from exec_server.process.child import Child
from tests.requirements import requirement
from tests.support.cli import Cue, MakeTerminal, finished
from tests.support.fault_proxy import Fault, fault_proxy
from tests.support.leaks import eventually
from tests.support.local import server_with
from tests.support.servers import OURS

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]

WAITS = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.01; done"


def sh(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


# A terminal.


@requirement("cli/shell:terminal", "cli/shell:status")
async def test_it_is_a_terminal_in_every_respect(server, terminal: MakeTerminal):
    env = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    script = "stty size; echo $TERM $COLORTERM; test -t 0 && test -t 1 && read x; exit 6"
    screen = terminal("shell", server.url, *sh(script), env=env)
    await screen.until(b"30 90\r\n")
    await screen.until(b"xterm-256color truecolor\r\n")
    assert screen.is_raw
    screen.type(b"\r")
    assert await screen.status() == 6
    assert screen.attributes == screen.before


@requirement("cli/shell:login")
async def test_the_shell_is_that_of_the_server(server, terminal: MakeTerminal, tmp_path):
    # It is a login shell; the login files of the person who tests may do anything.
    words = ["--cwd", "/usr", "-e", "A=b c", "-e", f"HOME={tmp_path}"]
    screen = terminal("shell", *words, server.url)
    screen.type(b"echo $PWD:$A; echo st''atus; exit 5\r")
    await screen.until(b"/usr:b c\r\n")
    assert await screen.status() == 5


@requirement("cli/shell:terminal")
async def test_a_new_size_is_passed_on(server, terminal: MakeTerminal):
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done"
    screen = terminal("shell", server.url, *sh(script))
    await screen.until(b"ready\r\n")
    screen.resize(44, 55)
    await screen.until(b"44 55\r\n")


@requirement("cli/shell:keys")
async def test_ctrl_c_goes_to_the_far_side(server, terminal: MakeTerminal):
    screen = terminal("shell", server.url, *sh(WAITS))
    await screen.until(b"ready\r\n")
    screen.type(b"\x03")
    await screen.until(b"caught\r\n")
    assert await screen.status() == 7
    assert screen.attributes == screen.before


@requirement("cli/shell:keys")
async def test_every_key_goes_to_the_far_side(server, terminal: MakeTerminal):
    keys = bytes(range(1, 256)).replace(b"~", b"")
    script = f"stty raw -echo; echo ready; head -c {len(keys)} | od -An -v -tu1 | tr -d ' \\n'"
    screen = terminal("shell", server.url, *sh(script))
    await screen.until(b"ready\n")
    screen.type(keys)
    await screen.until("".join(map(str, keys)).encode())
    assert await screen.status() == 0


@requirement("cli/shell:status")
async def test_the_reference_has_shells_too(reference, terminal: MakeTerminal):
    screen = terminal("shell", reference.url, *sh("echo ready; read x; echo got:$x; exit 3"))
    await screen.until(b"ready\r\n")
    screen.resize(44, 55)
    screen.type(b"word\r")
    await screen.until(b"got:word\r\n")
    assert await screen.status() == 3


@requirement("cli/shell:no-terminal")
async def test_without_a_terminal_it_says_so(server):
    done = await finished("shell", server.url)
    assert done.status == 1
    assert done.stderr == (
        "Error: a shell needs a terminal, and standard input or output is not one; "
        "use `exec-server run` instead\n"
    )


async def test_what_cannot_be_started_is_told(server, terminal: MakeTerminal):
    screen = terminal("shell", server.url, "--", "no-such-command")
    assert await screen.status() == 127
    assert b"cannot run `no-such-command`" in screen.shown
    assert screen.attributes == screen.before


async def test_a_server_is_needed():
    done = await finished("shell")
    assert done.status == 2 and "<SERVER>" in done.stderr


# Escape keys.


@requirement("cli/shell:escape")
async def test_one_can_leave(server, terminal: MakeTerminal):
    screen = terminal("shell", server.url, *sh("echo ready; cat"))
    await screen.until(b"ready\r\n")
    screen.type(b"~?")
    await screen.until(b"~.  leave, and end the process\r\n")
    screen.type(b"~~tilde\r")
    await screen.until(b"~tilde\r\n~tilde\r\n")
    screen.type(b"~.")
    assert await screen.status() == 129
    assert screen.attributes == screen.before
    await eventually(lambda: not server.core._spawner._live)


@requirement("cli/shell:escape", "cli/shell:reconnect")
async def test_one_can_leave_without_a_connection(server, terminal: MakeTerminal):
    async with fault_proxy(server.url) as proxy:
        screen = terminal("shell", proxy.url, *sh("echo ready; cat"))
        await screen.until(b"ready\r\n")
        proxy.is_down = True
        proxy.cut()
        await screen.until(b"[connection lost, reconnecting...]")
        screen.type(b"typed meanwhile\r~d")
        await screen.until(b"[cannot detach: the server does not answer]")
        screen.type(b"\r~.")
        assert await screen.status() == 129
        assert screen.attributes == screen.before


# Lost connections.

NOTICE = re.compile(rb"\r\n\[(?:connection lost, reconnecting\.\.\.|reconnected)\]\r\n")


@requirement("cli/shell:reconnect")
async def test_every_byte_is_shown_once_however_often_the_line_is_cut(
    server, terminal: MakeTerminal
):
    # The first one comes after the answer to the start.
    cuts = [Fault(after) for after in (5_000, 7_001, 9_999, 20_011, 40_009)]
    async with fault_proxy(server.url, cuts) as proxy:
        script = "stty -echo; seq 9000; echo done; read x; echo got:$x; exit 4"
        screen = terminal("shell", proxy.url, *sh(script))
        await screen.until(b"done\r\n")
        screen.type(b"word\r")
        await screen.until(b"got:word\r\n")
        assert await screen.status() == 4
        assert proxy.faults == len(cuts)
    # Several cuts may make one outage.
    notices = NOTICE.findall(screen.all)
    assert notices and len(notices) % 2 == 0
    lines = [*map(str, range(1, 9001)), "done", "got:word", ""]
    assert NOTICE.sub(b"", screen.all) == "\r\n".join(lines).encode()


@requirement("cli/shell:reconnect")
async def test_every_outage_is_told(server, terminal: MakeTerminal):
    async with fault_proxy(server.url) as proxy:
        script = "stty -echo; echo ready; while read x; do seq $x; done"
        screen = terminal("shell", proxy.url, *sh(script))
        await screen.until(b"ready\r\n")
        for _ in range(3):
            screen.type(b"3000\r")
            await screen.until(b"\n1500\r\n")
            proxy.cut()
            await screen.until(b"[reconnected]\r\n")
        await screen.until_so(lambda shown: shown.count(b"\n3000\r\n") == 3)
        screen.type(b"~.")
        assert await screen.status() == 129
    assert len(NOTICE.findall(screen.all)) == 6
    numbers = [str(n) for _ in range(3) for n in range(1, 3001)]
    assert NOTICE.sub(b"", screen.all) == "\r\n".join(["ready", *numbers, ""]).encode()


@requirement("cli/shell:reconnect", "cli/shell:terminal")
async def test_what_happens_meanwhile_arrives_later(server, terminal: MakeTerminal):
    async with fault_proxy(server.url) as proxy:
        waits = "echo ready; until [ $x ]; do read x; done; echo got:$x"
        script = f"trap 'stty size' WINCH; stty -echo; {waits}"
        screen = terminal("shell", proxy.url, *sh(script))
        await screen.until(b"ready\r\n")
        proxy.is_down = True
        proxy.cut()
        await screen.until(b"[connection lost, reconnecting...]\r\n")
        screen.resize(44, 55)
        proxy.is_down = False
        await screen.until(b"[reconnected]\r\n")
        await screen.until(b"44 55\r\n")
        proxy.is_down = True
        proxy.cut()
        await screen.until(b"[connection lost, reconnecting...]\r\n")
        screen.type(b"word\r")
        proxy.is_down = False
        await screen.until(b"got:word\r\n")
        assert await screen.status() == 0


@requirement("cli/shell:reconnect")
async def test_what_could_not_be_kept_is_told(terminal: MakeTerminal, cue: Cue):
    async with server_with(retained_bytes=300_000) as server, fault_proxy(server.url) as proxy:
        # With this a program waits instead.
        info = server.core.environment_info
        capabilities = {**info.capabilities, "processFlow": False}
        server.core.environment_info = structs.replace(info, capabilities=capabilities)
        script = f"stty -echo; echo ready; {cue.wait}; seq 90000; echo done; read x; exit 4"
        screen = terminal("shell", proxy.url, *sh(script))
        await screen.until(b"ready\r\n")
        [session] = server.core._sessions.values()
        [child] = session.processes._entries.values()
        proxy.is_down = True
        proxy.cut()
        await screen.until(b"[connection lost, reconnecting...]\r\n")
        await cue.give()
        assert isinstance(child, Child)
        await eventually(lambda: child.log.total_bytes > 500_000)
        proxy.is_down = False
        told = b" bytes of output could not be retained]\r\n"
        await screen.until_so(lambda shown: told in shown and b"done\r\n" in shown)
        screen.type(b"\r")
        assert await screen.status() == 4


# The end.


@requirement("cli/shell:terminal", "cli/shell:hang-up")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
async def test_a_signal_ends_the_shell_and_restores_the_terminal(
    server, terminal: MakeTerminal, signum, tmp_path
):
    script = f"trap 'echo hung up > {tmp_path}/said; exit' HUP; {WAITS}"
    screen = terminal("shell", server.url, *sh(script))
    await screen.until(b"ready\r\n")
    assert screen.is_raw
    screen.process.send_signal(signum)
    assert await screen.status() == 128 + signum
    assert screen.attributes == screen.before
    await eventually(lambda: not server.core._spawner._live)
    assert (tmp_path / "said").read_text() == "hung up\n"


@requirement("cli/shell:hang-up")
async def test_what_ignores_the_hang_up_is_killed(server, terminal: MakeTerminal):
    screen = terminal("shell", server.url, *sh(f"trap '' HUP TERM; {WAITS}"))
    await screen.until(b"ready\r\n")
    screen.type(b"\r~.")
    assert await screen.status() == 129
    await eventually(lambda: not server.core._spawner._live)


@requirement("cli/shell:hang-up")
async def test_a_closed_window_ends_the_shell(server, terminal: MakeTerminal):
    screen = terminal("shell", server.url, *sh(WAITS))
    await screen.until(b"ready\r\n")
    screen.hang_up()
    assert await screen.status() == 129
    await eventually(lambda: not server.core._spawner._live)


# Detaching.


@requirement("cli/shell:detach", "cli/attach:exact-byte")
async def test_one_can_detach_and_come_back(server, terminal: MakeTerminal):
    script = "stty -echo; echo begun; while read x; do echo got:$x; test $x = end && exit 9; done"
    first = terminal("shell", server.url, *sh(script))
    await first.until(b"begun\r\n")
    first.type(b"one\r~d")
    await first.until(b"exec-server attach ")
    assert await first.status() == 0
    assert first.attributes == first.before
    session_id = first.shown.strip().decode()

    second = terminal("attach", session_id, rows=44, cols=55)
    second.type(b"two\r")
    await second.until(b"got:two\r\n")
    # Input that was typed before leaving has arrived, and its answer was shown once.
    # What was printed meanwhile is on the painted screen.
    assert second.all.count(b"got:one") == 1
    second.type(b"~.")
    assert await second.status() == 0
    assert second.attributes == second.before

    third = terminal("attach", session_id[:4])
    third.type(b"end\r")
    await third.until(b"got:end\r\n")
    assert await third.status() == 9
    assert third.all.count(b"got:two") == 1


@requirement("cli/ps:states")
async def test_the_age_of_a_shell_counts_from_its_start(server, terminal: MakeTerminal):
    screen = terminal("shell", server.url, *sh("echo ready; cat"))
    await screen.until(b"ready\r\n")
    before_detach = time.time()
    screen.type(b"~d")
    await screen.until(b"exec-server attach ")
    assert await screen.status() == 0
    [session] = SessionStore().all()
    assert session.started_at < before_detach


@requirement("cli/shell:detach")
async def test_what_ends_with_the_program_is_not_detached(terminal: MakeTerminal):
    screen = terminal("shell", f"stdio:{' '.join(OURS)} --listen stdio", *sh("echo ready; cat"))
    await screen.until(b"ready\r\n")
    screen.type(b"~d")
    await screen.until(b"[cannot detach: this server ends with this program]")
    screen.type(b"\r~.")
    assert await screen.status() == 129


def test_the_help_fits_on_a_line():
    text = subprocess.run(
        [*OURS, "shell", "--help"], capture_output=True, text=True, check=True, env=os.environ
    ).stdout
    assert all(len(line) <= 100 for line in text.splitlines())

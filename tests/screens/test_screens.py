"""Models of the terminals of a real server."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys

import pytest

import exec_server
from exec_server import InvalidRequest, ScreenEnded, ScreenTimeout
from exec_server.protocol.screen import ScreenParams
from exec_server.screens.query_answers import without_answers
from tests.requirements import requirement
from tests.support.leaks import eventually

_SHELL = ["bash", "--norc", "--noprofile", "-i"]
_ENV = {"PS1": "ready> ", "HISTFILE": "/dev/null"}
# Asks its terminal, and prints the answers as it gets them.
_ASKS = r"""
import sys, termios, tty
tty.setraw(0, termios.TCSANOW)
sys.stdout.write(sys.argv[1].encode().decode("unicode_escape")); sys.stdout.flush()
got = b""
import os, select
while not got.endswith(b"."):
    got += os.read(0, 100)
sys.stdout.write("answers " + repr(got).replace("\\x1b", "E") + " end"); sys.stdout.flush()
"""
_QUERIES = (
    r"\x1b[c\x1b[>c\x1b[5n\x1b[6n\x1b]10;?\x07\x1b]11;?\x07\x1b[>q\x1b[?2004$p\x1b[18t\x1b[?u"
)


@pytest.fixture
async def client(server):
    async with exec_server.connect(server.url) as opened:
        yield opened


async def shell(client, **options):
    options = {"rows": 10, "cols": 60, "env": _ENV} | options
    return await client.start(_SHELL, tty=True, **options)


@requirement("screen:expect")
async def test_an_agent_drives_a_shell(client, tmp_path):
    async with await shell(client, screen=True) as process:
        await process.wait_for("ready>")
        with pytest.raises(TypeError, match="a key is a str, not int"):
            await process.send_keys(3)
        await process.send_keys("echo $((40 + 2))", "enter")
        match = await process.wait_for(regex=r"^\d+$")
        assert (match.kind, match.text, match.row, match.column) == ("regex", "42", 1, 0)
        screen = await process.screen()
        assert screen.lines[:2] == ["ready> echo $((40 + 2))", "42"]
        assert (screen.rows, screen.columns, screen.alternate) == (10, 60, False)
        await process.send_keys("sh -c 'echo runs; exec cat'", "enter")
        # Before that, the shell itself may get the signal, and go on to start the program.
        await process.wait_for(regex=r"^runs$")
        await process.send_keys("ctrl-c")
        await process.wait_for("^C")
        later = await process.screen(since=screen)
        assert later.lines[0] == screen.lines[0] and "^C" in later.text
        picture = await process.screenshot(tmp_path / "x.svg")
        assert b"<svg" in picture and (tmp_path / "x.svg").read_bytes() == picture
        assert (await process.screenshot(tmp_path / "x.png")).startswith(b"\x89PNG")
        with pytest.raises(ValueError, match=r"svg or \.png"):
            await process.screenshot(tmp_path / "x.gif")
        with pytest.raises(ScreenTimeout, match="text 'never'"):
            await process.wait_for("never", timeout=0.01)
        with pytest.raises(ValueError, match="wait_for needs"):
            await process.wait_for()
        await process.send_keys("exit 3", "enter")
        ended = await process.wait_for(exit=True)
        assert (ended.kind, ended.exit_code) == ("exit", 3)


def _child_of(server, process):
    (session,) = server.core.sessions
    return session.processes._entries[process.process_id]


@requirement("screen:late")
async def test_a_model_that_is_made_after_the_end_shows_the_last_screen(server, client):
    process = await client.start(["sh", "-c", "echo last word; exit 5"], tty=True)
    assert [chunk.data async for chunk in process] == [b"last word\r\n"]
    assert await process.wait() == 5
    # The client has acknowledged everything before it asks.
    await eventually(lambda: _child_of(server, process).log.is_settled)
    screen = await process.screen()
    assert (screen.text.rstrip(), screen.inexact) == ("last word", False)


@requirement("screen:late")
async def test_a_model_without_any_output_left_says_so(server, client):
    process = await client.start(["echo", "last word"], tty=True)
    await process.wait()
    _child_of(server, process).log.clear()
    screen = await process.screen()
    assert (screen.text.rstrip(), screen.inexact) == ("", True)


@requirement("screen:wait-ended")
async def test_a_wait_for_an_ended_program_fails_at_once(client):
    async with await client.start(["sh", "-c", "echo last word; exit 5"], tty=True) as process:
        await process.wait_for("last word")
        for asked in ({"text": "never"}, {"regex": "ne+ver"}, {"prompt": True}):
            with pytest.raises(ScreenEnded, match=r"ended with status 5, .* did not show") as ended:
                await process.wait_for(**asked)
            assert ended.value.exit_code == 5
        assert (await process.wait_for(still=0.01)).kind == "still"
        assert (await process.wait_for(exit=True)).exit_code == 5
        assert (await process.wait_for("last word")).kind == "text"


@requirement("screen:wait-ended")
async def test_the_last_output_of_a_program_counts(client):
    for number in range(20):
        async with await client.start(["echo", f"word {number}"], tty=True) as process:
            assert (await process.wait_for(f"word {number}")).kind == "text"


@requirement("screen:wait")
async def test_a_wait_takes_texts_only(client):
    async with await shell(client) as process:
        with pytest.raises(TypeError, match="text must be a str, not bytes"):
            await process.wait_for(b"ready>")
        with pytest.raises(ScreenTimeout, match=r"still for 9 s"):
            await process.wait_for(still=9, timeout=0.01)


@requirement("screen:late")
async def test_a_model_that_is_made_later_shows_the_same(client):
    async with await shell(client) as process:
        await process.write(b"printf 'one\\ntwo\\033[5;3Hthree'\n")
        await process.wait_for("three")
        screen = await process.screen()
        assert screen.lines[4].startswith("  three") and not screen.inexact
        await process.resize(20, 50)
        await process.write(b"stty size\n")
        await process.wait_for("20 50")
        assert (await process.screen()).rows == 20
        await process.write(b"exit\n")
        assert await process.wait() == 0
        assert "20 50" in (await process.screen()).text


@requirement("screen:earlier")
async def test_an_earlier_screen_is_shown_as_it_was(client):
    script = (
        "stty -echo; echo first; read x; printf '\\033[?1049h\\033[Hinside'; read x; echo out; cat"
    )
    async with await client.start(["sh", "-c", script], tty=True, rows=5, cols=30) as process:
        await process.wait_for("first")
        numbers = [(await anext(process)).seq]
        await process.resize(8, 20)
        await process.write(b"\n")
        await process.wait_for("inside")
        numbers.append((await anext(process)).seq)
        await process.write(b"\n")
        await process.wait_for("out")
        first, inside = [await process.screen(at=number) for number in numbers]
        assert (first.lines[0], first.rows, first.alternate) == ("first", 5, False)
        assert (inside.lines[0], inside.rows, inside.alternate) == ("inside", 8, True)
        assert not first.inexact and first.version < inside.version
        # The screen of now is another one.
        assert "out" in (await process.screen()).text and "out" not in inside.text
        assert (await process.screen(at=10**6)).text == (await process.screen()).text
        with pytest.raises(ValueError, match="exclude"):
            ScreenParams(process.process_id, since=1, at=1)


async def test_a_process_without_a_terminal_has_no_screen(client):
    async with await client.start(["cat"], stdin=True) as process:
        with pytest.raises(InvalidRequest, match="has no terminal"):
            await process.screen()
    with pytest.raises(InvalidRequest, match="unknown process"):
        await client.read_screen(ScreenParams("nothing"))


@requirement("screen:queries")
async def test_queries_are_answered_once(client):
    argv = [sys.executable, "-c", _ASKS, _QUERIES]
    async with await client.start(argv, tty=True, screen=True, cols=200) as process:
        # What a terminal of a client answers is left out; what is typed is not.
        await process.write(b"\x1b[?62;22c\x1b[9;9R\x1b]10;rgb:1/2/3\x07\x1b[0n")
        await process.wait_for(still=0.1)
        await process.write(b"typed\x1b[A\x1b[1;2R.")
        await process.wait_for("end")
        got = (await process.screen()).text
    for answer, count in {
        r"E\[\?\d+[;\d]*c": 1,
        r"E\[>\d+;\d+;\d+c": 1,
        r"E\[0n": 1,
        r"E\[\d+;\d+R": 2,
        r"E\]10;rgb": 1,
        r"E\]11;rgb": 1,
        r"EP>\|": 1,
        r"E\[\?2004;2\$y": 1,
        r"E\[8;24;200t": 1,
        r"E\[\?0u": 1,
        r"typedE\[AE\[1;2R\.": 1,
    }.items():
        assert len(re.findall(answer, got)) == count, (answer, got)


def test_answers_of_other_terminals_are_left_out_of_input():
    answers = (
        b"\x1b[?62;22c\x1b[>1;0;0c\x1b[0n\x1b[12;40R\x1b]11;rgb:10/10/10\x1b\\\x1bP>|xterm(3)\x1b\\"
        b"\x1b[?2026;2$y\x1b[?1u\x1b[8;24;80t\x1b[?997;1n\x1bP1$r0m\x1b\\"
    )
    assert without_answers(answers) == b""
    # Keys, mouse, focus, paste.
    typed = b"a\x1b[A\x1b[1;2R\x1b[<0;3;4M\x1b[I\x1b[200~x\x1b[201~\x1b[97;5u\x1b[15;2~\x1bOP"
    assert without_answers(typed) == typed


@requirement("screen:host-death")
async def test_the_host_may_die_and_nothing_is_lost(client, server, caplog):
    async with await shell(client, screen=True) as process:
        await process.wait_for("ready>")
        await process.send_keys("for i in 1 2 3; do echo line $i; done", "enter")
        await process.wait_for("line 3")
        # The prompt comes after the line.
        before = await process.screen()
        while not before.lines[4].startswith("ready>"):
            before = await process.screen()
        waiting = asyncio.create_task(process.wait_for("line 4"))
        for deaths in (1, 2):
            host = server.core.screens.host_pid
            assert host is not None
            os.kill(host, signal.SIGKILL)
            # Its end is noticed sooner or later.
            while (await process.screen()).rebuilt < deaths:
                pass
        after = await process.screen()
        assert after.lines == before.lines and after.cursor == before.cursor
        assert after.rebuilt == 2 and not after.inexact
        await process.write(b"echo line $((2 + 2))\n")
        assert (await waiting).text == "line 4"
        # Old queries are not answered again, and what is typed comes once.
        assert (await process.screen()).text.count("line 4") == 1
    assert "made again" in caplog.text


@pytest.mark.one_loop
@requirement("screen:flood")
async def test_a_flood_is_not_held_up_and_the_model_says_what_it_missed(client):
    count = 300_000
    argv = ["sh", "-c", f"seq {count}; echo finished; sleep 60"]
    async with await client.start(argv, tty=True, screen=True) as process:
        reading = asyncio.create_task(_read_until(process, b"finished"))
        await process.wait_for("finished", timeout=50)
        screen = await process.screen()
        assert str(count) in screen.text and "finished" in screen.text
        assert (await reading) > 2_000_000


async def _read_until(process, word: bytes) -> int:
    total, last = 0, b""
    async for chunk in process:
        total += len(chunk.data)
        last = (last + chunk.data)[-100:]
        if word in last:
            break
    return total


@pytest.mark.one_loop
@requirement("screen:dump")
async def test_a_dump_paints_the_screen_of_a_process(client, server):
    from exec_server.terminal import open_engine

    async with await shell(client, screen=True) as process:
        await process.send_keys("printf '\\033]2;name\\007\\033[?1049h\\033[3;3Halt'; cat", "enter")
        await process.wait_for("alt")
        screens = server.core.screens
        (child,) = screens._taps
        dump = await screens.dump(child)
        shown = await process.screen()
        assert (dump.rows, dump.columns, dump.version) == (10, 60, shown.version)
        assert dump.seq == child.log.next_seq - 1 and not dump.is_inexact
        engine = open_engine(60, 10)
        engine.feed(dump.data)
        assert engine.lines() == shown.lines and engine.title == "name" and engine.is_alternate
        engine.feed(b"\x1b[?1049l")
        assert "ready>" in engine.lines()[0]
        engine.close()


@pytest.mark.one_loop
@pytest.mark.skipif(shutil.which("vim") is None, reason="vim is not installed")
@requirement("screen:keys")
async def test_an_editor_gets_the_keys_that_it_has_asked_for(client, tmp_path):
    file = tmp_path / "text"
    file.write_text("first\nsecond\n")
    argv = ["vim", "-u", "NONE", "-i", "NONE", "-n", "text"]
    options = {"tty": True, "screen": True, "env": {"TERM": "xterm"}, "cwd": tmp_path}
    async with await client.start(argv, **options) as process:
        await process.wait_for("second")
        screen = await process.screen()
        assert screen.alternate
        await process.send_keys("down", "i", "new ", "escape")
        await process.wait_for("new second")
        await process.send_keys(":wq", "enter")
        await process.wait_for(exit=True)
    assert file.read_text() == "first\nnew second\n"


def test_the_synchronous_client_has_the_same():
    from exec_server import sync

    with sync.local() as client:
        with client.start(_SHELL, tty=True, screen=True, env=_ENV) as process:
            process.wait_for("ready>")
            process.send_keys("echo $((2 * 21))", "enter")
            assert process.wait_for(regex="^42").text == "42"
            assert "42" in process.screen().text
            assert process.last_command().state == "none"

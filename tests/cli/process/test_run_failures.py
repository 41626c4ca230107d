"""`exec-server run` when something fails: wrong words, no server, lost connections, terminals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from functools import partial

import pytest
import websockets

from exec_server.cli.process.run_options import parse_run
from exec_server.errors import ConfigurationError
from tests.requirements import requirement
from tests.support import cli
from tests.support.cli import MakeTerminal
from tests.support.fake_server import Talk, fake_server
from tests.support.fault_proxy import fault_proxy
from tests.support.leaks import eventually
from tests.support.servers import OURS

pytestmark = pytest.mark.one_loop


running = partial(cli.running, "run")
run = partial(cli.finished, "run")
line = cli.line


def sh(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


# Failures.


@requirement("cli/run:errors")
async def test_a_server_that_is_not_there_is_told():
    done = await run("ws://127.0.0.1:1", "true")
    assert done.status == 1
    assert done.stderr == (
        "Error: failed to connect to exec-server websocket `ws://127.0.0.1:1`: Connection refused\n"
    )


async def shake_hands_once(talk: Talk) -> None:
    """A session begins, and cannot be resumed."""
    request = await talk.expect("initialize")
    if request["params"].get("resumeSessionId"):
        await talk.refuse(request, -32600, "unknown session id s")
        await talk.gone()
        raise websockets.ConnectionClosedOK(None, None)
    await talk.answer(request, {"sessionId": "s"})
    await talk.expect("initialized")


LOST = (
    "Error: the server was restarted, or the connection was away for too long: the session is "
    "lost, and what ran in it has ended"
)


@requirement("cli/run:errors")
async def test_a_lost_connection_is_told():
    async def script(talk: Talk) -> None:
        await shake_hands_once(talk)
        await talk.refuse(await talk.expect("environment/info"), -32601, "no")
        await talk.output((await talk.start())["processId"], 1, b"begun\n")
        # The helper of a server that cannot end input gets the end as a message.
        await talk.expect("process/write")
        talk.socket.transport.abort()

    async with fake_server(script) as url:
        done = await run(url, "x")
    assert (done.status, done.stdout) == (1, b"begun\n")
    assert done.stderr == f"{LOST}\n"


@requirement("cli/run:errors")
async def test_a_token_file_that_is_not_there_is_told(tmp_path):
    done = await run("--token-file", f"{tmp_path}/none", "ws://127.0.0.1:1", "true")
    assert done.status == 1
    assert done.stderr == f"Error: cannot read `{tmp_path}/none`: No such file or directory\n"


@requirement("cli/run:not-started")
async def test_a_command_that_cannot_be_started(server, tmp_path):
    missing = await run(server.url, "no-such-command")
    assert missing.status == 127
    assert missing.stderr.startswith("Error: cannot run `no-such-command`: No such file")
    (tmp_path / "plain").write_text("not a program")
    plain = await run(server.url, str(tmp_path / "plain"))
    assert plain.status == 126 and "Permission denied" in plain.stderr


@requirement("cli/run:not-started")
async def test_a_wrong_directory_is_told_and_not_the_command(server, tmp_path):
    (tmp_path / "file").touch()
    for options in ([], ["-t"]):
        missing = await run(*options, "--cwd", f"{tmp_path}/nope", server.url, "ls")
        assert missing.status == 126
        assert missing.stderr == (
            f"Error: cannot run `ls` in `{tmp_path}/nope`: "
            "the directory does not exist on the server\n"
        )
        plain = await run(*options, "--cwd", f"{tmp_path}/file", server.url, "ls")
        assert plain.status == 126
        assert (
            plain.stderr == f"Error: cannot run `ls` in `{tmp_path}/file`: it is not a directory\n"
        )
    command = await run("--cwd", str(tmp_path), server.url, "no-such-command")
    assert command.status == 127 and "cannot run `no-such-command` in" in command.stderr


@requirement("cli/run:default")
async def test_the_default_is_used_if_no_server_is_named(server, home):
    toml = home / "codex" / "environments.toml"
    toml.write_text(f'default = "box"\n[[environments]]\nid = "box"\nurl = "{server.url}"\n')
    done = await run("--", "echo", "hi")
    assert (done.status, done.stdout) == (0, b"hi\n")
    done = await run("-e", "A=1", "--", "printenv", "A")
    assert (done.status, done.stdout) == (0, b"1\n")
    # A URL after the `--` is a server, as it always was.
    done = await run("--", server.url, "echo", "hi")
    assert (done.status, done.stdout) == (0, b"hi\n")
    # This machine is a default only for programs.
    toml.write_text('default = "local"\n')
    done = await run("--", "echo", "hi")
    assert done.status == 2 and "<SERVER>" in done.stderr


@requirement("cli/run:json-errors")
async def test_failures_are_told_in_json(server, tmp_path):
    missing = await run("-o", "json", server.url, "no-such-command")
    facts = json.loads(missing.stdout)
    assert missing.status == facts["exitCode"] == 127
    assert facts["error"].startswith("cannot run `no-such-command`")
    assert (facts["stdout"], facts["stderr"]) == ("", "")
    (tmp_path / "plain").write_text("not a program")
    for words in ([server.url, str(tmp_path / "plain")], ["ws://127.0.0.1:1", "true"]):
        for options in ([], ["--detach"]):
            done = await run("-o", "json", *options, *words)
            facts = json.loads(done.stdout)
            assert facts["exitCode"] == done.status != 0
            assert done.stderr == f"Error: {facts['error']}\n"


@requirement("cli/run:json-errors")
async def test_output_before_a_lost_connection_is_in_the_json():
    async def script(talk: Talk) -> None:
        await shake_hands_once(talk)
        await talk.refuse(await talk.expect("environment/info"), -32601, "no")
        await talk.output((await talk.start())["processId"], 1, b"begun\n")
        # The helper of a server that cannot end input gets the end as a message.
        await talk.expect("process/write")
        talk.socket.transport.abort()

    async with fake_server(script) as url:
        done = await run("-o", "json", url, "x")
    facts = json.loads(done.stdout)
    assert (facts["exitCode"], facts["stdout"]) == (1, "begun\n")
    assert f"Error: {facts['error']}" == LOST


@requirement("cli/run:usage")
def test_options_may_stand_between_the_server_and_the_command():
    words = ["--tty", "ws://h:1", "--env", "A=b", "--cwd=/x", "--", "--verbose", "--", "x"]
    options = parse_run(words, {})
    assert options == parse_run(["--tty", "--env", "A=b", "--cwd=/x", "ws://h:1", *words[5:]], {})
    assert (options.server, options.argv) == ("ws://h:1", ["--verbose", "--", "x"])
    assert parse_run(["ws://h:1", "ls", "--tty", "--", "x"], {}).argv == ["ls", "--tty", "--", "x"]


@requirement("cli/run:usage")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "<SERVER>"),
        (["ws://h:1"], "<COMMAND>"),
        (["ws://h:1", "--"], "<COMMAND>"),
        (["h:1", "--", "x"], "invalid value 'h:1' for '<SERVER>'"),
        (["--nope", "ws://h:1", "x"], "unexpected argument '--nope'"),
        (["ws://h:1", "--tty", "x"], "options come before the server"),
        (["ws://h:1", "--tty", "ws://h:2", "--", "x"], "options come before the server"),
        (["ws://h:1", "--nope", "--", "x"], "unexpected argument '--nope'"),
        (["--env", "A", "ws://h:1", "x"], "expected NAME=VALUE"),
        (["--env", "=b", "ws://h:1", "x"], "expected NAME=VALUE"),
        (["--timeout", "soon", "ws://h:1", "x"], "--timeout"),
        (["-o", "xml", "ws://h:1", "x"], "[possible values: text, json]"),
        (["-t", "-o", "json", "ws://h:1", "x"], "cannot be used with"),
        (["--token", "a", "--token-file", "b", "ws://h:1", "x"], "cannot be used with"),
        (["--cwd", "", "ws://h:1", "x"], "a value is required"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(words, expected, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_run(words, {})
    assert caught.value.code == 2
    assert expected in capsys.readouterr().err


@requirement("cli/run:usage")
async def test_usage_errors_have_status_2():
    assert (await run()).status == 2


def test_options_are_read():
    options = parse_run(
        [
            "-t",
            "-n",
            "--cwd=/x",
            "-eA=1",
            "--env",
            "B=",
            "--timeout",
            "1.5",
            "--token=secret",
            "unix:///s",
            "a",
            "-b",
        ],
        {},
    )
    assert options.tty and not options.stdin and options.cwd == "/x"
    assert options.env == {"A": "1", "B": ""} and options.time_limit == 1.5
    assert (options.server, options.argv) == ("unix:///s", ["a", "-b"])
    assert options.token == "secret" and "secret" not in repr(options)
    plain = parse_run(["stdio:x", "--", "--odd"], {})
    assert plain.argv == ["--odd"] and plain.token is None and plain.output == "text"
    with pytest.raises(ConfigurationError):
        parse_run(["--token-file", "/proc/self/nope", "ws://h", "x"], {})


@requirement("cli/run:help")
async def test_help_teaches():
    done = await run("--help")
    text = done.stdout.decode()
    assert done.status == 0
    for word in ("--tty", "--env", "--timeout", "--token-file", "EXEC_SERVER_TOKEN", "examples:"):
        assert word in text
    assert "exec-server run ws://127.0.0.1:41181 -- uname -a" in text
    assert all(len(line) <= 100 for line in text.splitlines())


@requirement("cli/run:output")
async def test_a_server_can_be_started_for_one_command():
    done = await run("-n", f"stdio:{' '.join(OURS)} --listen stdio", "echo", "hi")
    assert (done.status, done.stdout, done.stderr) == (0, b"hi\n", "")


# Lost connections.


@requirement("cli/notices")
@pytest.mark.parametrize(
    ("words", "expected"),
    [([], b""), (["-v"], b"[connection lost, reconnecting...]\n[reconnected]\n")],
)
async def test_a_lost_connection_is_told_to_those_who_ask(server, words, expected):
    async with fault_proxy(server.url) as proxy:
        script = "echo ready; read x; echo got:$x"
        async with running(*words, proxy.url, *sh(script), stdin=subprocess.PIPE) as process:
            assert await line(process) == b"ready\n"
            proxy.cut()
            await proxy.wait(lambda proxy: proxy.connections == 2)
            stdout, stderr = await process.communicate(b"word\n")
        assert (process.returncode, stdout, stderr) == (0, b"got:word\n", expected)


@requirement("cli/notices")
async def test_a_lost_connection_is_told_on_a_terminal(server, terminal: MakeTerminal):
    async with fault_proxy(server.url) as proxy:
        screen = terminal("run", proxy.url, *sh("echo ready; read x; echo got:$x"))
        await screen.until(b"ready\r\n")
        proxy.cut()
        await screen.until(b"[connection lost, reconnecting...]\r\n[reconnected]\r\n")
        screen.type(b"word\n")
        await screen.until(b"got:word\r\n")
        assert await screen.status() == 0


# Terminals.


@requirement("cli/run:terminal")
async def test_a_terminal_is_raw_and_restored(server, terminal: MakeTerminal):
    screen = terminal(
        "run", "-t", server.url, *sh("stty size; echo $TERM; read x; echo got:$x; exit 6")
    )
    await screen.until(b"30 90\r\n")
    await screen.until(os.environ.get("TERM", "").encode() + b"\r\n")
    assert screen.is_raw
    screen.type(b"word\r")
    await screen.until(b"got:word\r\n")
    assert await screen.status() == 6
    assert screen.attributes == screen.before


@requirement("cli/run:terminal")
async def test_a_new_size_is_passed_on(server, terminal: MakeTerminal):
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done"
    screen = terminal("run", "--tty", server.url, *sh(script))
    await screen.until(b"ready\r\n")
    screen.resize(44, 55)
    await screen.until(b"44 55\r\n")
    screen.type(b"\x03")
    assert await screen.status() == 128 + signal.SIGINT
    assert screen.attributes == screen.before


@requirement("cli/run:terminal", "cli/run:interrupt")
async def test_the_interrupt_key_belongs_to_the_far_terminal(server, terminal: MakeTerminal):
    script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.01; done"
    screen = terminal("run", "-t", server.url, *sh(script))
    await screen.until(b"ready\r\n")
    screen.type(b"\x03")
    await screen.until(b"caught\r\n")
    assert await screen.status() == 7


@requirement("cli/run:terminal")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
async def test_a_terminal_is_restored_after_a_signal(server, terminal: MakeTerminal, signum):
    screen = terminal("run", "-t", server.url, *sh("echo ready; sleep 60"))
    await screen.until(b"ready\r\n")
    assert screen.is_raw
    screen.process.send_signal(signum)
    assert await screen.status() == 128 + signum
    assert screen.attributes == screen.before


@requirement("cli/run:terminal", "cli/run:errors")
async def test_a_terminal_is_restored_when_the_connection_is_lost(terminal: MakeTerminal):
    lose = asyncio.Event()

    async def script(talk: Talk) -> None:
        await shake_hands_once(talk)
        await talk.refuse(await talk.expect("environment/info"), -32601, "no")
        await talk.output((await talk.start())["processId"], 1, b"ready\r\n", stream="pty")
        await lose.wait()
        talk.socket.transport.abort()

    async with fake_server(script) as url:
        screen = terminal("run", "-t", url, "x")
        await screen.until(b"ready\r\n")
        assert screen.is_raw
        lose.set()
        assert await screen.status() == 1
    assert f"{LOST}\r\n".encode() in screen.shown
    assert screen.attributes == screen.before


@requirement("cli/run:terminal")
async def test_without_tty_the_local_terminal_is_left_alone(server, terminal: MakeTerminal):
    screen = terminal("run", server.url, *sh("echo ready; read x; echo got:$x; cat"))
    await screen.until(b"ready\r\n")
    assert screen.attributes == screen.before
    screen.type(b"word\n")
    await screen.until(b"got:word\r\n")
    screen.type(b"\x04")
    assert await screen.status() == 0


@requirement("cli/run:terminal-signal")
async def test_the_signal_that_ended_a_command_on_a_terminal_is_told(server):
    done = await run("-t", server.url, *sh("kill -9 $$"))
    assert done.status == 137


@requirement("cli/run:terminal-end-of-file")
@pytest.mark.parametrize("typed", [b"", b"echo $((40 + 2))\n", b"sleep 0.3\necho $((40 + 2))\n"])
async def test_the_end_of_input_ends_a_shell_on_a_terminal(server, typed):
    done = await run("-t", server.url, "--", "bash", "--norc", "--noprofile", input=typed)
    assert done.status == 0
    assert (b"42\r\n" in done.stdout) == bool(typed)


@requirement("cli/run:terminal-continued")
@pytest.mark.parametrize("words", [["run", "-t"], ["shell"]])
async def test_a_terminal_is_raw_again_after_a_stop(server, terminal: MakeTerminal, words):
    screen = terminal(*words, server.url, *sh("echo ready; read x; exit 3"))
    await screen.until(b"ready\r\n")
    screen.process.send_signal(signal.SIGSTOP)
    # A shell takes its terminal back when a job stops.
    screen.attributes = screen.before
    assert not screen.is_raw
    screen.process.send_signal(signal.SIGCONT)
    await eventually(lambda: screen.is_raw)
    screen.type(b"\r")
    assert await screen.status() == 3
    assert screen.attributes == screen.before


@requirement("cli/run:terminal")
async def test_a_far_terminal_needs_no_local_one(server):
    done = await run("-t", server.url, *sh("stty size; read x; echo got:$x"), input=b"word\n")
    assert done.status == 0
    # The echo of what is typed may come first.
    assert b"24 80\r\n" in done.stdout and b"got:word\r\n" in done.stdout

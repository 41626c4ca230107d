"""`--record` of `run`, `shell` and `attach`, and `--record-terminals` of the server."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from exec_server.recording.cast_reader import CastReader
from tests.requirements import requirement
from tests.support.casts import events, output
from tests.support.cli import MakeTerminal, finished
from tests.support.durable import jobs_of, state_servers
from tests.support.leaks import eventually
from tests.support.local import connected, resumed
from tests.support.servers import start_server
from tests.support.wire import ENV

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]

SECRET = "hunter2-hunter2"


def recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.cast"))


@requirement("cli/record", "recording:private")
async def test_run_records_its_terminal(server, home, terminal: MakeTerminal):
    script = "stty size; read x; printf hunter2; printf '%s\\n' -hunter2; exit 3"
    words = ("run", "-t", "--record", "-e", f"API_TOKEN={SECRET}", server.url)
    screen = terminal(*words, "--", "sh", "-c", script)
    await screen.until(b"30 90\r\n")
    screen.resize(20, 70)
    screen.type(b"\r")
    assert await screen.status() == 3
    folder = home / "state" / "exec-server" / "recordings"
    (path,) = recordings(folder)
    assert path.name.removesuffix(".cast").encode() in screen.all
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    found = events(path)
    assert (found[-1].code, found[-1].data) == ("x", "3")
    assert ("r", "70x20") in [(event.code, event.data) for event in found]
    assert "30 90\r\n" in output(path) and "hunter2" not in output(path)
    assert SECRET not in path.read_text()
    header = CastReader(path).header
    assert (header.version, header.columns, header.rows) == (3, 90, 30)


@requirement("cli/record")
async def test_shell_and_attach_record_to_a_file(server, home, terminal: MakeTerminal):
    two = home / "two.cast"
    words = ("shell", f"--record={two}", "--record-format", "v2", server.url)
    screen = terminal(*words, "--", "sh", "-c", "echo one; read x; echo two; read x")
    await screen.until(b"one")
    screen.type(b"\r~d")
    await screen.until(b"exec-server attach ")
    assert await screen.status() == 0
    assert CastReader(two).header.version == 2 and "one" in output(two)
    session = screen.all.rpartition(b"exec-server attach ")[2].split()[0].decode()
    three = home / "three.cast"
    again = terminal("attach", f"--record={three}", session)
    again.type(b"\r\r")
    assert await again.status() == 0
    assert CastReader(three).header.version == 3
    assert "two" in output(three) + output(two)


@requirement("cli/record")
async def test_what_cannot_be_recorded_is_refused(server, home, terminal: MakeTerminal):
    taken = home / "taken.cast"
    taken.write_text("mine")
    screen = terminal("run", "-t", f"--record={taken}", server.url, "--", "true")
    assert await screen.status() == 1
    assert b"taken.cast: File exists" in screen.all and taken.read_text() == "mine"
    done = await finished("run", "--record", server.url, "--", "true")
    assert done.status == 2 and "--tty" in done.stderr


@requirement("recording:server", "recording:no-input", "recording:secrets", "recording:private")
async def test_a_server_records_its_terminals(home, terminal: MakeTerminal):
    folder, secrets = home / "recordings", home / "secrets"
    secrets.write_text(f"{SECRET}\n")
    options = ("--record-terminals", str(folder), "--record-secrets", str(secrets))
    script = (
        "stty -echo; printf 'password: '; read x; stty echo; printf '\\nname: '; read y; exit 4"
    )
    with start_server(*options) as server:
        screen = terminal("run", "-t", server.url, "--", "sh", "-c", script)
        await screen.until(b"password: ")
        screen.type(b"typed-in-the-dark\r")
        await screen.until(b"name: ")
        screen.resize(25, 85)
        screen.type(SECRET.encode() + b"\r")
        assert await screen.status() == 4
        assert (await finished("run", server.url, "--", "echo", "no terminal")).status == 0
        # The writer of recordings is a process of its own.
        await eventually(lambda: recordings(folder))
        (path,) = recordings(folder)
        await eventually(lambda: events(path)[-1].code == "x")
    data = path.read_text()
    assert "typed-in-the-dark" not in data and SECRET not in data
    assert "name: " in output(path) and "*" * len(SECRET) in output(path)
    assert events(path)[-1].data == "4"
    header = CastReader(path).header
    assert header.owner and header.columns == 90 and header.command is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@requirement("recording:server", "recording:secrets")
async def test_the_secrets_of_a_process_that_outlives_the_server_stay_secret(tmp_path):
    folder = tmp_path / "recordings"
    argv = ["sh", "-c", 'read x; echo "[$API_TOKEN]"; read y; exit 3']
    env = {**ENV, "API_TOKEN": SECRET, "HARMLESS": "plain-text"}
    with state_servers(tmp_path / "state", "--record-terminals", str(folder)) as servers:
        async with connected(servers.url) as wire:
            await wire.start("p", argv, tty=True, durable=True, env=env)
            session = (await jobs_of(wire))[0]["sessionId"]
            await eventually(lambda: recordings(folder))
        servers.restart()
        wire = await resumed(servers.url, session)
        await eventually(lambda: len(recordings(folder)) == 2)
        for _ in range(2):
            write = {"processId": "p", "chunk": base64.b64encode(b"\n").decode()}
            await wire.call("process/write", write)
        await eventually(lambda: "x" in [e.code for p in recordings(folder) for e in events(p)])
        await wire.socket.close()
    shown = "".join(map(output, recordings(folder)))
    assert f"[{'*' * len(SECRET)}]" in shown and SECRET not in shown


@requirement("recording:server")
async def test_wrong_options_of_the_server_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    done = await finished("--record-terminals", str(tmp_path / "file"))
    assert done.status == 1 and "cannot record to" in done.stderr
    done = await finished("--record-quota", "1G")
    assert done.status == 2 and "--record-terminals" in done.stderr
    words = ("--record-terminals", str(tmp_path), "--record-secrets", str(tmp_path / "none"))
    done = await finished(*words)
    assert done.status == 1 and "cannot read" in done.stderr


async def test_a_file_that_is_written_as_a_word_gets_a_tip(server):
    done = await finished("run", "-t", "--record", "demo.cast", server.url, "--", "true")
    assert done.status == 2
    assert "tip: a file for --record is written '--record=demo.cast'" in done.stderr

"""`exec-server sandbox` and `exec-server run --sandbox`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from exec_server.cli.process.run_options import parse_run
from exec_server.cli.sandbox.sandbox_command import parse_sandbox, sandbox_command
from exec_server.cli.sandbox.sandbox_options import Confinement
from tests.requirements import requirement
from tests.sandbox.escape.users import user
from tests.support import cli
from tests.support.backends import needs_bubblewrap, needs_landlock, needs_some_backend, without
from tests.support.cli import MakeTerminal, finished
from tests.support.fake_server import Talk, fake_server

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]

sandbox = partial(cli.finished, "sandbox")
WRITE = ("--sandbox", "workspace-write")
NAMES = ".git, .agents, .codex, .aws"


def sh(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A directory in one that cannot be written, as everything below /tmp can."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as outer:
        path = Path(outer).resolve() / "workspace"
        path.mkdir()
        yield path


# On this machine.


@requirement("cli/sandbox:local")
@needs_some_backend
async def test_by_default_nothing_can_be_written(workspace):
    done = await sandbox(*sh("cat; touch made; exit 3"), input=b"word", cwd=workspace)
    assert (done.status, done.stdout) == (3, b"word")
    assert done.stderr
    assert not list(workspace.iterdir())


@requirement("cli/sandbox:missing-directory")
@needs_bubblewrap
@pytest.mark.parametrize("folders", ["nope", "workspace:nope"])
async def test_a_writable_directory_must_exist(workspace, folders):
    done = await sandbox("--sandbox", f"workspace-write={folders}", "--", "true", cwd=workspace)
    assert done.status == 126
    # The directories of this test are seen from the workspace; it does not contain itself.
    missing = folders.partition(":")[0]
    assert f"the directory `{missing}` of --sandbox does not exist" in done.stderr


@requirement("cli/sandbox:local")
@needs_bubblewrap
async def test_a_workspace_can_be_written_but_not_what_is_protected(workspace):
    script = "echo here > made; mkdir .git/hooks || echo refused; touch ../outside"
    done = await sandbox(*WRITE, *sh(script), cwd=workspace)
    assert done.status == 1 and done.stdout == b"refused\n"
    assert [each.name for each in workspace.iterdir()] == ["made"]
    assert not (workspace.parent / "outside").exists()


@requirement("cli/sandbox:options")
@needs_bubblewrap
async def test_the_directories_can_be_chosen(workspace):
    for name in ("a", "b", "c"):
        (workspace / name).mkdir()
    chosen = f"workspace-write=b:{workspace}/c"
    script = "touch b/x c/x; touch a/x"
    done = await sandbox("--sandbox", chosen, "--cwd", str(workspace), *sh(script))
    assert done.status == 1
    made = sorted(str(path.relative_to(workspace)) for path in workspace.rglob("x"))
    assert made == ["b/x", "c/x"]


@requirement("cli/sandbox:options")
@needs_bubblewrap
async def test_metadata_can_be_given_up(workspace):
    (workspace / ".git").mkdir()
    done = await sandbox(
        *WRITE, "--unprotected-metadata", *sh("touch .git/x; mkdir .aws"), cwd=workspace
    )
    assert (done.status, done.stderr) == (0, "")
    assert (workspace / ".git" / "x").exists() and (workspace / ".aws").exists()


@requirement("cli/sandbox:options")
@needs_some_backend
@pytest.mark.parametrize(("options", "expected"), [([], b"refused\n"), (["--net", "on"], b"ok\n")])
async def test_the_network_is_off_unless_it_is_on(options, expected):
    code = (
        "import socket\n"
        "try: socket.create_server(('127.0.0.1', 0)); print('ok')\n"
        "except OSError: print('refused')"
    )
    done = await sandbox(*options, "--", "/usr/bin/env", "python3", "-c", code)
    assert done.stdout == expected


@requirement("cli/sandbox:local")
@needs_some_backend
async def test_programs_get_json(workspace):
    done = await sandbox("-o", "json", "-e", "A=b", *sh("echo $A; touch x"), cwd=workspace)
    told = json.loads(done.stdout)
    assert (told["exitCode"], told["stdout"]) == (1, "b\n")
    assert told["sandboxRung"] in ("bubblewrap", "landlock") and told["sandboxDenied"] is True


@requirement("cli/sandbox:local")
@needs_some_backend
async def test_it_is_ended_after_its_time():
    done = await sandbox("--timeout", "0.2", *sh("sleep 60"))
    assert done.status == 124


@requirement("cli/sandbox:local")
@needs_some_backend
async def test_a_terminal_is_passed_through(terminal: MakeTerminal):
    script = "trap 'echo caught; exit 7' INT; stty size; while :; do sleep 0.01; done"
    screen = terminal("sandbox", *sh(script))
    await screen.until(b"30 90\r\n")
    assert screen.is_raw
    screen.type(b"\x03")
    await screen.until(b"caught")
    assert await screen.status() == 7
    assert screen.attributes == screen.before


@requirement("cli/sandbox:unprivileged")
@needs_bubblewrap
def test_an_ordinary_user_can_use_it(open_folder):
    other = user("nobody")
    if other is None:
        pytest.skip("no Python that another user can run")
    os.chown(open_folder, other.uid, other.gid)
    done = subprocess.run(
        [*other.command, "sandbox", *WRITE, *sh("id -u; touch made; touch .git/x")],
        cwd=open_folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": other.path, "HOME": str(open_folder)},
        capture_output=True,
        timeout=30,
    )
    assert done.stdout.decode().strip() == str(other.uid)
    assert done.returncode == 1 and b".git/x" in done.stderr
    assert (open_folder / "made").exists() and not (open_folder / ".git").exists()


# Refusals.


@requirement("cli/sandbox:closed")
@needs_some_backend
async def test_a_program_that_is_not_there_is_not_started():
    done = await sandbox("--", "no-such-program")
    assert done.status == 127
    assert "no-such-program" in done.stderr


@requirement("cli/sandbox:landlock")
@needs_landlock
def test_without_bubblewrap_it_says_what_cannot_be_protected(monkeypatch, workspace, capfd):
    without(monkeypatch, "bubblewrap")
    assert sandbox_command([*WRITE, "--cwd", str(workspace), *sh("touch made")]) == 126
    said = capfd.readouterr().err
    assert NAMES in said and "--unprotected-metadata" in said
    assert not list(workspace.iterdir())


@requirement("cli/sandbox:landlock")
@needs_landlock
def test_without_bubblewrap_metadata_can_be_given_up(monkeypatch, workspace, capfd):
    without(monkeypatch, "bubblewrap")
    # A new name directly in the directory for temporary files, which must stay read-only.
    outside = f"/tmp/out-{uuid.uuid4().hex}"
    (workspace / ".git").mkdir()
    words = [*WRITE, "--unprotected-metadata", "-n", "--cwd", str(workspace)]
    assert sandbox_command([*words, *sh(f"touch made .git/x; touch {outside} ../out")]) == 1
    assert sorted(os.listdir(workspace)) == [".git", "made"]
    assert not (workspace.parent / "out").exists()
    assert not os.path.exists(outside)
    assert f"cannot touch '{outside}'" in capfd.readouterr().err


@requirement("cli/sandbox:closed")
def test_without_any_backend_nothing_runs(monkeypatch, workspace, capfd):
    without(monkeypatch, "bubblewrap", "landlock")
    assert sandbox_command(["--cwd", str(workspace), *sh("touch made")]) == 126
    assert "no bubblewrap here" in capfd.readouterr().err
    assert not list(workspace.iterdir())


@requirement("cli/sandbox:closed")
async def test_a_command_that_no_server_says_it_confines_is_killed():
    is_killed = asyncio.Event()

    async def script(talk: Talk) -> None:
        info = {"shell": {"name": "sh", "path": "/bin/sh"}, "cwd": "file:///"}
        await talk.shake_hands({"sessionId": "s", "environmentInfo": info})
        await talk.answer(await talk.expect("environment/info"), info)
        assert "sandbox" in await talk.start()
        await talk.expect("process/terminate")
        is_killed.set()
        await talk.gone()

    async with fake_server(script) as url:
        done = await finished("run", "--sandbox", "read-only", url, "--", "true")
    assert done.status == 126
    assert "does not say that it confines commands" in done.stderr
    assert is_killed.is_set()


# On a server.


@requirement("cli/run:sandbox")
@needs_bubblewrap
async def test_a_command_on_a_server_is_confined(server, workspace):
    run = partial(finished, "run", "--cwd", str(workspace))
    done = await run("--sandbox", "read-only", server.url, *sh("touch made"))
    assert done.status == 1 and not list(workspace.iterdir())
    done = await run(*WRITE, server.url, *sh("touch made; touch ../outside"))
    assert done.status == 1 and (workspace / "made").exists()
    assert not (workspace.parent / "outside").exists()


# Words.


@requirement("cli/sandbox:options")
def test_options_say_what_may_be_touched():
    chosen = parse_sandbox(["--sandbox", "workspace-write=a:/b", "--net", "on", "--", "x"]).sandbox
    assert chosen == Confinement(kind="workspace-write", folders=("a", "/b"), network=True)
    assert parse_sandbox(["x"]).sandbox == Confinement(kind="read-only")
    assert parse_run(["ws://h", "--", "x"], {}).sandbox is None
    words = ["--sandbox=workspace-write", "--unprotected-metadata", "ws://h", "--", "x"]
    expected = Confinement(kind="workspace-write", protects_metadata=False)
    assert parse_run(words, {}).sandbox == expected


@requirement("cli/sandbox:options")
@pytest.mark.parametrize(
    "words",
    [
        ["--sandbox", "none", "x"],
        ["--sandbox", "read-only=/a", "x"],
        ["--sandbox", "workspace-write=", "x"],
        ["--sandbox", "workspace-write=a::b", "x"],
        ["--net", "maybe", "x"],
        ["--unprotected-metadata", "x"],
        [],
    ],
)
def test_wrong_words_are_refused(words, capsys):
    with pytest.raises(SystemExit) as exit_:
        parse_sandbox(words)
    assert exit_.value.code == 2
    assert "error: " in capsys.readouterr().err


@requirement("cli/sandbox:options")
@pytest.mark.parametrize("option", [["--net", "on"], ["--unprotected-metadata"]])
def test_what_is_said_of_a_sandbox_needs_one(option, capsys):
    with pytest.raises(SystemExit):
        parse_run([*option, "ws://h", "--", "x"], {})
    assert "--sandbox <SANDBOX>" in capsys.readouterr().err

"""shellSnapshot of process/start: startup files run once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from exec_server.process import shell_state
from exec_server.process.snapshot_files import Shelf
from exec_server.sandbox import placeholders
from tests.requirements import requirement
from tests.support.local import connected, server_with, wire_with
from tests.support.login_shells import SHELL, Shell
from tests.support.wire import ENV, Wire

PROFILE = r"""
echo run >> "$HOME/count"
echo noise; echo noise >&2
export EXPORTED="two words" OVER=profile
export MULTI=$'a\nb'
greet() { echo "hello $1"; }
alias ll="echo aliased"
shopt -s expand_aliases extglob
set -o noclobber
match() { case $1 in +(a)) echo matched;; esac; }
trap "echo bye" EXIT
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".bash_profile").write_text(PROFILE)
    return tmp_path


def shelves_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of snapshots from now on; each session has its own below."""
    monkeypatch.setattr(placeholders, "default_folder", lambda: bytes(folder))
    return folder / "snapshots"


@pytest.fixture
def shell(wire: Wire, home: Path) -> Shell:
    return Shell(wire, home)


@requirement("snapshot/start:once")
async def test_startup_files_run_once_and_their_work_is_restored(shell):
    assert await shell.run("greet you; ll") == "hello you\naliased\n"
    assert await shell.run('echo "$EXPORTED|$MULTI"') == "two words|a\nb\n"
    assert await shell.run("match aa; set -o | grep noclobber | tr -d ' \t'") == (
        "matched\nnoclobberon\n"
    )
    assert await shell.run("echo $0 $#; trap; pwd") == "/bin/bash 0\n/tmp\n"
    assert await shell.run("echo $0 $1", "zero", "one") == "zero one\n"
    assert shell.captures == 1


@requirement("snapshot/start:once")
async def test_at_once_they_share_one_run(server, home):
    async with connected(server.url, concurrentRequests=8) as wire:
        shell = Shell(wire, home)
        for number in range(6):
            await wire.request(
                "process/start",
                {
                    "processId": f"c{number}",
                    "argv": ["/bin/bash", "-lc", "greet x"],
                    "cwd": "file:///tmp",
                    "env": {**ENV, "HOME": str(home)},
                    "tty": False,
                    "shellSnapshot": {"scopeId": "s", "shell": SHELL},
                },
            )
        for number in range(6):
            events = await wire.events_until_closed(f"c{number}")
            assert events[-2]["params"]["exitCode"] == 0
        assert shell.captures == 1


@requirement("snapshot/start:own-env")
async def test_the_requests_own_variables_win_and_stay_its_own(shell):
    assert await shell.run("echo $OVER $MINE", env={"OVER": "request", "MINE": "1"}) == (
        "request 1\n"
    )
    assert await shell.run("echo $OVER ${MINE-none}") == "profile none\n"


@requirement("snapshot/start:key")
async def test_a_scope_and_a_directory_have_their_own(shell):
    for scope, cwd in [("a", "/tmp"), ("a", "/"), ("b", "/tmp"), ("a", "/tmp")]:
        await shell.run("true", scope=scope, cwd=f"file://{cwd}")
    assert shell.captures == 3


@requirement("snapshot/start:key")
async def test_the_oldest_is_forgotten(home):
    async with wire_with(shell_snapshots=2) as wire:
        shell = Shell(wire, home)
        for scope in ("a", "b", "a", "c", "a", "b"):
            assert await shell.run("greet x", scope=scope) == "hello x\n"
        assert shell.captures == 4


@requirement("snapshot/start:fallback")
@pytest.mark.parametrize(
    ("profile", "limits"),
    [
        ("exec sleep 1000", {"shell_snapshot_seconds": 0.3}),
        ("f() { echo %s; }" % ("x" * 5000), {"shell_snapshot_bytes": 4096}),
        ("PATH=/nowhere", {}),
    ],
)
async def test_a_capture_that_fails_leaves_a_plain_start(home, profile, limits):
    guard = '[ -e "$HOME/once" ] && return; : > "$HOME/once"\n' if "exec" in profile else ""
    (home / ".bash_profile").write_text(f"echo run >> $HOME/count\n{guard}{profile}\n")
    async with wire_with(**limits) as wire:
        shell = Shell(wire, home)
        assert await shell.run("echo done") == "done\n"
        assert await shell.run("echo done") == "done\n"
        # One capture fails, and then each start runs the startup files itself.
        assert shell.captures == 3


@requirement("snapshot/start:fallback")
@pytest.mark.parametrize("remove", [lambda shelf: next(shelf.iterdir()).unlink(), shutil.rmtree])
async def test_a_snapshot_that_was_cleaned_away_is_taken_again(home, tmp_path, monkeypatch, remove):
    shelves = shelves_in(tmp_path / "private", monkeypatch)
    async with wire_with() as wire:
        shell = Shell(wire, home)
        await shell.run("true")
        (kept,) = shelves.iterdir()
        assert kept.stat().st_mode & 0o777 == 0o700
        remove(kept)
        assert await shell.run("greet x") == "hello x\n"
        assert shell.captures == 2


@requirement("snapshot/start:fallback")
async def test_nothing_is_left_when_a_session_ends(home, tmp_path, monkeypatch):
    shelves = shelves_in(tmp_path / "private", monkeypatch)
    async with server_with() as running, connected(running.url) as wire:
        await Shell(wire, home).run("true")
        assert list(shelves.iterdir())
    assert not list(shelves.iterdir())


@requirement("snapshot/start:fallback")
async def test_what_a_killed_server_left_is_cleared_away(home, tmp_path, monkeypatch):
    shelves = shelves_in(tmp_path / "private", monkeypatch)
    killed, alive = Shelf(), Shelf()
    left, kept = Path(killed.put(b"left")), Path(alive.put(b"kept"))
    # The end of a process has the same effect.
    os.close(killed._lock)
    async with wire_with() as wire:
        await Shell(wire, home).run("true")
        assert not left.parent.exists()
        assert kept.read_bytes() == b"kept"
    alive.close()
    assert not list(shelves.iterdir())


@requirement("snapshot/start:once")
async def test_sh_restores_aliases_options_and_exports(wire, home):
    (home / ".profile").write_text(
        "echo run >> $HOME/count\nexport E=1\nalias ll='echo aliased'\n"
        "set -o noclobber\necho noise\n"
    )
    shell = Shell(wire, home)
    sh = {"name": "sh", "path": "/bin/sh"}
    script = "set -o | grep noclobber | tr -d ' \t'\necho $E $0"
    assert await shell.run(script, shell=sh) == "noclobberon\n1 /bin/sh\n"
    if os.path.realpath("/bin/sh").endswith("dash"):
        assert await shell.run("ll", shell=sh) == "aliased\n"
    assert shell.captures == 1


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
@requirement("snapshot/start:once")
async def test_zsh_restores_what_its_files_did(wire, home):
    (home / ".zprofile").write_text(
        "echo run >> $HOME/count\nexport E=1\nalias ll='echo aliased'\ngreet() { echo hello $1 }\n"
        "setopt extendedglob\necho noise\n"
    )
    shell = Shell(wire, home)
    zsh = {"name": "zsh", "path": str(shutil.which("zsh"))}
    # This shell reads the whole command before it runs it, so aliases need an eval.
    script = "greet you; echo $E $0 $#; eval ll"
    assert await shell.run(script, shell=zsh) == f"hello you\n1 {zsh['path']} 0\naliased\n"
    script = "for name in login rcs extendedglob; do [[ -o $name ]] && echo $name; done"
    assert await shell.run(script, shell=zsh) == "login\nrcs\nextendedglob\n"
    assert await shell.run("greet $1", "zero", "one", shell=zsh) == "hello one\n"
    assert shell.captures == 1


@requirement("snapshot/start:validation")
@pytest.mark.parametrize(
    ("scope", "shell", "argv", "code"),
    [
        ("", "bash", ["/bin/bash", "-lc", "true"], -32602),
        ("é" * 129, "bash", ["/bin/bash", "-lc", "true"], -32602),
        ("s", "fish", ["/bin/bash", "-lc", "true"], -32602),
        ("s", "fish", ["/bin/bash", "-c", "true"], None),
        ("s", "bash", ["/bin/bash", "-lc"], None),
    ],
)
async def test_a_request_for_a_snapshot_is_judged(wire, scope, shell, argv, code):
    params = {
        "processId": "p",
        "argv": argv,
        "cwd": "file:///tmp",
        "env": ENV,
        "tty": False,
        "shellSnapshot": {"scopeId": scope, "shell": {"name": shell, "path": "/bin/bash"}},
    }
    answer = await wire.answer(await wire.request("process/start", params))
    assert answer.get("error", {}).get("code") == code


def test_a_capture_that_lacks_a_mark_is_none():
    mark = "MARK"
    whole = b"noise" + b"MARK\n" * 5 + b"A=1\0B=2\0" + b"MARK\nbye"
    state = shell_state.parse_capture("bash", whole, mark, {b"B": b"2"})
    assert state is not None and state.exports == {b"A": b"1"}
    assert shell_state.is_complete(whole, mark)
    assert shell_state.parse_capture("bash", whole[:-8], mark, {}) is None

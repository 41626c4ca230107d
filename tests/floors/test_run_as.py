"""Commands and file calls of a principal as its Unix user."""

from __future__ import annotations

import base64
import errno
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from exec_server import connect, own_interpreter
from exec_server.access.principal import SandboxFloor
from exec_server.errors import FloorRefused
from exec_server.files.confined import interpreter
from exec_server.limits import DEFAULT_LIMITS
from exec_server.protocol import sandbox
from exec_server.sandbox import as_user, own_places
from tests.floors.test_sandbox_floor import TEXT, refused
from tests.requirements import requirement
from tests.sandbox.escape.users import user
from tests.support.backends import needs_bubblewrap, needs_landlock
from tests.support.leaks import children
from tests.support.tenants import principal, serving, uri
from tests.support.wire import ENV, Wire, decoded, start_params

USER = "nobody"


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or USER not in {entry.pw_name for entry in pwd.getpwall()},
    reason=f"this needs root, and a user `{USER}`",
)
pytestmark = [needs_root, pytest.mark.one_loop]
WHO = "id -u; id -g; id -G; pwd; echo $HOME $USER $LOGNAME $SHELL; touch made"


@pytest.fixture
def home(place: Path) -> Iterator[Path]:
    """A directory of the user."""
    entry = pwd.getpwnam(USER)
    os.chown(place / "app", entry.pw_uid, entry.pw_gid)
    (place / "other").chmod(0o700)
    yield place / "app"


@pytest.fixture
def helper_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Helpers are run by an interpreter that the user can run, if there is one."""
    found = user(USER)
    if found is None:
        pytest.skip(f"`{USER}` can run no interpreter with our packages here")
    asked = [found.python, "-I", "-S", "-c", "import sys; print(sys.base_prefix, *sys.path)"]
    text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    prefix, *paths = text.split()
    for module in (own_interpreter, interpreter):
        monkeypatch.setattr(module, "import_path", lambda: [*found.path.split(":"), *paths])
    monkeypatch.setattr(sys, "executable", found.python)
    monkeypatch.setattr(sys, "base_prefix", prefix)
    monkeypatch.setattr(sys, "base_exec_prefix", prefix)
    for cached in (own_interpreter.command_of, interpreter._needed_reads):
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in (own_interpreter.command_of, interpreter._needed_reads):
        cached.cache_clear()


def expected(home: Path) -> bytes:
    entry = pwd.getpwnam(USER)
    groups = " ".join(map(str, os.getgrouplist(USER, entry.pw_gid)))
    login = f"{entry.pw_dir} {USER} {USER} {entry.pw_shell}"
    return f"{entry.pw_uid}\n{entry.pw_gid}\n{groups}\n{home}\n{login}\n".encode()


@requirement("floors/run-as:commands")
async def test_commands_run_as_the_user(no_leaks, place, home):
    async with serving(principal(run_as=USER)) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        found = await wire.run("pipes", ["sh", "-c", WHO], cwd=uri(home))
        assert (found.stdout, found.stderr) == (expected(home), b"")
        assert (home / "made").stat().st_uid == pwd.getpwnam(USER).pw_uid
        script = "cat; cat /proc/self/status | grep -E '^(Cap(Eff|Prm)|SigIgn|SigBlk)'"
        await wire.start("stdin", ["sh", "-c", script], cwd=uri(home), pipeStdin=True)
        await wire.write("stdin", b"hello\n")
        await wire.call("process/closeStdin", {"processId": "stdin"})
        output = await wire.output_until("stdin", b"CapEff")
        assert output.startswith(b"hello\n")
        bits = [int(line.split()[1], 16) for line in output.splitlines()[1:]]
        # Signals 32 and 33 belong to the C library; its posix_spawn makes children ignore them.
        assert not any(each & ~(0b11 << 31) for each in bits), output
        await wire.event("stdin", "process/closed")
        env = {**ENV, "HOME": "/chosen"}
        found = await wire.run("env", ["sh", "-c", "echo $HOME $USER"], cwd=uri(home), env=env)
        assert found.stdout == f"/chosen {USER}\n".encode()
        # The user's rights decide, not those of root.
        error = await wire.error(
            "process/start", start_params("cwd", ["true"], cwd=uri(place / "other"))
        )
        assert "Permission denied" in error["message"]
        error = await wire.error(
            "process/start", start_params("program", ["/no/such"], cwd=uri(home))
        )
        assert "No such file" in error["message"]
        found = await wire.run("read", ["cat", f"{place}/other/secret"], cwd=uri(home))
        assert found.exit_code == 1
        keeper = running.core.spawner.keeper_pid
        tries = f"kill -0 {keeper} || kill -0 {os.getpid()} || ls /proc/{keeper}/fd"
        script = f"{tries} || ls -a /proc/self/fd"
        found = await wire.run("keeper", ["sh", "-c", script], cwd=uri(home))
        # It has its three descriptors, and the one of `ls`.
        assert found.stdout.split() == [b".", b"..", b"0", b"1", b"2", b"3"], found.stderr


@requirement("floors/run-as:terminal")
async def test_a_terminal_belongs_to_the_user(no_leaks, home):
    script = "stat -c %u $(tty); exec 3<>/dev/tty && echo has-tty; read line; echo got $line"
    async with serving(principal(run_as=USER)) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        await wire.start("1", ["sh", "-c", script], cwd=uri(home), tty=True)
        output = await wire.output_until("1", b"has-tty")
        assert output.startswith(f"{pwd.getpwnam(USER).pw_uid}\r\n".encode())
        await wire.write("1", b"it\r")
        assert b"got it" in await wire.output_until("1", b"got it")
        await wire.event("1", "process/closed")


@needs_bubblewrap
@requirement("floors/run-as:sandboxed")
async def test_a_sandboxed_command_runs_as_the_user(no_leaks, place, home):
    (home / ".git").mkdir()
    floor = SandboxFloor(kind="workspace-write", folders=(str(home),))
    who = principal(run_as=USER, sandbox=floor)
    async with serving(who) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        started = await wire.start("1", ["sh", "-c", WHO], cwd=uri(home), details=True)
        assert started["sandboxRung"] == "bubblewrap"
        events = await wire.events_until_closed("1")
        output = b"".join(
            decoded(each["params"]) for each in events if each["method"] == "process/output"
        )
        uid = pwd.getpwnam(USER).pw_uid
        assert output.startswith(b"%d\n" % uid), output
        assert (home / "made").stat().st_uid == uid
        script = f"touch {home}/.git/x {place}/x; cat {place}/other/secret"
        found = await wire.run("2", ["sh", "-c", script], cwd=uri(home))
        assert found.exit_code != 0 and found.stdout == b""
        assert list((home / ".git").iterdir()) == [] and not (place / "x").exists()
        denied = sandbox.read_only().wire
        denied["permissions"]["file_system"]["entries"].append(
            {"path": {"type": "path", "path": uri(f"{place}/file")}, "access": "deny"}
        )
        (place / "file").write_text("closed")
        # A secret of the server where the user can look, and one where it cannot.
        secrets = [place / "token", place / "other" / "token"]
        for secret in secrets:
            secret.write_text("of the server")
            own_places.hide(secret)
        try:
            argv = ["sh", "-c", f"id -u; cat {place}/token {place}/other/token"]
            found = await wire.run("secrets", argv, cwd=uri(home))
        finally:
            for secret in secrets:
                own_places.reveal(secret)
        assert found.stdout == b"%d\n" % uid, found.stderr
        # Where the user cannot look, no answer tells what exists.
        told = [
            (await wire.run(f"x{name}", [f"{place}/other/{name}"], cwd=uri(home))).stderr
            for name in ("secret", "nothing")
        ]
        assert told[0].replace(b"secret", b"") == told[1].replace(b"nothing", b"")
        found = await wire.run("3", ["cat", f"{place}/file"], cwd=uri(home), sandbox=denied)
        assert found.exit_code == 1 and found.stdout == b"", found.stderr
        await wire.start("4", ["sh", "-c", "tty; id -u"], cwd=uri(home), tty=True)
        assert b"%d\r\n" % uid in await wire.output_until("4", b"%d\r\n" % uid)
        await wire.event("4", "process/closed")


@needs_landlock
@requirement("floors/run-as:sandboxed")
async def test_a_command_behind_landlock_runs_as_the_user(no_leaks, home):
    asked = {**sandbox.read_only().wire, "useLegacyLandlock": True}
    async with serving(principal(run_as=USER)) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        started = await wire.start("1", ["sh", "-c", WHO], cwd=uri(home), sandbox=asked)
        assert started["sandboxRung"] == "landlock"
        output = await wire.output_until("1", b"touch")
        assert output.startswith(b"%d\n" % pwd.getpwnam(USER).pw_uid)
        await wire.event("1", "process/closed")
        assert not (home / "made").exists()
        await wire.start("2", ["sh", "-c", "tty; id -u"], cwd=uri(home), sandbox=asked, tty=True)
        await wire.output_until("2", b"%d\r\n" % pwd.getpwnam(USER).pw_uid)
        await wire.event("2", "process/closed")


@requirement("floors/run-as:durable")
async def test_a_durable_command_runs_as_the_user(no_leaks, place, home):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, orphan_grace=0.2)
    serve = serving(principal(run_as=USER), limits=limits, state_directory=place / "state")
    async with serve as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        found = await wire.run("1", ["sh", "-c", WHO], cwd=uri(home), durable=True)
        assert found.stdout == expected(home)
        assert (await wire.call("job/prune", {})) == {"removed": 1}


def made_by(path: Path) -> int:
    return path.lstat().st_uid


@requirement("floors/run-as:files")
async def test_file_calls_are_those_of_the_user(no_leaks, place, home, helper_python):
    uid = pwd.getpwnam(USER).pw_uid
    async with serving(principal(run_as=USER)) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        await wire.call("fs/writeFile", {"path": uri(home / "f"), "dataBase64": TEXT})
        await wire.call("fs/createDirectory", {"path": uri(home / "d/e")})
        opening = {"handleId": "h", "path": uri(home / "g"), "mode": "replace"}
        await wire.call("fs/open", opening)
        await wire.call("fs/writeBlock", {"handleId": "h", "offset": 0, "chunk": TEXT})
        await wire.call("fs/close", {"handleId": "h"})
        found = await wire.call("fs/readFile", {"path": uri(home / "g")})
        assert base64.b64decode(found["dataBase64"]) == b"text"
        assert {made_by(home / name) for name in ("f", "d", "d/e", "g")} == {uid}
        error = await wire.error("fs/readFile", {"path": uri(place / "other/secret")})
        assert "Permission denied" in error["message"]
        await wire.error("fs/writeFile", {"path": uri(place / "x"), "dataBase64": TEXT})
        await wire.error("fs/readFile", {"path": "file:///etc/shadow"})
        # A command of the same user cannot pretend to be the helper.
        keeper = running.core.spawner.keeper_pid
        assert keeper is not None
        helpers = children(keeper)
        assert {made_by(Path(f"/proc/{pid}/fd")) for pid in helpers} == {0}
        watch = {"watchId": 1, "missing": [uri(place / "other/x")]}
        assert await wire.call("fs/watchMissing", watch) == {"watching": False}


@needs_bubblewrap
@requirement("floors/run-as:files")
async def test_sandboxed_file_calls_are_those_of_the_user(no_leaks, place, home, helper_python):
    floor = SandboxFloor(kind="workspace-write", folders=(str(home),))
    who = principal(run_as=USER, sandbox=floor, roots=(str(home),))
    async with serving(who) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        await wire.call("fs/writeFile", {"path": uri(home / "f"), "dataBase64": TEXT})
        assert made_by(home / "f") == pwd.getpwnam(USER).pw_uid
        await wire.error("fs/createDirectory", {"path": uri(home / ".git")})
        await refused(wire, "fs/readFile", {"path": uri(place / "other/secret")})
        found = await wire.run("1", ["sh", "-c", "id -u; cat f"], cwd=uri(home))
        assert found.stdout == b"%d\ntext" % pwd.getpwnam(USER).pw_uid


@requirement("floors/run-as:chosen")
async def test_an_admin_chooses_the_user_of_a_command(no_leaks, home):
    async with serving() as (running, tenants, _):
        async with connect(running.url) as client:
            assert await client.offers("processUser")
            found = await client.run(["id", "-un"], cwd=home, user=USER)
            assert found.stdout == f"{USER}\n".encode()
            with pytest.raises(FloorRefused, match=r"^the user `no-such-user` is unknown here$"):
                await client.run(["id"], cwd=home, user="no-such-user")
        tenants.who = msgspec.structs.replace(principal(), may=frozenset({"exec"}))
        async with connect(running.url) as client:
            with pytest.raises(FloorRefused, match="`ci` is no admin, and cannot choose a user"):
                await client.run(["id"], cwd=home, user=USER)
        tenants.who = principal(run_as=USER)
        async with connect(running.url) as client:
            with pytest.raises(FloorRefused, match="runs commands as the user `nobody` alone"):
                await client.run(["id"], cwd=home, user="root")
            found = await client.run(["id", "-un"], cwd=home, user=USER)
            assert found.stdout == f"{USER}\n".encode()


@requirement("floors/run-as:unknown")
async def test_a_principal_whose_user_is_unknown_gets_no_session(no_leaks, monkeypatch):
    who = principal(run_as="no-such-user")
    async with serving(who) as (running, tenants, refusals):
        async with Wire(running.url) as wire:
            message = await refused(wire, "initialize", {"clientName": "wire"})
            assert message == (
                "principal `ci` runs commands as the user `no-such-user`, who is unknown here"
            )
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        tenants.who = principal(run_as=USER)
        async with Wire(running.url) as wire:
            message = await refused(wire, "initialize", {"clientName": "wire"})
            assert "only a server that runs as root can do that" in message
        monkeypatch.undo()
        assert [method for _, method, _ in refusals] == ["initialize", "initialize"]


def test_terms_are_what_the_keeper_gets() -> None:
    from exec_server.process.start_terms import UserAccount

    account = UserAccount("u", 1, 2, (2, 3), "/home/u", "/bin/sh")
    assert account.around(None) == ("as", 0, (1, 2, [2, 3]), None)
    fence: tuple[Any, ...] = ("confine", 1, True, b"")
    assert account.around(fence) == ("as", 1, (1, 2, [2, 3]), fence)


def test_a_start_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper has other things to do."""
    monkeypatch.setattr(as_user, "_PATIENCE_SECONDS", 0.05)
    before = children()
    null = os.open(os.devnull, os.O_RDWR)
    stdio = SimpleNamespace(terminal=None, theirs=(None, null, null))
    try:
        with pytest.raises(as_user.NotStarted) as caught:
            as_user.start(
                (65534, 65534, []),
                b"/",
                stdio,
                lambda: time.sleep(60),
                inherited=(),
                confine=None,
                signals=(),
            )
    finally:
        os.close(null)
    assert caught.value.errno == errno.ETIMEDOUT
    assert children() == before


@needs_bubblewrap
@requirement("floors/run-as:files")
async def test_searches_and_watches_are_those_of_the_user(no_leaks, home, helper_python):
    (home / "own").write_text("found\n")
    (home / "closed").write_text("found\n")
    (home / "closed").chmod(0o600)
    (home / "locked").mkdir(mode=0o700)
    async with serving(principal(run_as=USER)) as (running, _, _), connect(running.url) as client:
        hits = [hit async for hit in client.fs.search(home, "found")]
        assert [hit.path for hit in hits] == [str(home / "own")]
        with pytest.raises(PermissionError):
            async with client.fs.watch(home / "locked"):
                pass
        async with client.fs.watch(home) as watch:
            (home / "locked" / "unseen").write_text("x")
            (home / "seen").mkdir()
            seen = {change.path for change in (await anext(watch)).changes}
            assert seen == {str(home / "seen")}

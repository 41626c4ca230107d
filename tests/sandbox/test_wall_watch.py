"""A command is ended when a program outside takes away what protects a path from it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exec_server.sandbox import wall_watch
from exec_server.sandbox.backends import HERE
from tests.requirements import requirement
from tests.sandbox.escape.users import user
from tests.sandbox.policies import (
    at,
    closed,
    glob,
    managed,
    read_only,
    special,
    without_secrets,
    workspace_write,
)
from tests.support.files import until, write
from tests.support.leaks import GONE, children, open_descriptors
from tests.support.local import connected
from tests.support.servers import start_server
from tests.support.wire import Finished, Wire

pytestmark = [
    pytest.mark.one_loop,
    pytest.mark.skipif(
        not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
    ),
]

_AT_FDCWD, _EXCHANGE = -100, 2
KILLED = 128 + 9
UNWATCHED = "exec-server: the sandbox could not be watched: Cannot allocate memory"
# It says that it runs, and then waits for a line.
WAITS = ["sh", "-c", "echo ready; read line; echo done"]

Change = Callable[[Path], object]


@pytest.fixture
def root() -> Iterator[Path]:
    """A workspace in /tmp itself, which every user can reach."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="walls-") as name:
        yield make(Path(name))


def make(workspace: Path) -> Path:
    workspace.chmod(0o755)
    for name in (".git/hooks", "closed", "fixed", "a/b/inner/.git/hooks"):
        (workspace / name).mkdir(parents=True)
    for name in ("secret", "x.env", "a/b/x.env", "closed/file", "fixed/file"):
        (workspace / name).write_text("old")
    return workspace


def replaced(path: Path) -> None:
    """Put another file or directory in its place, at once for a file."""
    spare = path.with_name("spare")
    if path.is_dir():
        shutil.copytree(path, spare)
        shutil.rmtree(path)
    else:
        spare.write_text("new")
    spare.rename(path)


def moved(path: Path) -> None:
    path.rename(path.with_name("moved"))


def removed(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def exchanged(path: Path) -> None:
    spare = path.with_name("spare")
    spare.mkdir()
    names = os.fsencode(path), os.fsencode(spare)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE) == 0


def nested(workspace: Path) -> dict[str, Any]:
    """A writable directory in another one, so that both have protected names."""
    entries = at(workspace, "write"), at(workspace / "a/b/inner", "write")
    return managed(special("root", "read"), *entries)


def outside(workspace: Path) -> dict[str, Any]:
    """A closed file in a directory that is not writable either."""
    return managed(special("root", "read"), at(workspace / "a/b/x.env", "deny"))


async def waiting(wire: Wire, context: dict[str, Any], **params: Any) -> None:
    """Start a command that waits in the sandbox *context*."""
    await wire.start("p", WAITS, sandbox=context, pipeStdin=True, **params)
    await wire.output_until("p", b"ready")


async def ended(wire: Wire) -> Finished:
    done = Finished(await wire.events_until_closed("p"))
    assert b"done" not in done.stdout
    return done


def told(path: Path) -> bytes:
    return f"a program outside of the sandbox replaced, moved or removed {path};".encode()


@pytest.mark.parametrize("change", [replaced, moved, removed, exchanged])
@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (workspace_write, ".git"),
        (closed, "secret"),
        (closed, "closed"),
        (closed, "fixed"),
        (without_secrets, "a/b/x.env"),
        (nested, "a/b/inner/.git"),
        (outside, "a/b/x.env"),
    ],
)
@requirement("security/walls:ended")
async def test_a_command_whose_wall_is_gone_is_ended(wire, root, policy, name, change):
    await waiting(wire, policy(root))
    change(root / name)
    done = await ended(wire)
    assert done.exit_code == KILLED
    assert told(root / name) in done.stderr


@pytest.mark.parametrize("change", [moved, exchanged])
@pytest.mark.parametrize("name", ["a", "a/b", "a/b/inner"])
@pytest.mark.parametrize("policy", [nested, without_secrets, outside])
@requirement("security/walls:ended")
async def test_a_command_whose_wall_has_moved_with_a_directory_is_ended(
    wire, root, policy, name, change
):
    if policy is not nested and name == "a/b/inner":
        # There is no wall below it.
        return
    await waiting(wire, policy(root))
    change(root / name)
    done = await ended(wire)
    assert done.exit_code == KILLED
    assert told(root / "a/b")[:-1] in done.stderr


@requirement("security/walls:ended")
async def test_a_command_is_ended_when_a_name_that_must_stay_missing_is_free(wire, root):
    await waiting(wire, workspace_write(root))
    (root / ".codex").rmdir()
    assert told(root / ".codex") in (await ended(wire)).stderr
    assert not (root / ".aws").exists()


@requirement("security/walls:ended")
async def test_the_reason_is_shown_on_a_terminal(wire, root):
    await wire.start("p", WAITS, sandbox=closed(root), tty=True)
    await wire.output_until("p", b"ready")
    replaced(root / "secret")
    done = await ended(wire)
    assert told(root / "secret") in done.stream("pty")


@requirement("security/walls:ended")
async def test_more_walls_than_are_watched_are_compared(wire, root):
    for number in range(300):
        (root / f"{number}.env").write_text("old")
    await waiting(wire, without_secrets(root))
    moved(root / "299.env")
    assert told(root / "299.env") in (await ended(wire)).stderr


@requirement("security/walls:ended")
async def test_all_commands_of_a_workspace_are_ended_and_others_are_not(wire, root):
    for name in ("one", "two"):
        await wire.start(name, WAITS, sandbox=closed(root), pipeStdin=True)
        await wire.output_until(name, b"ready")
    await waiting(wire, read_only())
    replaced(root / "secret")
    for name in ("one", "two"):
        assert told(root / "secret") in Finished(await wire.events_until_closed(name)).stderr
    await wire.write("p", b"go\n")
    assert Finished(await wire.events_until_closed("p")).exit_code == 0


@pytest.mark.parametrize("name", ["root", "nobody"])
@pytest.mark.parametrize("change", [replaced, moved])
@requirement("security/walls:ended")
async def test_it_is_the_same_for_every_user(root, name, change):
    server_user = user(name)
    if server_user is None:
        pytest.skip(f"no server can run as {name} here")
    for path in (root, *root.rglob("*")):
        os.chown(path, server_user.uid, server_user.gid)
    env = {"PYTHONPATH": server_user.path, "HOME": "/"}
    with start_server(command=server_user.command, env=env, cwd="/") as server:
        async with connected(server.url) as wire:
            await waiting(wire, closed(root), cwd=f"file://{root}")
            change(root / "secret")
            assert told(root / "secret") in (await ended(wire)).stderr


def _writes(root: Path) -> None:
    (root / "secret").write_text("new content in the same file")


def _fills(root: Path) -> None:
    (root / ".git" / "config").write_text("new")
    (root / ".git" / "hooks").rename(root / ".git" / "other")


def _works(root: Path) -> None:
    (root / "new").mkdir()
    (root / "new").rename(root / "newer")
    shutil.rmtree(root / "a" / "b" / "inner")
    (root / "a" / "b").rename(root / "a" / "c")


def _mounts(root: Path) -> None:
    if os.geteuid() == 0:
        (root / "mounted").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "walls", str(root / "mounted")], check=True)
        subprocess.run(["umount", str(root / "mounted")], check=True)
        (root / "mounted").rmdir()


@pytest.mark.parametrize("change", [_writes, _fills, _works, _mounts])
@requirement("security/walls:quiet")
async def test_other_changes_leave_a_command_alone(wire, root, change):
    await waiting(wire, closed(root))
    change(root)
    await wire.write("p", b"go\n")
    done = Finished(await wire.events_until_closed("p"))
    assert (done.exit_code, done.stdout, done.stderr) == (0, b"done\n", b"")


@requirement("security/walls:quiet")
async def test_a_workspace_without_walls_can_be_moved(wire, root):
    context = managed(special("root", "read"), at(root / "a", "write"))
    for name in (".git", ".agents", ".codex", ".aws"):
        context["permissions"]["file_system"]["entries"].append(at(root / "a" / name, "write"))
    await waiting(wire, context)
    moved(root / "a")
    await wire.write("p", b"go\n")
    assert Finished(await wire.events_until_closed("p")).exit_code == 0


@requirement("security/walls:quiet")
async def test_commands_that_end_at_once_are_not_blamed_for_it(wire, root):
    for number in range(20):
        done = await wire.run(f"p{number}", ["true"], sandbox=workspace_write(root))
        assert (done.exit_code, done.stderr) == (0, b"")


@requirement("security/walls:ended")
async def test_a_name_may_contain_a_carriage_return(wire, root):
    workspace = root / "odd\rname"
    workspace.mkdir()
    await wire.start("other", WAITS, pipeStdin=True)
    await wire.output_until("other", b"ready")
    make(workspace)
    # A URI spells it like this.
    await waiting(wire, closed(root / "odd%0Dname"))
    replaced(workspace / "secret")
    assert told(workspace / "secret") in (await ended(wire)).stderr
    await wire.write("other", b"go\n")
    assert Finished(await wire.events_until_closed("other")).exit_code == 0


@requirement("security/walls:ended")
def test_a_sandbox_that_cannot_be_watched_any_more_is_ended_alone(monkeypatch):
    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    watch = wall_watch.WallWatch(select.poll())
    assert watch.add(1, os.getpid(), ()) is None
    monkeypatch.setattr(wall_watch, "_MountTable", fail)
    ready = set(map(int, os.listdir("/proc/self/fd")))
    assert watch.lost(ready) == [(1, UNWATCHED)]
    watch.remove(1)


@requirement("security/walls:quiet")
def test_a_watch_ends_although_no_thread_can_be_started(monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    watch = wall_watch.WallWatch(select.poll())
    before = open_descriptors()
    watch.add(1, os.getpid(), ())
    monkeypatch.setattr(wall_watch, "_thread", SimpleNamespace(start_new_thread=fail))
    watch.remove(1)
    # The thread of an earlier watch may close its own descriptors meanwhile.
    assert open_descriptors().items() <= before.items()


@requirement("security/walls:quiet")
async def test_nothing_is_watched_any_more_when_no_command_runs(root):
    with start_server() as server:
        async with connected(server.url) as wire:
            await wire.run("warm", ["true"], sandbox=closed(root))
            [keeper] = children(server.pid)
            await until(lambda: _watches(keeper) == 0)
            before = _descriptors(keeper)
            await waiting(wire, closed(root))
            await until(lambda: _watches(keeper) > 4)
            replaced(root / "secret")
            await ended(wire)
            await until(lambda: _watches(keeper) == 0)
            await until(lambda: _descriptors(keeper) <= before)


def _descriptors(pid: int) -> int:
    """How many *pid* has, without that of inotify, which a very short command does not need yet."""
    found = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/{pid}/fd/{name}") != "anon_inode:inotify"
    return found


def _watches(pid: int) -> int:
    folder = Path(f"/proc/{pid}/fdinfo")
    found = 0
    for path in folder.iterdir():
        with contextlib.suppress(*GONE):
            found += path.read_text().count("inotify wd:")
    return found


@requirement("security/residue:replaced")
async def test_the_next_command_is_protected_from_the_new_file(wire, root):
    await waiting(wire, closed(root))
    replaced(root / "secret")
    await ended(wire)
    done = await wire.run("q", ["cat", f"{root}/secret"], sandbox=closed(root))
    assert b"new" not in done.stdout


@requirement("security/walls:ended")
async def test_a_helper_of_file_calls_is_ended_as_well_and_replaced(wire, root):
    await write(wire, root / "file", b"1", sandbox=closed(root))
    for _ in range(3):
        replaced(root / "secret")
        await write(wire, root / "file", b"2", sandbox=closed(root))


@requirement("security/walls:ended")
async def test_a_glob_that_matches_later_is_no_wall(wire, root):
    await waiting(wire, managed(special("root", "read"), glob(f"{root}/*.later")))
    (root / "x.later").write_text("new")
    moved(root / "x.later")
    await wire.write("p", b"go\n")
    assert Finished(await wire.events_until_closed("p")).exit_code == 0

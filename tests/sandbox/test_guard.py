"""The guard: a command runs only in the sandbox that was planned."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from exec_server.process.spawn import Launch, Spawner
from exec_server.sandbox import backends, guard, in_keeper
from exec_server.sandbox.backends import HERE, Backends
from exec_server.sandbox.launch import ConfinedCommand, RequestedCommand, confine
from exec_server.sandbox.model import NOT_RUN, Access, Policy, Rule
from exec_server.sandbox.plan import plan
from tests.requirements import requirement
from tests.sandbox.policies import read_only
from tests.support.local import connected
from tests.support.servers import start_server

needs_bubblewrap = pytest.mark.skipif(
    not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount here")

Change = Callable[[list[guard.Expected]], object]


@pytest.fixture
async def spawner():
    made = Spawner(orphan_grace=0.0)
    yield made
    await made.stop(within=10)


def prepared(workspace: bytes) -> ConfinedCommand:
    rules = (Rule(b"/", Access.READ), Rule(workspace, Access.WRITE))
    policy = Policy(True, "restricted", rules, protects_metadata=False)
    words = [b"/bin/sh", b"-c", b"echo ran"]
    command = RequestedCommand(words[0], words, {}, b"/", is_tty=False)
    return confine(command, plan(policy))


async def run(spawner: Spawner, confined: ConfinedCommand) -> tuple[int, bytes, bytes]:
    """The exit status and the output of a confined command."""
    exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    launch = Launch(
        confined.program, confined.argv, {}, b"/", None, False, confined.fence, confined.fds
    )
    async with asyncio.timeout(60):
        spawned = await spawner.spawn(launch, lambda status, *_: exited.set_result(status))
        status = await exited
    assert status is not None
    stdout, stderr = (_read_all(fd) for fd in spawned.fds)
    return os.waitstatus_to_exitcode(status), stdout, stderr


def _read_all(fd: int) -> bytes:
    with open(fd, "rb") as file:
        os.set_blocking(fd, True)
        return file.read()


@needs_bubblewrap
@requirement("security/races:mounted")
async def test_a_sandbox_as_planned_runs_its_command(spawner, tmp_path):
    assert await run(spawner, prepared(os.fsencode(tmp_path))) == (0, b"ran\n", b"")


def _other_file(expected: list[guard.Expected]) -> None:
    path, kind, device, inode = expected[-2]
    expected[-2] = (path, kind, device, inode + 1)


def _other_access(expected: list[guard.Expected]) -> None:
    path, _, device, inode = expected[-2]
    expected[-2] = (path, guard.READ_ONLY, device, inode)


def _not_mounted(expected: list[guard.Expected]) -> None:
    found = os.stat("/usr")
    expected.append((b"/usr", guard.READ_ONLY, found.st_dev, found.st_ino))


def _missing(expected: list[guard.Expected]) -> None:
    expected.append((b"/not/there", guard.EMPTY, 0, 0))


def _unplanned(expected: list[guard.Expected]) -> None:
    # The mount at the workspace is writable, and no longer expected.
    del expected[-2]


@needs_bubblewrap
@pytest.mark.parametrize("change", [_other_file, _other_access, _not_mounted, _missing, _unplanned])
@requirement("security/races:mounted")
async def test_a_sandbox_that_differs_from_its_plan_runs_nothing(spawner, tmp_path, change):
    confined = prepared(os.fsencode(tmp_path))
    assert confined.fence is not None
    expected: Any = confined.fence[4]
    assert expected[-2][0] == os.fsencode(tmp_path)
    change(expected)
    code, stdout, stderr = await run(spawner, confined)
    assert (code, stdout) == (NOT_RUN, b"")
    assert stderr.endswith(b" was replaced while the sandbox was being prepared\n")


@requirement("security/races:mounted")
def test_a_guard_that_is_killed_releases_nothing():
    # bubblewrap takes an end of file for the permission to go on.
    reader, writer = in_keeper._pipe_without_end()
    os.close(writer)
    os.set_blocking(reader, False)
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    os.close(reader)


@requirement("security/races:mounted")
def test_a_path_with_a_link_in_it_is_not_opened(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for name in ("link", "link/.", "link/../folder"):
        with pytest.raises(OSError) as raised:
            guard.open_exactly(f"{tmp_path}/{name}".encode())
        assert raised.value.errno == errno.ELOOP
    os.close(guard.open_exactly(os.fsencode(tmp_path / "folder")))


@requirement("security/races:old-bubblewrap")
def test_a_bubblewrap_that_cannot_mount_descriptors_is_refused(tmp_path, monkeypatch):
    old = tmp_path / "bwrap"
    options = "--args --clearenv --info-fd --perms --seccomp --new-session --block-fd"
    old.write_text(f"#!/bin/sh\necho {options}\n")
    old.chmod(0o755)
    monkeypatch.setattr(backends, "find", lambda _: str(old))
    report = Backends().bubblewrap_report
    assert not report.works
    assert report.obstacle == f"{old} is too old: it does not know --bind-fd --ro-bind-fd"
    assert "0.10 or newer" in (report.remedy or "")
    assert Backends().bubblewrap is None


@needs_root
@needs_bubblewrap
@requirement("security/mounts:later")
async def test_what_the_host_mounts_later_is_not_writable_inside(tmp_path):
    later = tmp_path / "later"
    later.mkdir()
    script = f"echo ready; read line; echo x > {later}/escaped && echo WRITTEN; echo done"
    # In its own namespace, the server's root is shared, as systemd makes it.
    own_mounts = ["unshare", "--mount", "--propagation", "shared"]
    command = [*own_mounts, sys.executable, "-m", "exec_server"]
    with start_server(command=command) as server:
        inside = ["nsenter", "-t", str(server.pid), "-m"]
        async with connected(server.url) as wire:
            argv = ["sh", "-c", script]
            await wire.start("p", argv, sandbox=read_only(), pipeStdin=True)
            await wire.output_until("p", b"ready\n")
            subprocess.run([*inside, "mount", "-t", "tmpfs", "later", str(later)], check=True)
            try:
                await wire.write("p", b"go\n")
                said = await wire.output_until("p", b"done\n")
                found = subprocess.run([*inside, "ls", str(later)], capture_output=True)
            finally:
                subprocess.run([*inside, "umount", "-l", str(later)], check=True)
    assert b"WRITTEN" not in said
    assert found.stdout == b""


@requirement("security/races:mounted")
@pytest.mark.parametrize("early", [0, 1, 3, 4])
def test_a_look_that_comes_too_early_is_repeated(early, monkeypatch):
    looks: list[int] = []
    sealed_at = []

    def compare(*_):
        looks.append(1)
        if len(looks) <= early:
            raise guard.Refused("/ was replaced")

    monkeypatch.setattr(guard, "compare", compare)
    monkeypatch.setattr(guard, "_seal", lambda *_: sealed_at.append(len(looks)))
    with open("/proc/self/mountinfo", "rb") as file:
        if early < 4:
            guard._look_again(file.fileno(), (), 0)
        else:
            with pytest.raises(guard.Refused):
                guard._look_again(file.fileno(), (), 0)
    assert len(looks) == min(early + 1, 4)
    assert sealed_at == [0]


@requirement("sandbox/bubblewrap:machine-files")
def test_files_of_the_machine_are_never_sealed_on_the_host(monkeypatch):
    made = []
    monkeypatch.setattr(guard, "_mount", lambda *words: made.append(words))
    with open("/proc/self/mountinfo", "rb") as file, pytest.raises(guard.Refused, match="own"):
        guard._look_again(file.fileno(), ((b"/", guard.EMPTY, 0, 0),), os.stat("/proc").st_dev)
    assert not made


_LIST = (
    "while read -r a b c d path options rest; do echo $path $options; done < /proc/self/mountinfo"
)


async def mounts_inside(spawner: Spawner, policy: Policy) -> dict[str, set[str]]:
    """The options of each mount that a command sees; of several at one place, of the last."""
    words = [b"/bin/sh", b"-c", _LIST.encode()]
    command = RequestedCommand(words[0], words, {}, b"/", is_tty=False)
    code, stdout, stderr = await run(spawner, confine(command, plan(policy)))
    assert (code, stderr) == (0, b"")
    lines = (line.split() for line in stdout.decode().splitlines())
    return {path: set(options.split(",")) for path, options in lines}


@needs_bubblewrap
@requirement("sandbox/bubblewrap:machine-files")
async def test_files_of_the_machine_are_read_only_inside(spawner):
    mounts = await mounts_inside(spawner, Policy(True, "restricted", (Rule(b"/", Access.READ),)))
    places = {f"/proc/{name}" for name in guard.MACHINE_FILES if os.path.exists(f"/proc/{name}")}
    assert "/proc/sys" in places
    assert all({"ro", "nosuid", "nodev", "noexec"} <= mounts[place] for place in places)
    assert "rw" in mounts["/proc"]


@needs_bubblewrap
@requirement("sandbox/bubblewrap:machine-files")
async def test_what_is_made_for_a_sandbox_is_read_only_inside(spawner, tmp_path):
    (tmp_path / "closed").mkdir()
    shown = [Rule(path, Access.READ) for path in (b"/usr", b"/bin", b"/lib", b"/lib64")]
    work, closed = os.fsencode(tmp_path), os.fsencode(tmp_path / "closed")
    rules = (*shown, Rule(work, Access.WRITE), Rule(closed, Access.DENY))
    mounts = await mounts_inside(spawner, Policy(True, "restricted", rules))
    made = {"/", f"{tmp_path}/closed", f"{tmp_path}/.git"}
    assert made <= mounts.keys()
    assert all("ro" in mounts[path] for path in made)
    assert "rw" in mounts[str(tmp_path)]

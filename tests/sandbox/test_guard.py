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
    looks = []

    def compare(*_):
        looks.append(1)
        if len(looks) <= early:
            raise guard.Refused("/ was replaced")

    monkeypatch.setattr(guard, "compare", compare)
    with open("/proc/self/mountinfo", "rb") as file:
        if early < 4:
            guard._compare_again(file.fileno(), ())
        else:
            with pytest.raises(guard.Refused):
                guard._compare_again(file.fileno(), ())
    assert len(looks) == min(early + 1, 4)

"""Landlock: what it refuses to express, and what a command under it cannot do."""

from __future__ import annotations

import os
import subprocess

import pytest

from exec_server.sandbox import landlock
from exec_server.sandbox.backends import HERE
from exec_server.sandbox.model import Hide, Plan, Policy, Show, Unenforceable
from exec_server.sandbox.placeholders import default_folder
from exec_server.sandbox.seccomp import Kind
from tests.requirements import requirement
from tests.sandbox.confined import attempt

POLICY = Policy(is_managed=True, network="restricted")
KIND = Kind("related", "landlock")

needs_landlock = pytest.mark.skipif(
    not HERE.landlock_report.works, reason=f"{HERE.landlock_report.obstacle}"
)


@requirement("sandbox/landlock:exact")
@pytest.mark.parametrize(
    "plan",
    [
        Plan(POLICY, shows_host=False),
        Plan(POLICY, shows_host=True, steps=(Hide(b"/etc", is_directory=True, mode=0),)),
        Plan(
            POLICY,
            shows_host=True,
            steps=(Show(b"/w", is_writable=True), Show(b"/w/.git", is_writable=False)),
        ),
        Plan(
            POLICY,
            shows_host=True,
            steps=(Show(os.path.dirname(default_folder()), is_writable=True),),
        ),
    ],
    ids=["scoped reads", "hidden", "carved out", "our own files"],
)
def test_what_a_ruleset_cannot_say_is_refused(plan):
    with pytest.raises(Unenforceable, match="Landlock cannot"):
        landlock.check(plan)


@requirement("sandbox/landlock:exact")
def test_reading_beside_a_writable_directory_adds_nothing():
    steps = (Show(b"/w", is_writable=True), Show(b"/work", is_writable=False))
    landlock.check(Plan(POLICY, shows_host=True, steps=steps))


@needs_landlock
@requirement("sandbox/landlock:exact")
def test_a_path_that_became_a_link_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("/etc")
    step = Show(os.fsencode(tmp_path / "link"), is_writable=True)
    with pytest.raises(Unenforceable, match="was replaced"):
        landlock.ruleset(Plan(POLICY, shows_host=True, steps=(step,)))


@needs_landlock
@requirement("sandbox/landlock:enforced")
@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("open(inside + '/new', 'w').write('x')", "done"),
        ("os.mkdir(inside + '/d'); os.rename(inside + '/d', inside + '/e')", "done"),
        ("open('/dev/null', 'w').write('x')", "done"),
        ("open(outside + '/file').read()", "done"),
        ("open(outside + '/file', 'w')", "EACCES"),
        ("open(outside + '/new', 'w')", "EACCES"),
        ("os.truncate(outside + '/file', 0)", "EACCES"),
        ("os.unlink(outside + '/file')", "EACCES"),
        ("os.rename(outside + '/file', inside + '/file')", "EACCES"),
        ("os.link(outside + '/file', inside + '/file')", "EXDEV"),
        ("os.symlink(outside + '/file', inside + '/l'); open(inside + '/l', 'w')", "EACCES"),
        ("os.chmod(outside + '/file', 0o777)", "EPERM"),
        ("os.chown(outside + '/file', os.getuid(), os.getgid())", "EPERM"),
        ("os.utime(outside + '/file')", "EPERM"),
        ("os.setxattr(outside + '/file', 'user.a', b'1')", "EPERM"),
        ("os.mknod(inside + '/dev', 0o600 | 0o020000, 0)", "EACCES"),
        ("import fcntl; fcntl.ioctl(os.open(outside, 0), 0x40086602, b'\\0' * 8)", "EPERM"),
        ("os.kill(outsider, 0)", "EPERM"),
        ("os.kill(os.getppid(), 0)", "EPERM"),
        ("os.setpriority(os.PRIO_PROCESS, outsider, 19)", "EPERM"),
        ("os.sched_setaffinity(outsider, {0})", "EPERM"),
        ("import resource; resource.prlimit(outsider, resource.RLIMIT_NOFILE, (9, 9))", "EPERM"),
        ("open(f'/proc/{outsider}/environ').read()", "EACCES"),
        ("os.setpriority(os.PRIO_PROCESS, 0, 19)", "done"),
        ("call(272, 0x10000000)", "EPERM"),
        ("os.chroot('/')", "EPERM"),
        ("open('/proc/sys/kernel/hostname', 'w')", "EACCES"),
    ],
)
def test_a_command_under_landlock(tmp_path, code, result):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
    (outside / "file").write_text("kept")
    outsider = subprocess.Popen(["sleep", "60"])
    try:
        setting = f"inside, outside = {str(inside)!r}, {str(outside)!r}; outsider = {outsider.pid}"
        steps = (Show(os.fsencode(inside), is_writable=True),)
        plan = Plan(POLICY, shows_host=True, steps=steps)
        assert attempt(f"{setting}; {code}", KIND, plan) == result
        assert (outside / "file").read_text() == "kept"
        assert outsider.poll() is None
    finally:
        outsider.kill()
        outsider.wait()


@needs_landlock
@requirement("sandbox/landlock:enforced")
def test_a_single_file_can_be_what_is_writable(tmp_path):
    file = tmp_path / "file"
    file.write_text("old")
    plan = Plan(POLICY, shows_host=True, steps=(Show(os.fsencode(file), is_writable=True),))
    assert attempt(f"open({str(file)!r}, 'w').write('new')", KIND, plan) == "done"
    assert file.read_text() == "new"
    assert attempt(f"open({str(tmp_path / 'other')!r}, 'w')", KIND, plan) == "EACCES"

"""Plans as bubblewrap's arguments."""

from __future__ import annotations

import os

import pytest

from exec_server.sandbox import bubblewrap
from exec_server.sandbox.bubblewrap import arguments, environment, find, is_visible
from exec_server.sandbox.model import Hide, Plan, Policy, Show, Unenforceable
from exec_server.sandbox.placeholders import Folder
from tests.requirements import requirement

OFFLINE = Policy(is_managed=True, network="restricted")
ONLINE = Policy(is_managed=True, network="enabled")
FOLDER = Folder(b"/private")


def words(plan: Plan, **sources: int) -> str:
    named = {path.encode(): number for path, number in sources.items()}
    return b" ".join(arguments(plan, folder=FOLDER, sources=named)).decode()


@requirement("sandbox/bubblewrap:order")
def test_a_plan_is_mounted_in_its_own_order():
    steps = (
        Show(b"/w", is_writable=True),
        Show(b"/w/.git", is_writable=False),
        Hide(b"/w/.codex", is_directory=True, mode=0o555),
        Hide(b"/w/.env", is_directory=False, mode=0),
    )
    said = words(Plan(OFFLINE, shows_host=True, steps=steps))
    assert (
        "--ro-bind / / --dev /dev --bind /w /w --ro-bind /w/.git /w/.git "
        "--perms 0555 --tmpfs /w/.codex "
        "--ro-bind /private/unreadable /w/.env "
        "--perms 0000 --tmpfs /private --proc /proc"
    ) in said
    assert said.endswith("--proc /proc")


@requirement("sandbox/bubblewrap:order")
def test_an_empty_base_gets_its_links_first():
    plan = Plan(
        OFFLINE,
        shows_host=False,
        steps=(Show(b"/usr", is_writable=False),),
        links=((b"/bin", b"usr/bin"),),
    )
    said = words(plan)
    assert "--tmpfs / --dev /dev --symlink usr/bin /bin --ro-bind /usr /usr" in said
    assert "/private" not in said


@requirement("sandbox/bubblewrap:order")
def test_what_is_reopened_has_its_place_in_the_cover():
    step = Hide(
        b"/a", is_directory=True, mode=0o111, reopened=(b"/a/b",), reopened_files=(b"/a/f",)
    )
    plan = Plan(OFFLINE, shows_host=True, steps=(step, Show(b"/a/b", is_writable=True)))
    assert (
        "--perms 0111 --tmpfs /a --dir /a/b --ro-bind /private/unreadable /a/f --bind /a/b /a/b"
    ) in words(plan)


def test_a_writable_host_is_the_base():
    steps = (Show(b"/", is_writable=True), Show(b"/etc", is_writable=False))
    said = words(Plan(OFFLINE, shows_host=True, steps=steps))
    assert "--bind / / --dev /dev --ro-bind /etc /etc" in said
    assert "--ro-bind / /" not in said


def test_descriptors_take_the_place_of_names():
    plan = Plan(OFFLINE, shows_host=True, steps=(Show(b"/w", is_writable=True),))
    assert "--bind-fd 5 /w" in words(plan, **{"/w": 5})


@pytest.mark.parametrize(("policy", "is_alone"), [(OFFLINE, True), (ONLINE, False)])
def test_a_network_is_shared_only_when_it_may_be(policy, is_alone):
    assert ("--unshare-net" in words(Plan(policy, shows_host=True))) is is_alone


@requirement("sandbox/bubblewrap:environment")
def test_an_environment_is_passed_entry_by_entry():
    given = {b"A": b"1", b"B=C": b"2", b"D": b""}
    assert list(environment(given)) == [
        b"--clearenv",
        *(b"--setenv", b"A", b"1"),
        *(b"--setenv", b"B", b"C=2"),
        *(b"--setenv", b"D", b""),
    ]


@requirement("sandbox/bubblewrap:environment")
def test_a_variable_without_a_name_is_refused():
    with pytest.raises(Unenforceable, match="without a name"):
        list(environment({b"": b"x"}))


def test_the_last_step_says_what_is_seen():
    steps = (
        Show(b"/usr", is_writable=False),
        Hide(b"/usr/share", is_directory=True, mode=0o111),
        Show(b"/usr/share/man", is_writable=False),
    )
    plan = Plan(OFFLINE, shows_host=False, steps=steps)
    assert is_visible(plan, b"/usr/bin/sh")
    assert not is_visible(plan, b"/usr/share/x")
    assert is_visible(plan, b"/usr/share/man/x")
    assert not is_visible(plan, b"/usrlocal")


@requirement("sandbox/backends:fixed-place")
def test_programs_are_found_in_the_systems_folders_alone(tmp_path, monkeypatch):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find("bwrap") != str(program)
    monkeypatch.setattr(bubblewrap, "FOLDERS", (str(tmp_path),))
    if os.getuid() == 0:
        assert find("bwrap") == str(program)
    program.chmod(0o777)
    assert find("bwrap") is None

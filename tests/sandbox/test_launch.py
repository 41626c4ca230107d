"""The backend that a plan gets, and the refusal of commands that cannot run."""

from __future__ import annotations

import subprocess

import pytest

from exec_server.sandbox import backends
from exec_server.sandbox.backends import Backends, BackendUnavailable, Report
from exec_server.sandbox.launch import ConfinedCommand, RequestedCommand, confine
from exec_server.sandbox.model import Hide, Plan, Policy, Show
from exec_server.sandbox.placeholders import Folder
from tests.requirements import requirement

READ_ONLY = Plan(Policy(is_managed=True, network="restricted"), shows_host=True)
HIDING = Plan(
    READ_ONLY.policy, shows_host=True, steps=(Hide(b"/etc/x", is_directory=False, mode=0),)
)
PROXIED = Plan(Policy(False, "restricted", is_proxied=True), shows_host=True)


def here(*, has_bubblewrap: bool = True, has_landlock: bool = True) -> Backends:
    """A machine that has only these backends."""
    machine = Backends()
    reports = {
        "seccomp_report": Report("seccomp", True),
        "landlock_report": Report("landlock", has_landlock, obstacle="no Landlock"),
        "bubblewrap_report": Report("bubblewrap", has_bubblewrap, "/usr/bin/bwrap", "not there"),
        "bubblewrap": backends.Bubblewrap("/usr/bin/bwrap", False, False)
        if has_bubblewrap
        else None,
    }
    machine.__dict__.update(reports)
    return machine


def command(*argv: bytes, **changes) -> RequestedCommand:
    made = RequestedCommand(argv[0], list(argv), {b"PATH": b"/usr/bin:/bin"}, b"/", is_tty=False)
    return made._replace(**changes)


def said(confined: ConfinedCommand) -> tuple[int, str]:
    """The exit status and the text of a refusal."""
    assert confined.fence is None and confined.backend == "none"
    done = subprocess.run(confined.argv, executable=confined.program, capture_output=True, env={})
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


@requirement("sandbox/backends:strongest")
def test_the_strongest_backend_is_chosen():
    assert here().choose(READ_ONLY) == "bubblewrap"
    assert here(has_bubblewrap=False).choose(READ_ONLY) == "landlock"
    with pytest.raises(BackendUnavailable, match="no Landlock"):
        here(has_bubblewrap=False, has_landlock=False).choose(READ_ONLY)


@requirement("sandbox/backends:strongest")
def test_what_needs_no_namespaces_gets_none():
    nothing = here(has_bubblewrap=False, has_landlock=False)
    assert nothing.choose(Plan(Policy(False, "enabled"), shows_host=True)) == "none"
    assert nothing.choose(Plan(Policy(False, "restricted"), shows_host=True)) == "seccomp"


@requirement("sandbox/backends:legacy-landlock")
def test_landlock_when_asked_for_or_nothing():
    assert here().choose(READ_ONLY, prefers_landlock=True) == "landlock"
    with pytest.raises(BackendUnavailable, match="requires bubblewrap"):
        here().choose(HIDING, prefers_landlock=True)


@requirement("sandbox/process:unavailable")
def test_without_bubblewrap_what_landlock_cannot_express_is_refused():
    code, text = said(confine(command(b"true"), HIDING, backends=here(has_bubblewrap=False)))
    assert code == 101
    assert text.startswith("bubblewrap is unavailable")


@requirement("sandbox/process:not-run")
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (b"nonesuch", "No such file or directory (os error 2)"),
        (b"", "No such file or directory (os error 2)"),
        (b"/etc/passwd", "Permission denied (os error 13)"),
        (b"/etc", "Permission denied (os error 13)"),
    ],
)
def test_a_program_that_is_none_is_named(program, reason):
    code, text = said(confine(command(program), READ_ONLY, backends=here()))
    assert code == 101
    assert text == f"failed to run {program.decode()} in the sandbox: {reason}\n"


@requirement("sandbox/process:not-run")
def test_a_program_that_is_out_of_sight_does_not_exist():
    scoped = Plan(READ_ONLY.policy, shows_host=False, steps=(Show(b"/etc", is_writable=False),))
    code, text = said(confine(command(b"true"), scoped, backends=here()))
    assert code == 101
    assert "No such file" in text


@requirement("sandbox/process:not-built")
def test_what_cannot_be_passed_on_is_refused(tmp_path):
    odd = command(b"true", env={b"": b"x", b"PATH": b"/usr/bin:/bin"})
    folder = Folder(bytes(tmp_path / "private"))
    code, text = said(confine(odd, READ_ONLY, backends=here(), folder=folder))
    assert code == 1
    assert text.startswith("error building bubblewrap command: ")


@requirement("sandbox/process:proxied")
@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, "managed proxy mode requires proxy environment variables"),
        ({b"http_proxy": b"127.0.0.1:1"}, "requires parseable loopback proxy endpoints"),
    ],
)
def test_a_proxied_command_fails_closed(env, words):
    code, text = said(confine(command(b"/bin/true", env=env), PROXIED, backends=here()))
    assert code == 101
    assert words in text


@requirement("sandbox/backends:reported")
def test_every_backend_is_reported():
    reports = Backends().reports
    assert [report.backend for report in reports] == ["bubblewrap", "landlock", "seccomp"]
    assert all(report.works or report.obstacle for report in reports)


@requirement("sandbox/backends:reported")
def test_a_missing_program_comes_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(backends, "find", lambda name: "/usr/bin/dnf" if name == "dnf" else None)
    report = Backends().bubblewrap_report
    assert (report.works, report.remedy) == (False, "dnf install bubblewrap")


@requirement("sandbox/backends:reported")
@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
        (
            "kernel/unprivileged_userns_clone",
            "0",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_a_setting_that_stops_namespaces_is_named(tmp_path, monkeypatch, name, value, remedy):
    failing = tmp_path / "bwrap"
    failing.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --help ]; then\n'
        "  echo --args --clearenv --info-fd --perms --seccomp --new-session; exit\n"
        "fi\n"
        "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1\n"
    )
    failing.chmod(0o755)
    monkeypatch.setattr(backends, "find", lambda _: str(failing))
    monkeypatch.setattr(backends, "_setting", lambda asked: value if asked == name else None)
    report = Backends().bubblewrap_report
    assert not report.works
    assert "No permissions to create a new namespace" in (report.obstacle or "")
    assert report.remedy == remedy

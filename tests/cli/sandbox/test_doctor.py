"""`exec-server doctor`."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from exec_server.cli.sandbox import doctor_checks
from exec_server.cli.sandbox.doctor import doctor_command
from exec_server.cli.sandbox.hard_links import find_hard_links
from tests.requirements import requirement
from tests.support.backends import needs_some_backend, without
from tests.support.cli import finished
from tests.support.fake_server import Talk, fake_server

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]


# Backends.


@requirement("doctor:backends", "doctor:status", "doctor:checks")
@needs_some_backend
async def test_it_tells_what_works_here(tmp_path):
    done = await finished("doctor", cwd=tmp_path)
    text = done.stdout.decode()
    assert (done.status, done.stderr) == (0, "")
    names = ("bubblewrap", "landlock", "seccomp", "python", "kernel", "open files", "loopback")
    assert all(name in text for name in (*names, "commands", "sandboxed commands"))


@requirement("doctor:backends", "doctor:status")
def test_each_backend_that_does_not_work_has_its_reason_and_its_remedy(monkeypatch, capsys):
    without(monkeypatch, "bubblewrap", "landlock")
    assert doctor_command([]) == 1
    shown = capsys.readouterr().out
    for name in ("bubblewrap", "landlock"):
        assert f"no {name} here" in shown and f"fix: install {name}" in shown
    assert "in force: seccomp" in shown


@requirement("doctor:backends", "doctor:status")
def test_programs_are_told_the_same(monkeypatch, capsys):
    without(monkeypatch, "bubblewrap", "landlock")
    assert doctor_command(["-o", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert told["sandbox"]["rung"] == "seccomp"
    assert told["sandbox"]["rungs"][0] == {
        "rung": "bubblewrap",
        "works": False,
        "found": None,
        "obstacle": "no bubblewrap here",
        "remedy": "install bubblewrap",
    }
    checks = {each["name"]: each for each in told["checks"]}
    assert checks["commands"]["works"] is True
    assert checks["sandboxed commands"]["works"] is False
    assert "no bubblewrap here" in checks["sandboxed commands"]["obstacle"]


@requirement("doctor:server")
@needs_some_backend
async def test_a_server_is_asked_for_its_backends(server):
    done = await finished("doctor", "-o", "json", server.url)
    told = json.loads(done.stdout)
    assert done.status == 0 and told["ok"] is True
    assert [each["rung"] for each in told["sandbox"]["rungs"]] == [
        "bubblewrap",
        "landlock",
        "seccomp",
    ]
    assert "checks" not in told


@requirement("doctor:server")
async def test_a_server_that_does_not_say_is_no_success():
    async def script(talk: Talk) -> None:
        info = {"shell": {"name": "sh", "path": "/bin/sh"}}
        await talk.shake_hands({"sessionId": "s", "environmentInfo": info})
        await talk.answer(await talk.expect("environment/info"), info)
        await talk.gone()

    async with fake_server(script) as url:
        done = await finished("doctor", url)
    assert done.status == 1
    assert "does not report how it enforces sandboxes" in done.stderr


@pytest.mark.parametrize(
    "words", [["no server!"], ["--hard-links", ".", "ws://127.0.0.1:1"], ["--hard-links"]]
)
@requirement("doctor:server")
def test_wrong_words_are_refused(words, capsys):
    with pytest.raises(SystemExit) as exit_:
        doctor_command(words)
    assert exit_.value.code == 2
    assert "error: " in capsys.readouterr().err


# The rest.


@requirement("doctor:checks")
def test_too_few_descriptors_are_told(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))
    check = doctor_checks._open_files()
    assert not check.works and not check.is_needed
    assert "ulimit -n 1024" in (check.remedy or "")
    assert "limits.conf" in (check.remedy or "")


@requirement("doctor:checks")
def test_it_tells_where_state_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = doctor_checks._state()
    assert (found.works, found.found) == (True, f"{tmp_path}/exec-server")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    found = doctor_checks._state()
    assert not found.works and found.obstacle is not None and found.remedy is not None
    assert "no process can be detached" in found.obstacle


@requirement("doctor:checks")
def test_a_bubblewrap_that_others_could_replace_is_told(tmp_path):
    program = tmp_path / "folder" / "bwrap"
    program.parent.mkdir()
    program.touch(mode=0o755)
    program.parent.chmod(0o777)
    assert doctor_checks._writable_by_others(str(program)) == str(
        program.parent if os.geteuid() == 0 else program
    )
    assert doctor_checks._writable_by_others("/bin") is None


@requirement("doctor:checks")
def test_a_bubblewrap_that_is_not_used_is_told(monkeypatch, tmp_path):
    (tmp_path / "bwrap").touch()
    monkeypatch.setattr("exec_server.sandbox.bubblewrap.find", lambda name: None)
    monkeypatch.setattr("exec_server.sandbox.bubblewrap.FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = doctor_checks._bubblewrap()
    assert not check.works and check.found == str(tmp_path / "bwrap")
    assert "is not used" in (check.obstacle or "")


@requirement("doctor:checks")
def test_namespaces_that_are_refused_have_their_reason(monkeypatch):
    monkeypatch.setattr(doctor_checks, "_NAMESPACES", "import sys; sys.exit('refused')")
    monkeypatch.setattr(
        "exec_server.sandbox.backends.what_stops_namespaces",
        lambda: ("AppArmor", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
    )
    (check,) = doctor_checks._namespaces()
    assert (check.works, check.obstacle) == (False, "refused (AppArmor)")
    assert check.remedy == "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"


# Hard links.


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    (path / "deep").mkdir(parents=True)
    return path


@requirement("doctor:hard-links")
def test_links_that_lead_outside_are_named_and_others_not(workspace, tmp_path):
    (tmp_path / "secret").touch()
    (workspace / "one").touch()
    os.link(workspace / "one", workspace / "deep" / "two")
    os.link(tmp_path / "secret", workspace / "deep" / "innocent")
    os.symlink(tmp_path / "secret", workspace / "link")
    os.symlink(tmp_path, workspace / "folder")
    found = find_hard_links(str(workspace))
    assert (found.outside, found.paths) == (1, [str(workspace / "deep" / "innocent")])
    assert not found.is_clean and not found.is_partial


@requirement("doctor:hard-links")
def test_a_file_with_two_names_inside_and_one_outside_counts_once(workspace, tmp_path):
    (tmp_path / "secret").touch()
    os.link(tmp_path / "secret", workspace / "a")
    os.link(tmp_path / "secret", workspace / "b")
    assert find_hard_links(str(workspace)).outside == 1


@requirement("doctor:hard-links")
def test_a_directory_without_them_is_clean(workspace):
    (workspace / "file").touch()
    assert find_hard_links(str(workspace)).is_clean


@requirement("doctor:hard-links")
def test_what_was_not_seen_is_not_called_clean(workspace, monkeypatch):
    (workspace / "a").touch()
    (workspace / "b").touch()
    found = find_hard_links(str(workspace), max_entries=2)
    assert found.is_partial and not found.is_clean
    (workspace / "b").unlink()
    real = os.scandir

    def scandir(path):
        if path == str(workspace / "deep"):
            raise PermissionError
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = find_hard_links(str(workspace), max_entries=2)
    assert found.unreadable == 1 and not found.is_clean


@requirement("doctor:hard-links", "doctor:status")
async def test_found_links_are_shown_and_are_no_success(workspace, tmp_path):
    (tmp_path / "secret").touch()
    os.link(tmp_path / "secret", workspace / "in\tnocent")
    done = await finished("doctor", "--hard-links", "workspace", cwd=tmp_path)
    assert done.status == 1
    assert b"1 files below" in done.stdout and b"workspace/in?nocent" in done.stdout


@requirement("doctor:hard-links")
def test_a_directory_that_is_not_there_is_an_error(capsys):
    assert doctor_command(["--hard-links", "/does/not/exist"]) == 1
    assert "cannot read `/does/not/exist`: No such file" in capsys.readouterr().err

"""What the server says of the machine it runs on."""

from __future__ import annotations

import os
import pwd
import re
import sys
from pathlib import Path

import msgspec
import pytest

from exec_server import host
from exec_server.protocol.environment import INFO, STATUS, EnvironmentInfo, Shell, StatusResult
from exec_server.protocol.method import Nothing
from exec_server.protocol.paths import to_uri
from tests.requirements import requirement


def info() -> EnvironmentInfo:
    return host.environment_info(version="1.2.3", capabilities={"fsWatchMissing": False})


def wire(value: object) -> bytes:
    return msgspec.json.encode(value)


@pytest.fixture
def account(monkeypatch):
    """Give the server's account another shell and home, or with None no entry at all."""

    def give(shell: str | None, *, home: str = "/home/someone") -> None:
        def entry(uid: int) -> pwd.struct_passwd:
            if shell is None:
                raise KeyError(uid)
            return pwd.struct_passwd(("someone", "x", uid, uid, "", home, shell))

        monkeypatch.setattr(pwd, "getpwuid", entry)

    return give


@pytest.fixture
def program(tmp_path):
    """Make an executable file and say where it is."""

    def make(name: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def no_usual_places(monkeypatch):
    """Hide the shells of the machine that runs the tests."""
    is_file = os.path.isfile
    monkeypatch.setattr(
        os.path,
        "isfile",
        lambda path: os.path.dirname(path) not in ("/bin", "/usr/bin") and is_file(path),
    )
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


@requirement("environment/info:wire-order")
def test_the_members_are_written_in_the_order_of_the_reference():
    assert list(msgspec.json.decode(wire(info()))) == [
        "shell",
        "executorVersion",
        "providerId",
        "cwd",
        "userHomeDir",
        "platformOs",
        "prependPathDirs",
        "temporaryDirectories",
        "tempDir",
        "capabilities",
    ]


@requirement("environment/info:older-servers")
def test_an_answer_with_nothing_but_a_shell_is_understood():
    answer = msgspec.json.decode(
        b'{"shell":{"name":"bash","path":"/bin/bash"},"news":1}', type=INFO.result
    )
    assert answer == EnvironmentInfo(shell=Shell("bash", "/bin/bash"))
    assert answer.capabilities.get("fileWriteStreaming", False) is False
    with pytest.raises(msgspec.ValidationError, match="shell"):
        msgspec.json.decode(b'{"cwd":"file:///"}', type=INFO.result)


def test_an_answer_can_be_read_back():
    assert msgspec.json.decode(wire(info()), type=EnvironmentInfo) == info()


@requirement("environment/status:ready")
def test_the_status_is_ready():
    assert wire(StatusResult()) == b'{"status":"ready"}'


def test_both_methods_take_nothing_and_are_never_kept_waiting():
    assert [(m.name, m.family, m.params, m.is_control) for m in (INFO, STATUS)] == [
        ("environment/info", "environment info", Nothing, True),
        ("environment/status", "environment status", Nothing, True),
    ]


@requirement("environment/info:version-and-capabilities")
def test_version_and_capabilities_are_those_of_the_server():
    assert (info().executor_version, info().capabilities) == ("1.2.3", {"fsWatchMissing": False})


@requirement("environment/info:platform")
def test_the_platform_is_named(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert info().platform_os == "linux"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert info().platform_os == "macos"


@requirement("environment/info:prepend-path-dirs")
def test_no_directory_is_put_in_front_of_the_path():
    assert info().prepend_path_dirs == []


@requirement("environment/info:shell-of-the-account")
@pytest.mark.parametrize(
    ("name", "kind"),
    [("zsh", "zsh"), ("bash", "bash"), ("sh", "sh"), ("pwsh", "powershell"), ("zsh.exe", "zsh")],
)
def test_the_shell_is_the_one_of_the_account_and_not_the_one_of_the_environment(
    account, program, monkeypatch, name, kind
):
    path = program(name)
    account(path)
    monkeypatch.setenv("SHELL", program("other/bash"))
    assert host.login_shell() == Shell(kind, path)
    assert info().shell == Shell(kind, path)


@requirement("environment/info:shell-fallbacks")
def test_a_missing_shell_is_replaced_by_one_of_its_kind(account, program, monkeypatch, tmp_path):
    account("/nonexistent/zsh")
    path = program("zsh")
    program("bash")
    monkeypatch.setenv("PATH", f"relative::{tmp_path}")
    assert host.login_shell() == Shell("zsh", path)


@requirement("environment/info:shell-fallbacks")
@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/bin/fish", "", "BASH", None])
def test_an_unknown_shell_is_replaced_by_bash_then_zsh_then_sh(
    account, program, monkeypatch, tmp_path, no_usual_places, shell
):
    account(shell)
    assert host.login_shell() == Shell("sh", "/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    zsh = program("zsh")
    assert host.login_shell() == Shell("zsh", zsh)
    bash = program("bash")
    assert host.login_shell() == Shell("bash", bash)


@requirement("environment/info:shell-fallbacks")
def test_bash_is_found_in_the_usual_places(account, monkeypatch):
    account("/bin/fish")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(os.path, "isfile", lambda path: path == "/usr/bin/bash")
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    assert host.login_shell() == Shell("bash", "/usr/bin/bash")


def test_a_directory_and_what_cannot_be_run_are_no_shells(
    account, program, monkeypatch, tmp_path, no_usual_places
):
    (tmp_path / "bash").mkdir()
    Path(program("zsh")).chmod(0o644)
    account(str(tmp_path / "bash"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.login_shell() == Shell("sh", "/bin/sh")


def test_a_shell_whose_name_json_cannot_carry_is_passed_over(
    account, program, monkeypatch, no_usual_places
):
    odd = program("\udcff/bash")
    account(odd)
    monkeypatch.setenv("PATH", os.path.dirname(odd))
    assert host.login_shell() == Shell("sh", "/bin/sh")


@requirement("process/start.env:tty-shell-of-the-account")
def test_a_terminal_is_given_the_accounts_shell_whatever_its_kind(account, program):
    fish = program("fish")
    account(fish)
    assert host.tty_shell() == fish


@requirement("process/start.env:tty-shell-of-the-account")
@pytest.mark.parametrize("shell", ["/nonexistent/bash", "", "bash", None])
def test_a_terminal_is_given_sh_when_the_accounts_shell_cannot_run(account, shell):
    account(shell)
    assert host.tty_shell() == "/bin/sh"


@requirement("environment/info:provider-id")
def test_the_provider_is_known_by_a_digest_that_stays(monkeypatch, tmp_path):
    before = info().provider_id
    assert before is not None
    assert re.fullmatch("sha256:[0-9a-f]{64}", before)
    monkeypatch.setenv("HOME", "/elsewhere")
    monkeypatch.chdir(tmp_path)
    assert info().provider_id == before


@requirement("environment/info:provider-id")
def test_the_provider_follows_the_machine_and_hides_its_id(monkeypatch, tmp_path):
    file = tmp_path / "machine-id"
    monkeypatch.setattr(host, "_MACHINE_ID_FILES", (str(file),))
    seen = {info().provider_id}
    for machine_id in ("0123456789abcdef0123456789abcdef", "f" * 32):
        file.write_text(f"{machine_id}\n", encoding="utf-8")
        provider_id = info().provider_id or ""
        assert machine_id not in provider_id
        seen.add(provider_id)
    assert len(seen) == 3


@pytest.mark.parametrize("content", ["", "\n", "uninitialized\n"])
def test_a_machine_without_an_id_is_known_by_its_name(monkeypatch, tmp_path, content):
    file = tmp_path / "machine-id"
    monkeypatch.setattr(host, "_MACHINE_ID_FILES", (str(file),))
    without = info().provider_id
    file.write_text(content, encoding="utf-8")
    assert info().provider_id == without


@requirement("environment/info:cwd")
def test_the_working_directory_has_no_symbolic_links_and_is_percent_encoded(monkeypatch, tmp_path):
    real = tmp_path.resolve() / "we ird#dé"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    monkeypatch.chdir(link)
    monkeypatch.setenv("PWD", str(link))
    cwd = info().cwd
    assert cwd is not None
    assert cwd == to_uri(str(real))
    assert cwd.endswith("/we%20ird%23d%C3%A9")


@requirement("environment/info:cwd-gone")
def test_a_working_directory_that_was_removed_is_null(monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("TMPDIR", "relative")
    assert b'"cwd":null' in wire(info())
    assert (info().temporary_directories, info().temp_dir) == ([], "file:///tmp")


@requirement("environment/info:user-home-dir")
@pytest.mark.parametrize(
    ("home", "uri"),
    [
        ("/nonexistent/a b", "file:///nonexistent/a%20b"),
        ("/a/../b//c/", "file:///b/c"),
        ("/\udcff", "file:///%FF"),
        ("", "file:///home/someone"),
        (None, "file:///home/someone"),
    ],
)
def test_the_home_is_that_of_the_environment_else_of_the_account(account, monkeypatch, home, uri):
    account("/bin/sh")
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", home)
    assert info().user_home_dir == uri


@requirement("environment/info:user-home-dir-omitted")
@pytest.mark.parametrize(("home", "shell"), [("relative", "/bin/sh"), ("", None)])
def test_a_home_that_is_relative_or_unknown_is_left_out(account, monkeypatch, home, shell):
    account(shell)
    monkeypatch.setenv("HOME", home)
    assert b"userHomeDir" not in wire(info())


@requirement("environment/info:temporary-directories")
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("/nonexistent", "/nonexistent"),
        ("/a/../b//c/", "/b/c"),
        ("rel", "{cwd}/rel"),
        ("./rel/../x", "{cwd}/x"),
    ],
)
def test_tmpdir_is_the_temporary_directory_made_absolute(monkeypatch, tmp_path, value, path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", value)
    uri = to_uri(path.format(cwd=tmp_path.resolve()))
    assert (info().temporary_directories, info().temp_dir) == ([uri], uri)


@requirement("environment/info:temp-dir-default")
def test_without_tmpdir_the_default_is_tmp_and_no_directory_is_named(monkeypatch):
    monkeypatch.setenv("TEMP", "/elsewhere")
    monkeypatch.setenv("TMP", "/elsewhere")
    monkeypatch.delenv("TMPDIR", raising=False)
    assert (info().temporary_directories, info().temp_dir) == ([], "file:///tmp")


@requirement("environment/info:temp-dir-empty")
def test_an_empty_tmpdir_is_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", "")
    assert (info().temporary_directories, info().temp_dir) == ([], to_uri(str(tmp_path.resolve())))

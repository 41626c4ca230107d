"""`exec-server ssh-config`: the stanza, and the files of OpenSSH."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exec_server.cli.ssh_door.ssh_config_command import ssh_config_command
from exec_server.cli.ssh_door.ssh_proxy_command import ssh_proxy_command
from exec_server.errors import ConfigurationError
from exec_server.ssh_door.host_key import HostKey
from exec_server.ssh_door.remote_commands import _as_text
from exec_server.ssh_door.ssh_files import SshFiles
from exec_server.ssh_door.stanza import check_host, make_config, split_target
from exec_server.ssh_door.stty_modes import stty_words, with_modes
from tests.requirements import requirement
from tests.support.ssh_host import needed


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A home with two environments."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state %h"))
    text = "".join(
        f'[[environments]]\nid = "{name}"\nurl = "ws://127.0.0.1:1"\n'
        for name in ("build", "lab-2")
    )
    (tmp_path / "environments.toml").write_text(text)
    found: Path = tmp_path
    return found


@requirement("ssh:install")
def test_installing_twice_changes_nothing_and_removing_undoes_it(home, capsys):
    config = home / ".ssh/config"
    config.parent.mkdir()
    before = "Host other\n    User me\n# caf\udce9\n"
    config.write_text(before, errors="surrogateescape")
    config.chmod(0o640)
    assert ssh_config_command(["--install"]) == 0
    first = config.read_bytes(), (home / ".ssh/exec-server.conf").read_bytes()
    assert b'Host "!*\'*" build build%* lab-2 lab-2%* *.exec *.exec%*\n' in first[1]
    assert ssh_config_command(["--install"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert (config.read_bytes(), (home / ".ssh/exec-server.conf").read_bytes()) == first
    assert config.stat().st_mode & 0o777 == 0o640
    assert ssh_config_command(["--remove"]) == 0
    assert config.read_text(errors="surrogateescape") == before
    assert ssh_config_command(["--remove"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert [each.name for each in config.parent.iterdir()] == ["config"]


@requirement("ssh:install")
def test_a_home_that_openssh_does_not_look_at_is_told(home, capsys, monkeypatch):
    assert ssh_config_command(["--install"]) == 0
    told = capsys.readouterr().err
    assert f"ssh -F {home / '.ssh/config'}" in told
    assert f"HOME={pwd.getpwuid(os.getuid()).pw_dir}" in told
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=str(home)))
    assert ssh_config_command(["--install"]) == 0
    assert capsys.readouterr().err == ""


@requirement("ssh:install")
def test_a_config_that_is_a_link_stays_one(tmp_path):
    (tmp_path / "dotfiles").write_text("Host a\n")
    directory = tmp_path / "ssh"
    directory.mkdir()
    (directory / "config").symlink_to("../dotfiles")
    files = SshFiles(directory)
    assert files.install("Host x\n") and not files.install("Host x\n")
    assert (directory / "config").is_symlink()
    assert (tmp_path / "dotfiles").read_text().endswith("\n\nHost a\n")
    assert files.remove()
    assert (tmp_path / "dotfiles").read_text() == "Host a\n"


@requirement("ssh:install")
def test_ends_of_lines_stay_as_they_are(tmp_path):
    before = b"Host a\r\n  User me\r\n"
    (tmp_path / "config").write_bytes(before)
    files = SshFiles(tmp_path)
    assert files.install("Host x\n") and not files.install("Host x\n")
    assert (tmp_path / "config").read_bytes().endswith(before)
    assert files.remove()
    assert (tmp_path / "config").read_bytes() == before


@requirement("ssh:install")
def test_a_config_that_was_made_is_removed(home):
    assert ssh_config_command(["--install", "build"]) == 0
    assert ssh_config_command(["--remove"]) == 0
    assert list((home / ".ssh").iterdir()) == []


@requirement("ssh:no-question")
def test_openssh_reads_the_stanza(home, capsys):
    needed("ssh")
    url = "ws://127.0.0.1:1/a%20b?x='y'"
    assert ssh_config_command(["build", f"box={url}", "--keep", "1h", "--linger", "5"]) == 0
    (home / "config").write_text(capsys.readouterr().out)

    def asked(host: str) -> str:
        words = ["ssh", "-G", "-F", str(home / "config"), host]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    pinned = f"userknownhostsfile {home}/state %h/exec-server/ssh/known_hosts"
    for host in ("build", "build%12ab", "other.exec", "box"):
        found = asked(host)
        assert "hostkeyalias exec-server" in found and pinned in found
        assert "--linger 5 --keep 3600s" in found
    assert "box%%" not in asked("box") and "ssh-proxy" not in asked("other")


@requirement("ssh:install")
def test_wrong_words_are_refused(home, capsys):
    assert ssh_config_command(["nosuch"]) == 1
    assert "`nosuch` is not configured" in capsys.readouterr().err
    assert ssh_config_command(["a b=ws://127.0.0.1:1"]) == 1
    assert ssh_config_command(["box=http://x"]) == 1
    for words in (["--install", "--remove"], ["--remove", "build"]):
        with pytest.raises(SystemExit) as ended:
            ssh_config_command(words)
        assert ended.value.code == 2
    with pytest.raises(ConfigurationError):
        check_host("-oProxyCommand=x")


@requirement("ssh:extra")
def test_without_asyncssh_it_is_said_how_to_get_it(home, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for command, words in ((ssh_config_command, []), (ssh_proxy_command, ["build"])):
        assert command(words) == 1
        assert "pip install 'exec-server[ssh]'" in capsys.readouterr().err


@requirement("ssh:no-question")
def test_the_key_is_made_once_and_pinned(tmp_path):
    key = HostKey(tmp_path / "ssh")
    made = key.private_key()
    assert key.private_key() == HostKey(tmp_path / "ssh").private_key() == made
    pinned = key.known_hosts.read_text()
    assert pinned.startswith("exec-server ssh-ed25519 ")
    key.known_hosts.write_text("exec-server ssh-ed25519 wrong\n")
    key.ensure()
    assert key.known_hosts.read_text() == pinned
    assert (tmp_path / "ssh").stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "ssh").iterdir()} == {0o600}


@requirement("ssh:private")
def test_a_directory_that_others_can_write_to_is_not_used(tmp_path):
    """They could put their own key there, and be the host."""
    directory = tmp_path / "ssh"
    key = HostKey(directory)
    key.ensure()
    directory.chmod(0o777)
    for use in (key.ensure, key.private_key):
        with pytest.raises(ConfigurationError, match=f"{directory} is not used"):
            use()
    directory.chmod(0o700)
    assert key.private_key()


def test_a_host_is_a_name_and_perhaps_a_process():
    assert split_target("build") == ("build", None)
    assert split_target("build.exec") == ("build", None)
    assert split_target("build%3f2a") == ("build", "3f2a")
    assert split_target("build.exec%3f2a") == ("build", "3f2a")


def test_words_of_the_command_are_quoted_for_the_shell_and_for_ssh(tmp_path):
    urls = {"x": "ws://h/?q=%41&r='"}
    text = make_config([], urls, command=["/opt/my dir/exec-server"], known_hosts=tmp_path)
    assert "ProxyCommand '/opt/my dir/exec-server' '%n'" in text
    assert "%%41&r=" in text
    # Every word is taken as it is: ssh would replace a %h in a path by the host.
    text = make_config([], urls, command=["p", "--token-file", "/a%h/t"], known_hosts=tmp_path)
    assert text.count("ProxyCommand p --token-file /a%%h/t ") == 2


@pytest.mark.parametrize("break_", ["\n", "\r", "\x0b", "\0"])
@requirement("ssh:literal")
def test_no_word_begins_a_line_of_its_own(tmp_path, break_):
    text = f"ws://h/{break_}    PermitLocalCommand yes"
    usual: dict[str, Any] = {"command": ["p"], "known_hosts": tmp_path}
    for wrong in ({"command": ["p", text]}, {"known_hosts": tmp_path / text}):
        with pytest.raises(ConfigurationError, match="cannot be written"):
            make_config([], {}, **(usual | wrong))
    with pytest.raises(ConfigurationError, match="cannot be written"):
        make_config([], {"x": text}, **usual)


@pytest.mark.parametrize("name", ['a"b', "${HOME}"])
@requirement("ssh:literal")
def test_a_path_that_ssh_would_read_in_another_way_is_refused(tmp_path, name):
    with pytest.raises(ConfigurationError, match="cannot be written"):
        make_config([], {}, command=["p"], known_hosts=tmp_path / name)


@requirement("ssh:terminal")
def test_only_modes_that_differ_are_set():
    assert stty_words({1: 3, 36: 1, 7: 0, 128: 38400}) == []
    assert stty_words({3: 8, 1: 255, 38: 0, 42: 1}) == [
        *("intr", "undef", "erase", "0x08", "-ixon", "iutf8"),
    ]
    assert with_modes(["a", "b c"], {}) == ["a", "b c"]
    assert with_modes(["a"], {42: 1})[-2:] == ["iutf8", "a"]


def test_a_command_that_is_not_utf_8_is_made_from_its_bytes():
    assert _as_text("echo 'x'") == "echo 'x'"
    made = _as_text("printf %s 'caf\udce9 100% \\'")
    done = subprocess.run(["/bin/sh", "-c", made], capture_output=True, check=True)
    assert done.stdout == b"caf\xe9 100% \\"

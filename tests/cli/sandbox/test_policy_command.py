"""What a person allows for good is remembered, holds for later commands, and can be taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exec_server.cli.sandbox.policy_command import policy_command
from exec_server.errors import ConfigurationError
from exec_server.sandbox.grant_file import add_grant, grant_file, load_grants, remove_grant
from exec_server.sandbox.supervisor.orders import obstacle
from tests.requirements import requirement
from tests.sandbox.test_processes import needs_bubblewrap
from tests.support.cli import MakeTerminal, finished

pytestmark = pytest.mark.one_loop
needs_supervisor = pytest.mark.skipif(
    obstacle() is not None, reason=f"no supervisor here: {obstacle()}"
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return grant_file()


@requirement("denials/policy:file")
def test_grants_are_added_and_removed(path):
    assert load_grants(path) == {}
    for server, grant in (("local", "write=/a"), ("ws://x", 'write=/b "c'), ("local", "write=/a")):
        add_grant(path, server, grant)
    add_grant(path, "ws://x", "write=/a")
    assert load_grants(path) == {"local": ["write=/a"], "ws://x": ['write=/b "c', "write=/a"]}
    assert (path.stat().st_mode & 0o777, remove_grant(path, "write=/nothing")) == (0o600, 0)
    assert remove_grant(path, "write=/a", "ws://x") == 1
    assert load_grants(path) == {"local": ["write=/a"], "ws://x": ['write=/b "c']}
    assert remove_grant(path, "write=/a") == 1
    assert load_grants(path) == {"ws://x": ['write=/b "c']}
    path.write_text("[[")
    with pytest.raises(ConfigurationError, match="is no file with grants"):
        load_grants(path)


@needs_bubblewrap
@needs_supervisor
@requirement("denials/policy:always")
async def test_what_is_always_allowed_holds_for_later_commands(
    path, tmp_path: Path, terminal: MakeTerminal
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "old").write_text("old")
    shown = terminal("sandbox", "--ask", "--", "sh", "-c", f"echo new > {outside}/old")
    await shown.until(b"[once/session/always/never] ")
    shown.type(b"always\n")
    assert await shown.status() == 0
    assert (outside / "old").read_text() == "new\n"
    assert load_grants(path) == {"local": [f"write={outside}/old"]}
    # Without a question, for this path only, and the file itself is closed.
    script = f"echo again > {outside}/old && ! echo x > {outside}/other"
    assert (await finished("sandbox", "--", "sh", "-c", script)).status == 0
    writable = ("--sandbox", f"workspace-write={path.parent}", "--")
    done = await finished("sandbox", *writable, "sh", "-c", f"! echo x >> {path}")
    assert done.status == 0
    assert (outside / "old").read_text() == "again\n"
    assert remove_grant(path, f"write={outside}/old") == 1
    done = await finished("sandbox", "--", "sh", "-c", f"echo x > {outside}/old")
    assert done.status != 0


@requirement("denials/policy:command")
def test_grants_are_listed_and_taken_back(path, capsys):
    for server in ("local", "ws://x"):
        add_grant(path, server, "write=/a")
    assert policy_command(["list", "--server", "ws://x", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"server": "ws://x", "grant": "write=/a"}]
    assert policy_command(["list"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["SERVER", "GRANT"],
        ["local", "write=/a"],
        ["ws://x", "write=/a"],
    ]
    assert policy_command(["remove", "write=/a", "--server", "local"]) == 0
    assert load_grants(path) == {"ws://x": ["write=/a"]}
    assert policy_command(["remove", "write=/a", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": 1}
    assert policy_command(["list"]) == 0
    assert capsys.readouterr().out == ""


@requirement("denials/policy:command")
def test_wrong_words_and_files_are_said(path, capsys):
    for words in (["remove"], ["list", "write=/a"], ["forget"]):
        with pytest.raises(SystemExit) as ended:
            policy_command(words)
        assert ended.value.code == 2
    assert policy_command(["remove", "write=/a", "--server", "x"]) == 1
    assert "`write=/a` is not allowed on `x`" in capsys.readouterr().err
    path.parent.mkdir(parents=True)
    path.write_text("servers = 1")
    assert policy_command(["list", "-o", "json"]) == 1
    assert "is no file with grants" in capsys.readouterr().out


@needs_bubblewrap
@requirement("denials/policy:command")
async def test_a_command_runs_without_a_broken_file(path):
    path.parent.mkdir(parents=True)
    path.write_text("servers = 1")
    ran = await finished("sandbox", "--", "echo", "ran")
    assert (ran.stdout, "no file with grants" in ran.stderr) == (b"ran\n", True)

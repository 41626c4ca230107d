"""What a person allows for good is remembered, holds for later commands, and can be taken back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

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
    words = ("sandbox", "policy")
    assert json.loads((await finished(*words, "list", "-o", "json")).stdout) == [
        {"server": "local", "grant": f"write={outside}/old"}
    ]
    assert (await finished(*words, "remove", f"write={outside}/old")).status == 0
    assert (await finished(*words, "list")).stdout == b""
    done = await finished("sandbox", "--", "sh", "-c", f"echo x > {outside}/old")
    assert done.status != 0


@requirement("denials/policy:command")
async def test_wrong_words_and_files_are_said(path):
    wanted = [
        ("remove",),
        ("list", "write=/a"),
        ("remove", "write=/a"),
        ("remove", "write=/a", "--server", "x"),
    ]
    found = await asyncio.gather(*(finished("sandbox", "policy", *words) for words in wanted))
    assert [done.status for done in found] == [2, 2, 1, 1]
    assert "`write=/a` is not allowed on `x`" in found[3].stderr
    path.parent.mkdir(parents=True)
    path.write_text("servers = 1")
    failed, ran = await asyncio.gather(
        finished("sandbox", "policy", "list", "-o", "json"),
        finished("sandbox", "--", "echo", "ran"),
    )
    assert (failed.status, "no file with grants" in json.loads(failed.stdout)["error"]) == (1, True)
    # A command runs all the same, in the sandbox without grants.
    assert (ran.stdout, "no file with grants" in ran.stderr) == (b"ran\n", True)

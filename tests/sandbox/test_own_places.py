"""The server's own code cannot be changed in a sandbox, and its secrets cannot be read."""

from __future__ import annotations

import os
import socket
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_server.sandbox import own_places
from exec_server.sandbox.backends import HERE
from exec_server.sandbox.grant_file import load_grants
from exec_server.sandbox.landlock import check
from exec_server.sandbox.model import Access, Policy, Rule, Unenforceable
from exec_server.sandbox.plan import plan
from exec_server.sandbox.user_reach import for_user
from tests.requirements import requirement
from tests.sandbox.policies import at, managed, read_only, special
from tests.support.local import connected
from tests.support.servers import ROOT, start_server
from tests.support.wire import Finished

needs_bubblewrap = pytest.mark.skipif(
    not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
)
needs_landlock = pytest.mark.skipif(
    not HERE.landlock_report.works, reason=f"{HERE.landlock_report.obstacle}"
)


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "beside").write_text("beside")
    path = folder / "token"
    path.write_text("the token")
    own_places.hide(path)
    yield path
    own_places.reveal(path)


@needs_bubblewrap
@requirement("security/own:code")
async def test_a_server_in_the_workspaces_venv_cannot_be_rewritten(tmp_path):
    workspace = tmp_path / "workspace"
    venv.create(workspace / ".venv", symlinks=True)
    python = workspace / ".venv" / "bin" / "python"
    packages = next(workspace.glob(".venv/lib/python*/site-packages"))
    found = os.pathsep.join((str(ROOT / "src"), *(p for p in sys.path if "site-packages" in p)))
    script = (
        f"echo x > {packages}/new.py; echo x > {workspace}/.venv/pyvenv.cfg; "
        f"mv {workspace}/.venv {workspace}/gone; rm -r {workspace}/.venv; "
        f"echo x > {workspace}/ours; echo done"
    )
    before = (workspace / ".venv" / "pyvenv.cfg").read_text()
    command = [str(python), "-m", "exec_server"]
    with start_server(command=command, env={"PYTHONPATH": found}) as server:
        async with connected(server.url) as wire:
            context = managed(special("root", "read"), at(workspace, "write"))
            done = await wire.run("p", ["sh", "-c", script], sandbox=context)
            # Nor if the client asks for it by name.
            context = managed(special("root", "read"), at(workspace / ".venv", "write"))
            named = await wire.run("q", ["sh", "-c", script], sandbox=context)
    assert done.stdout == named.stdout == b"done\n"
    assert (workspace / "ours").exists()
    assert (workspace / ".venv" / "pyvenv.cfg").read_text() == before
    assert not (packages / "new.py").exists()


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("bubblewrap", marks=needs_bubblewrap),
        pytest.param("landlock", marks=needs_landlock),
    ],
)
@requirement("security/own:secrets")
async def test_a_secret_of_the_server_cannot_be_read(wire, secret, backend):
    context = {**read_only(), "useLegacyLandlock": backend == "landlock"}
    script = f"cat {secret}; cat {secret.parent}/beside; echo; ls {secret.parent}"
    started = await wire.start("p", ["sh", "-c", script], sandbox=context)
    assert started["sandboxRung"] == backend
    done = Finished(await wire.events_until_closed("p"))
    assert b"the token" not in done.stdout
    assert b"beside" in done.stdout


@needs_bubblewrap
@requirement("security/own:secrets")
async def test_a_secret_in_a_writable_place_is_hidden_and_stays(wire, secret, tmp_path):
    context = managed(special("root", "read"), at(tmp_path, "write"), at(secret, "write"))
    script = f"cat {secret}; echo x > {secret}; rm {secret}; mv {secret.parent} {tmp_path}/gone"
    done = await wire.run("p", ["sh", "-c", script], sandbox=context)
    assert b"the token" not in done.stdout
    assert secret.read_text() == "the token"


@needs_bubblewrap
@requirement("security/own:secrets")
async def test_the_socket_of_the_server_is_hidden(wire, tmp_path):
    path = tmp_path / "server.socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        own_places.hide(path)
        try:
            done = await wire.run("p", ["stat", "-c", "%F", str(path)], sandbox=read_only())
        finally:
            own_places.reveal(path)
    assert b"socket" not in done.stdout


@requirement("security/own:secrets")
def test_landlock_refuses_a_secret_in_a_writable_place(secret, tmp_path):
    rules = (Rule(b"/", Access.READ), Rule(os.fsencode(tmp_path), Access.WRITE))
    policy = Policy(is_managed=True, network="restricted", rules=rules, protects_metadata=False)
    with pytest.raises(Unenforceable, match="Landlock cannot hide this server's own files"):
        check(plan(policy))


@requirement("security/own:code")
def test_a_workspace_below_a_shared_directory_stays_writable():
    # /usr/src/app is a usual place for a workspace, and /usr a usual prefix of an interpreter.
    for path in own_places.protected():
        assert path not in (b"/", b"/usr", b"/usr/local", b"/opt")
    assert os.fsencode(os.path.realpath(sys.prefix)) in own_places.protected()


@requirement("security/own:code")
def test_bytecode_in_a_place_of_its_own_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    bytecode = tmp_path / str(Path(own_places.__file__).resolve().parents[1]).lstrip("/")
    bytecode.mkdir(parents=True)
    assert os.fsencode(bytecode.resolve()) in own_places.protected()
    # What other programs have there stays as it is.
    assert os.fsencode(tmp_path.resolve()) not in own_places.protected()


@needs_bubblewrap
@requirement("security/own:trusted")
async def test_no_sandbox_makes_a_file_that_is_trusted_later(tmp_path):
    (tmp_path / ".config").mkdir()
    (tmp_path / ".local").mkdir()
    script = f"""
        cd {tmp_path}; grants=.config/exec-server; state=.local/state/exec-server
        mkdir -p $grants; echo '[servers.local]' > $grants/grants.toml; rm -f $grants/grants.toml
        mv $grants .config/gone; echo x > $grants/new && mv $grants/new $grants/grants.toml
        mkdir -p $state; echo x > $state/principals.sqlite3; mv .local/state .local/gone
        echo x > .config/other && echo done
    """
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}
    with start_server(env=env) as server:
        async with connected(server.url) as wire:
            context = managed(special("root", "read"), at(tmp_path, "write"))
            done = await wire.run("p", ["sh", "-c", script], sandbox=context)
    assert done.stdout == b"done\n", done.stderr
    assert load_grants(tmp_path / ".config/exec-server/grants.toml") == {}
    assert (tmp_path / ".config/exec-server/grants.toml").stat().st_mode & 0o777 == 0o600
    assert list((tmp_path / ".local/state/exec-server").iterdir()) == []


@requirement("security/own:trusted")
def test_a_link_to_a_trusted_file_that_could_be_changed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "config/exec-server").symlink_to(tmp_path / "elsewhere")
    rules = (Rule(b"/", Access.READ), Rule(os.fsencode(tmp_path / "config"), Access.WRITE))
    with pytest.raises(Unenforceable, match="crosses writable symlink"):
        plan(Policy(True, "restricted", rules))


@requirement("security/own:trusted")
def test_a_trusted_file_that_is_a_link_to_nothing_writable_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config/exec-server").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    # The link cannot be changed, but a command could make the file that it leads to.
    (tmp_path / "config/exec-server/grants.toml").symlink_to(tmp_path / "work/grants.toml")
    rules = (Rule(b"/", Access.READ), Rule(os.fsencode(tmp_path / "work"), Access.WRITE))
    with pytest.raises(Unenforceable, match="File exists"):
        plan(Policy(True, "restricted", rules))
    (tmp_path / "work/grants.toml").touch()
    plan(Policy(True, "restricted", rules))


@requirement("security/own:trusted")
def test_a_sandbox_that_could_not_make_it_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    rules = (Rule(b"/", Access.READ), Rule(os.fsencode(tmp_path / "work"), Access.WRITE))
    plan(Policy(True, "restricted", rules))
    assert not (tmp_path / "config").exists()


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root has folders that another user cannot enter"
)
@requirement("security/own:secrets")
def test_nothing_is_mounted_where_another_user_cannot_go(secret, tmp_path):
    tmp_path.chmod(0o700)
    rules = (Rule(b"/", Access.READ), Rule(os.fsencode(tmp_path), Access.WRITE))
    planned = plan(Policy(True, "restricted", rules))
    assert os.fsencode(secret) in planned.own_secrets
    assert os.fsencode(secret.parent) in planned.anchors
    seen = for_user(planned, 65534, ())
    assert seen.own_secrets == ()
    assert all(not anchor.startswith(os.fsencode(f"{tmp_path}/")) for anchor in seen.anchors)

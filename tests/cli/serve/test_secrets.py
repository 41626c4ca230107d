"""The secrets of a server, and the commands that it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.sandbox import policies
from tests.sandbox.escape.users import User, user
from tests.support.backends import needs_bubblewrap, needs_landlock
from tests.support.servers import start_server
from tests.support.wire import Wire

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux"),
    pytest.mark.one_loop,
]
SECRET = "a-secret-of-the-server-in-a-variable"


@pytest.fixture
def stranger() -> User:
    """A user that is not root: root can read everything."""
    found = user("nobody")
    if found is None:
        pytest.skip("no Python that another user can run")
    return found


@requirement("secrets:environment")
@pytest.mark.parametrize("name", ["EXEC_SERVER_TOKEN", "EXEC_SERVER_REGISTRY_TOKEN"])
async def test_no_command_finds_a_secret_that_came_in_a_variable(name):
    with start_server(env={name: SECRET}) as server:
        assert SECRET.encode() not in Path(f"/proc/{server.pid}/environ").read_bytes()
        async with Wire(server.url) as wire:
            await wire.initialize()
            policy = {
                "inherit": "all",
                "ignoreDefaultExcludes": True,
                "exclude": [],
                "set": {},
                "includeOnly": [],
            }
            own = f"tr '\\0' '\\n' </proc/{server.pid}/environ; env"
            seen = await wire.run("p", ["sh", "-c", own], envPolicy=policy)
            assert b"PATH=" in seen.stdout
            assert SECRET.encode() not in seen.stdout
            inherited = await wire.run("q", ["env"], envPolicy=policy)
            assert b"EXEC_SERVER_SECRETS_FD" not in inherited.stdout


@requirement("secrets:environment")
@pytest.mark.parametrize("name", ["CODEX_ACCESS_TOKEN", "CODEX_API_KEY"])
async def test_variables_of_codex_stay_where_no_registry_is_used(name):
    """A server without a registry does not use them, and commands of Codex may."""
    with start_server(env={name: "of-the-user"}) as server:
        assert b"of-the-user" in Path(f"/proc/{server.pid}/environ").read_bytes()


@requirement("secrets:memory")
@pytest.mark.parametrize("has_secret", [True, False])
async def test_a_command_cannot_look_into_a_server_that_holds_a_secret(
    stranger, open_folder, has_secret
):
    token = open_folder / "token"
    token.write_text(SECRET)
    token.chmod(0o600)
    os.chown(token, stranger.uid, stranger.gid)
    options = ["--ws-auth", "capability-token", "--ws-token-file", str(token)]
    with start_server(
        *(options if has_secret else []),
        command=stranger.command,
        env={"PYTHONPATH": stranger.path},
    ) as server:
        async with Wire(server.url, headers={"Authorization": f"Bearer {SECRET}"}) as wire:
            await wire.initialize()
            script = "cd /proc/$0 && cat environ maps | head -c 1; readlink fd/1"
            seen = await wire.run("p", ["sh", "-c", script, str(server.pid)])
            assert (seen.stdout == b"") is has_secret
            assert (await wire.run("q", ["id", "-u"])).stdout.strip() == b"%d" % stranger.uid
            # Everything else works as before.
            params = {"path": f"file://{open_folder}"}
            assert (await wire.call("fs/readDirectory", params))["entries"]
            terminal = await wire.run("t", ["tty"], tty=True)
            assert b"/dev/pts/" in terminal.stream("pty")


@requirement("security/own:secrets")
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("bubblewrap", marks=needs_bubblewrap),
        pytest.param("landlock", marks=needs_landlock),
    ],
)
async def test_a_sandboxed_command_cannot_read_the_files_of_its_server(tmp_path, backend):
    token = tmp_path / "token"
    token.write_text(SECRET)
    token.chmod(0o600)
    beside = tmp_path / "beside"
    beside.write_text("readable")
    options = ("--ws-auth", "capability-token", "--ws-token-file", str(token))
    with start_server(*options) as server:
        async with Wire(server.url, headers={"Authorization": f"Bearer {SECRET}"}) as wire:
            await wire.initialize()
            sandbox = {**policies.read_only(), "useLegacyLandlock": backend == "landlock"}
            seen = await wire.run("p", ["cat", str(beside), str(token)], sandbox=sandbox)
            assert seen.stdout == b"readable"
            assert seen.exit_code != 0

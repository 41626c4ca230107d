"""What a new user does wrong at first, and what the program says to it."""

from __future__ import annotations

import pytest

from tests.requirements import requirement
from tests.support.cli import finished

pytestmark = pytest.mark.one_loop


@requirement("cli/hints")
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["run", "localhost:4000", "--", "ls"], "tip: did you mean 'ws://localhost:4000'?"),
        (["run", "http://127.0.0.1:1", "--", "ls"], "tip: did you mean 'ws://127.0.0.1:1'?"),
        (["shell", "https://host", "ls"], "tip: did you mean 'wss://host'?"),
        (["registry", "tokn", "list"], "unrecognized subcommand 'tokn'"),
        (["registry", "tokn", "list"], "tip: a similar subcommand exists: 'token'"),
        (["ps", "--quite"], "tip: a similar argument exists: '--quiet'"),
        (["serve"], "tip: without a subcommand this program starts a server"),
        (["--token-file", "x", "ls", "ws://h:1:/"], "tip: options of 'ls' come after it"),
        (["pair"], "say what to do: --registry URL, --serve, CODE@REGISTRY or --forget NAME"),
    ],
)
async def test_a_wrong_command_line_gets_a_hint(words, hint):
    done = await finished(*words)
    assert done.status == 2 and hint in done.stderr


@requirement("cli/hints")
async def test_a_registry_says_where_it_can_listen():
    for url in ("127.0.0.1:0", "http://127.0.0.1:0", "stdio"):
        done = await finished("registry", "--listen", url)
        assert done.status == 1
        assert done.stderr == f"Error: a registry listens on ws://IP:PORT, not on `{url}`\n"


@requirement("cli/hints")
async def test_a_missing_token_is_explained(server_with_token):
    url, token = server_with_token
    done = await finished("run", url, "--", "true")
    assert done.status == 1
    assert "tip: give its token with --token-file PATH or EXEC_SERVER_TOKEN" in done.stderr
    assert (await finished("run", "--token", token, url, "--", "true")).status == 0


@requirement("cli/hints")
async def test_a_server_without_a_path_is_shown_as_it_was_written(server):
    done = await finished("cat", server.url)
    assert done.stderr.startswith(f"Error: {server.url}: path ")


@requirement("cli/hints")
async def test_a_missing_credential_names_the_option(tmp_path):
    words = ["--remote", "http://127.0.0.1:1", "--environment-id", "a"]
    env = {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path), "PATH": "/usr/bin"}
    done = await finished(*words, env=env)
    assert done.status == 1 and "--registry-token-file" in done.stderr


@requirement("cli/hints")
async def test_a_token_for_a_misspelt_name_is_told_when_the_login_is_refused(
    home, server_with_token
):
    url, _ = server_with_token
    codex = home / "codex"
    (codex / "environments.toml").write_text(f'[[environments]]\nid = "box"\nurl = "{url}"\n')
    (codex / "exec-server.toml").write_text('[environments.bxo]\nauth_bearer_token_file = "t"\n')
    done = await finished("run", "box", "--", "true")
    assert done.status == 1 and "[environments.bxo] has no effect" in done.stderr

"""What a new user does wrong at first, and what the program says to it."""

from __future__ import annotations

import pytest

from tests.requirements import requirement
from tests.support.certificates import make_certificates
from tests.support.cli import finished
from tests.support.servers import start_server

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
        # The misspelt option is told although a word is missing as well.
        (["attach", "--forse"], "unrecognized arguments: --forse\n\n  tip: a similar argument exi"),
        (["cp", "--recursve", "src"], "tip: a similar argument exists: '--recursive'"),
        (
            ["cp", "--", "--recursve"],
            "the following required arguments were not provided:\n  <DST>",
        ),
        (["serve"], "tip: without a subcommand this program starts a server"),
        (["--token-file", "x", "ls", "ws://h:1:/"], "tip: options of 'ls' come after it"),
        (["pair", "K7QF-2MXT-9PWRSA"], "or CODE@REGISTRY as the other machine has printed it"),
        (["pair"], "say what to do: --registry URL, --serve, CODE@REGISTRY or --forget NAME"),
    ],
)
async def test_a_wrong_command_line_gets_a_hint(words, hint):
    done = await finished(*words)
    assert done.status == 2 and hint in done.stderr


@requirement("cli/hints")
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["fingerprint", "nosuch"], "`nosuch` is neither a file nor a name that `exec-server env`"),
        (["run", "ws://127.0.0.1:x", "true"], "`ws:...`: its port is not a number from 0 to 65535"),
        (["run", "ws://127.0.0.1:65536", "true"], "its port is not a number from 0 to 65535"),
        (["conformance", "ws://127.0.0.1:1"], "ws://127.0.0.1:1 does not answer: Connection refus"),
        (
            ["conformance", "stdio:sh -c 'echo hi; cat >/dev/null'"],
            "does not answer: what it sends is not JSON",
        ),
        (["token", "list"], "`exec-server token create NAME` makes it"),
    ],
)
async def test_a_failure_says_what_it_is_about(home, words, hint):
    done = await finished(*words)
    assert done.status == 1 and hint in done.stderr


@requirement("cli/hints")
async def test_a_server_that_needs_tls_is_not_called_another_program(tmp_path):
    make_certificates(tmp_path)
    pem = str(tmp_path / "server.pem")
    with start_server("--tls-cert", pem, "--tls-key", pem) as server:
        done = await finished("run", server.url.replace("wss:", "ws:"), "--", "true")
    assert done.stderr.endswith(
        "HTTP 400 Bad Request: this port needs TLS: use wss://, not ws://\n"
    )


@requirement("cli/hints")
async def test_a_registry_says_where_it_can_listen():
    for url in ("127.0.0.1:0", "http://127.0.0.1:0", "stdio"):
        done = await finished("registry", "--listen", url)
        assert done.status == 1
        assert done.stderr == f"Error: a registry listens on ws://IP:PORT, not on `{url}`\n"


@requirement("cli/hints")
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("kill", "End a shell that waits for commands, which ignores SIGTERM"),
        ("attach", "or the name that --name gave"),
    ],
)
async def test_the_help_tells_what_people_look_for(command, text):
    # The lines are as long as the terminal is wide.
    words = (await finished(command, "--help")).stdout.decode().split()
    assert text in " ".join(words)


@requirement("cli/hints")
async def test_the_help_of_a_command_without_a_server_names_none():
    words = (await finished("sandbox", "--help")).stdout.decode().split()
    assert "connection was lost" not in " ".join(words)


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

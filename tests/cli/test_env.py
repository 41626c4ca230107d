"""`exec-server env`, and names wherever a URL can be."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from exec_server.cli.files.targets import Target, parse_target
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.cli import MakeTerminal, finished
from tests.support.servers import OURS

pytestmark = pytest.mark.one_loop


def configure(home: Path, text: str) -> None:
    (home / "codex" / "environments.toml").write_text(text)


def environment(name: str, url: str, rest: str = "") -> str:
    return f'[[environments]]\nid = "{name}"\nurl = "{url}"\n{rest}\n'


PROGRAM = f"""
[[environments]]
id = "child"
program = "{sys.executable}"
args = {json.dumps([*OURS[1:], "--listen", "stdio"])}
"""


@requirement("cli/env:list")
async def test_environments_are_listed_without_secrets(home):
    secret = 'auth_bearer_token = "secret"'
    configure(home, 'default = "box"\n' + environment("box", "ws://h:1?k=secret", secret) + PROGRAM)
    done = await finished("env")
    assert done.status == 0 and b"secret" not in done.stdout
    head, *rows = done.stdout.decode().splitlines()
    assert head.split() == ["NAME", "KIND", "WHERE"]
    assert rows[0].split() == ["box*", "websocket", "ws://h:1"]
    assert {row.split()[0] for row in rows[1:]} == {"local", "child"}
    done = await finished("env", "list", "-o", "json", "box")
    assert json.loads(done.stdout) == [
        {"name": "box", "kind": "websocket", "where": "ws://h:1", "default": True}
    ]


@requirement("cli/env:list")
async def test_without_a_file_there_is_the_local_one(home):
    done = await finished("env", "-o", "json")
    assert [each["name"] for each in json.loads(done.stdout)] == ["local"]


@requirement("cli/env:list", "cli/env:names")
async def test_a_wrong_file_is_told(home):
    configure(home, "nope = 1")
    for words in (["env"], ["run", "box", "true"], ["ls", "box:/"]):
        done = await finished(*words)
        assert done.status == 1 and "environments.toml" in done.stderr
    # URLs do not need it.
    assert "Connection refused" in (await finished("run", "ws://127.0.0.1:1", "true")).stderr


@requirement("cli/env:check")
async def test_each_is_tried(home, server):
    configure(
        home,
        environment("good", server.url) + environment("gone", "ws://127.0.0.1:1") + PROGRAM,
    )
    done = await finished("env", "check", "-o", "json")
    assert done.status == 1
    facts = {each["name"]: each for each in json.loads(done.stdout)}
    assert {name: each["ready"] for name, each in facts.items()} == {
        "local": True,
        "good": True,
        "gone": False,
        "child": True,
    }
    assert facts["good"]["latencyMs"] > 0 and facts["gone"]["latencyMs"] is None
    assert "Connection refused" in facts["gone"]["problem"]
    one = await finished("env", "check", "good")
    assert one.status == 0 and one.stdout.decode().splitlines()[1].endswith("ready")
    assert "Connection refused" in (await finished("env", "check", "gone")).stdout.decode()


@requirement("cli/env:check")
async def test_a_url_is_tried_as_well(home, server):
    good = await finished("env", "check", server.url)
    assert good.status == 0 and good.stdout.decode().splitlines()[1].endswith("ready")
    gone = await finished("env", "check", "-o", "json", "ws://127.0.0.1:1?secret")
    (facts,) = json.loads(gone.stdout)
    assert gone.status == 1 and facts["name"] == "ws://127.0.0.1:1"
    assert "Connection refused" in facts["problem"]
    wrong = await finished("env", "check", "127.0.0.1:1")
    assert wrong.status == 2 and "invalid value '127.0.0.1:1'" in wrong.stderr


@requirement("cli/env:check", "cli/env:names")
async def test_a_name_that_is_not_configured_is_told(home):
    for words in (["env", "check", "nope"], ["run", "nope", "true"]):
        done = await finished(*words)
        assert done.status == 1
        assert done.stderr == "Error: environment `nope` is not configured; there are: local\n"


@requirement("cli/env:names")
async def test_a_name_works_wherever_a_url_does(home, server, terminal: MakeTerminal, tmp_path):
    configure(home, environment("box", server.url))
    (tmp_path / "file").write_text("content")
    for words in (
        ["run", "box", "cat", str(tmp_path / "file")],
        ["cat", f"box:{tmp_path}/file"],
    ):
        done = await finished(*words)
        assert (done.status, done.stdout) == (0, b"content"), done.stderr
    done = await finished("cp", f"box:{tmp_path}/file", str(tmp_path / "copy"))
    assert done.status == 0 and (tmp_path / "copy").read_text() == "content"
    screen = terminal("shell", "box", "--", "sh", "-c", "echo ready; exit 3")
    await screen.until(b"ready\r\n")
    assert await screen.status() == 3
    session_id = (await finished("run", "-d", "box", "echo", "said")).stdout.decode().strip()
    assert (await finished("attach", session_id)).stdout == b"said\n"
    [found] = json.loads((await finished("ps", "-o", "json", "box")).stdout)
    assert (found["server"], found["state"], found["exitCode"]) == ("box", "exited", 0)


@requirement("cli/env:names")
async def test_programs_and_the_local_one_have_names_too(home):
    configure(home, PROGRAM)
    for name in ("child", "local"):
        done = await finished("run", name, "echo", "hi")
        assert (done.status, done.stdout, done.stderr) == (0, b"hi\n", "")
        assert (await finished("run", "--detach", name, "true")).status == 1


@requirement("cli/env:names")
def test_a_file_on_a_server_may_be_named(home):
    configure(home, environment("box", "ws://h:1"))
    assert parse_target("box:/a:b") == Target("box", "/a:b")
    assert parse_target("box:") == Target("box", "")
    for text in ("box", "other:/a", "./box:/a", "dir/box:/a", "./box:a"):
        assert parse_target(text) == Target(None, text)


@requirement("cli/env:token")
async def test_which_token_is_shown(home):
    check = CapabilityToken(hashlib.sha256(b"right").digest())
    async with serve(authenticator=check) as server:
        configure(
            home,
            environment("with", server.url, 'auth_bearer_token = "right"')
            + environment("wrong", server.url, 'auth_bearer_token = "no"')
            + environment("without", server.url),
        )

        async def run(*words: str, variable: str) -> int:
            env = {"EXEC_SERVER_TOKEN": variable, "CODEX_HOME": str(home / "codex")}
            return (await finished("run", *words, "true", env=env)).status

        assert await run("with", variable="no") == 0
        assert await run("without", variable="right") == 0
        assert await run("wrong", variable="right") == 1
        assert await run("--token", "right", "wrong", variable="no") == 0
        assert await run("--token", "no", "with", variable="right") == 1


@requirement("cli/registry:unreachable")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_registry_that_is_not_there_is_told_in_plain_words(home, scheme):
    done = await finished(
        "env", "list", "--registry", f"{scheme}://127.0.0.1:1", "--token", "secret"
    )
    assert done.status == 1
    assert done.stderr == "Error: cannot connect to 127.0.0.1:1: Connection refused\n"

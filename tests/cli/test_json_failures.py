"""With `-o json` every failure is one JSON object on standard output, and a line on stderr."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from exec_server.cli.commands import GROUPS, REGISTRY_COMMANDS
from exec_server.cli.parser import parser_of
from tests.requirements import requirement
from tests.support.cli import finished

pytestmark = pytest.mark.one_loop

NOWHERE = "ws://127.0.0.1:1"
# The words that each command with `-o` needs; {} is a place for options.
WORDS = {
    "run": "run {} URL -- true",
    "sandbox": "sandbox {} -- true",
    "web": "web {} URL",
    "ps": "ps {}",
    "logs": "logs {} 12345678",
    "screen": "screen {} 12345678",
    "kill": "kill {} 12345678",
    "jobs": "jobs prune {} URL",
    "recordings": "recordings {} --dir STATE",
    "stop": "stop {} URL",
    "port": "port {} URL -L 0:localhost:80",
    "token": "token {} list --file STATE",
    "whoami": "whoami {} URL",
    "audit": "audit {} STATE",
    "cert": "cert {} client STATE alice",
    "ls": "ls {} URL:/",
    "find": "find {} URL:/",
    "tree": "tree {} URL:/",
    "stat": "stat {} URL:/",
    "cp": "cp {} STATE URL:/",
    "mv": "mv {} STATE URL:/",
    "sync": "sync {} STATE URL:/",
    "grep": "grep {} x URL:/",
    "watch": "watch {} URL:/",
    "conformance": "conformance {} URL",
    "env": "env {}",
    "doctor": "doctor {} URL",
    "pair": "pair {} --registry http://127.0.0.1:1 --code x",
    "registry token": "registry token {} list --state STATE",
    "registry env": "registry env {} --registry http://127.0.0.1:1",
    "registry events": "registry events {} --registry http://127.0.0.1:1",
}


def _commands_with_output() -> set[str]:
    found = set()
    for prefix, entries in [
        *(("", group.entries) for group in GROUPS),
        ("registry ", REGISTRY_COMMANDS),
    ]:
        for entry in entries:
            if entry.name in ("help", "completion"):
                continue
            if parser_of(entry.load()).find_option("--output") is not None:
                found.add(prefix + entry.name)
    return found


@requirement("cli/json:failures")
def test_the_table_has_every_command_with_json():
    assert set(WORDS) == _commands_with_output()


def _line(
    command: str, options: str, *, url: str = NOWHERE, state: str = "/dev/null/state"
) -> list[str]:
    text = WORDS[command].replace("{}", f"-o json {options}")
    return [word.replace("URL", url).replace("STATE", state) for word in text.split()]


async def _failure(words: list[str], home: Path) -> dict[str, object]:
    """The object of a command that must fail."""
    env = {
        "PATH": os.environ["PATH"],
        **dict.fromkeys(("HOME", "CODEX_HOME", "XDG_STATE_HOME"), str(home)),
    }
    done = await finished(*words, env=env)
    assert done.status != 0, words
    facts: dict[str, object] = json.loads(done.stdout)
    assert facts["exitCode"] == done.status
    assert isinstance(facts["error"], str) and facts["error"].splitlines()[0] in done.stderr
    return facts


@requirement("cli/json:failures")
@pytest.mark.parametrize("command", sorted(WORDS))
async def test_a_wrong_option_is_told_as_json(command, tmp_path):
    facts = await _failure(_line(command, "--bogus"), tmp_path)
    assert facts["exitCode"] == 2 and "--bogus" in str(facts["error"])


# Commands that read a token before they do anything else.
WITH_TOKEN = sorted(
    set(WORDS)
    - {"audit", "sandbox", "registry token", "env", "pair", "logs", "screen", "cert", "recordings"}
)


@requirement("cli/json:failures")
@pytest.mark.parametrize("command", WITH_TOKEN)
async def test_a_token_that_cannot_be_read_is_told_as_json(command, tmp_path):
    facts = await _failure(_line(command, "--token-file /missing/token"), tmp_path)
    assert "/missing/token" in str(facts["error"])


@requirement("cli/json:failures")
@pytest.mark.parametrize("command", sorted(set(WORDS) - {"sandbox", "ps", "env", "web"}))
async def test_what_cannot_be_reached_is_told_as_json(command, tmp_path):
    token = tmp_path / "token"
    token.write_text("abc")
    option = f"--token-file {token}" if command.startswith("registry e") else ""
    await _failure(_line(command, option), tmp_path)


@requirement("cli/json:failures")
@pytest.mark.parametrize(
    "words",
    [
        ["ls", "-o", "json", "URL:/no/such"],
        ["find", "-o", "json", "URL:/no/such"],
        ["tree", "-o", "json", "URL:/no/such"],
        ["stat", "-o", "json", "URL:/no/such"],
        ["stat", "-o", "json", "URL:/no/such", "URL:/"],
        ["run", "-o", "json", "URL", "--", "/no/such"],
        ["run", "-o", "json", "--cwd", "/no/such", "URL", "true"],
        ["run", "-o", "json", "nosuch", "true"],
        ["sandbox", "-o", "json", "--", "/no/such"],
        ["sandbox", "-o", "json", "--cwd", "/no/such", "--", "true"],
        ["ps", "-o", "json", "--forget", "abc"],
        ["ps", "-o", "json", NOWHERE],
        ["ps", "-o", "json", "nosuch"],
        ["env", "-o", "json", "nosuch"],
        ["env", "check", "-o", "json", "nosuch"],
        ["doctor", "-o", "json", "nosuch"],
        ["web", "-o", "json", "nosuch"],
        ["registry", "token", "-o", "json", "revoke", "abc", "--state", "STATE"],
        ["registry", "token", "-o", "json", "create", "x", "y", "--state", "STATE"],
        ["pair", "-o", "json", "--forget", "nosuch"],
        ["pair", "-o", "json", "--registry", "http://127.0.0.1:1", "box"],
    ],
)
async def test_what_fails_later_is_told_as_json(server, tmp_path, words):
    state = str(tmp_path / "registry")
    named = [word.replace("URL", server.url).replace("STATE", state) for word in words]
    facts = await _failure(named, tmp_path)
    if named[-1] == f"{server.url}:/":
        assert [entry["path"] for entry in facts["entries"]] == ["/"]  # type: ignore[attr-defined]


@requirement("cli/json:failures")
async def test_a_broken_configuration_is_told_as_json(tmp_path):
    (tmp_path / "environments.toml").write_text("nonsense")
    for command in ("run", "ls", "env", "doctor"):
        facts = await _failure(_line(command, "", url="box"), tmp_path)
        assert "environments.toml" in str(facts["error"])


@requirement("cli/json:failures")
async def test_a_name_that_is_not_text_is_told_as_json(server, tmp_path):
    odd = os.fsdecode(b"/no/such\xff")
    await _failure(["ls", "-o", "json", f"{server.url}:{odd}"], tmp_path)
    await _failure(["run", "-o", "json", "--token-file", odd, server.url, "true"], tmp_path)

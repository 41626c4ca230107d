"""The environment that real children find; tests/state/test_child_env.py has every rule."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.wire import Wire, start_params

# The server's own environment in these tests.
SERVER = {
    "PATH": "/servers/path",
    "HOME": "/servers/home",
    "lang": "C.UTF-8",
    "OTHER": "other",
    "API_TOKEN": "secret",
    "my_key": "secret",
    "EXTRA_ONE": "1",
    "EXTRA_TWO": "2",
    "NODE_REPL_AUTH_TOKEN": "secret",
    "CODEX_TOOL_CALL_ID": "the server's",
    "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE": "false",
    "TRICKY": "a=b c\nd",
}


def policy(inherit: str = "all", **members: object) -> dict[str, object]:
    return {
        "inherit": inherit,
        "ignoreDefaultExcludes": True,
        "exclude": [],
        "set": {},
        "includeOnly": [],
        **members,
    }


@pytest.fixture
async def wire(monkeypatch, no_leaks) -> AsyncIterator[Wire]:
    """A connection to a server whose own environment is SERVER."""
    for name in tuple(os.environ):
        monkeypatch.delenv(name)
    for name, value in SERVER.items():
        monkeypatch.setenv(name, value)
    async with serve() as server, Wire(server.url) as connection:
        await connection.initialize()
        yield connection


async def environment(wire: Wire, name: str = "p", **params: object) -> dict[str, str]:
    """The environment of a child."""
    finished = await wire.run(name, ["/bin/cat", "/proc/self/environ"], **params)
    output = finished.stdout or finished.stream("pty")
    return dict(entry.split("=", 1) for entry in output.decode().split("\0")[:-1])


@requirement("process/start.env:exact-without-policy", "process/start.env:nothing-added-on-pipes")
async def test_without_a_policy_a_child_gets_exactly_env(wire):
    env = {"A": "b", "EMPTY": "", "É": "ü=\n", "a": "lower"}
    assert await environment(wire, env=env) == env
    assert await environment(wire, "q", env={}) == {}


@requirement("process/start.envPolicy:inherit-all", "process/start.env:over-policy")
async def test_all_inherits_what_the_server_has(wire):
    found = await environment(wire, env={"OTHER": "mine", "NEW": "1"}, envPolicy=policy())
    withheld = {
        "NODE_REPL_AUTH_TOKEN",
        "CODEX_TOOL_CALL_ID",
        "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
    }
    inherited = {name: value for name, value in SERVER.items() if name not in withheld}
    assert found == {**inherited, "OTHER": "mine", "NEW": "1"}


@requirement("process/start.envPolicy:inherit-core")
async def test_core_inherits_little(wire):
    found = await environment(wire, env={}, envPolicy=policy("core"))
    assert found == {"PATH": "/servers/path", "HOME": "/servers/home", "lang": "C.UTF-8"}


@requirement("process/start.envPolicy:inherit-none")
async def test_none_inherits_nothing(wire):
    assert await environment(wire, env={"A": "b"}, envPolicy=policy("none")) == {"A": "b"}


@requirement(
    "process/start.envPolicy:default-excludes",
    "process/start.envPolicy:exclude",
    "process/start.envPolicy:set",
    "process/start.envPolicy:include-only",
)
async def test_the_steps_of_a_policy_follow_one_another(wire):
    found = await environment(
        wire,
        env={"API_TOKEN": "mine"},
        envPolicy=policy(
            ignoreDefaultExcludes=False,
            exclude=["extra_*", "H?ME"],
            set={"EXTRA_TWO": "set", "MY_KEY": "set", "DROPPED": "set"},
            includeOnly=["*EXTRA*", "my_key", "o*"],
        ),
    )
    # The variables are overlaid, set after the excludes, set in another case, and inherited.
    assert found == {"API_TOKEN": "mine", "EXTRA_TWO": "set", "MY_KEY": "set", "OTHER": "other"}


@requirement(
    "process/start.env:server-credentials-withheld", "process/start.env:launch-names-withheld"
)
async def test_the_servers_credentials_reach_no_child(wire):
    env = {
        "openai_identity_token_FILE": "x",
        "NODE_REPL_AUTH_TOKEN": "x",
        "CODEX_TOOL_CALL_ID": "x",
        "codex_tool_call_id": "kept",
    }
    found = await environment(
        wire, env=env, envPolicy=policy("none", set={"OPENAI_FEDERATION_RULE_ID": "x"})
    )
    assert found == {"codex_tool_call_id": "kept"}


@pytest.mark.parametrize("tool_call_id", ["call-1", ""])
@requirement("process/start.env:tool-call-id")
async def test_the_id_of_a_tool_call_is_set(wire, tool_call_id):
    found = await environment(
        wire, env={"CODEX_TOOL_CALL_ID": "x"}, metadata={"toolCallId": tool_call_id}
    )
    assert found == {"CODEX_TOOL_CALL_ID": tool_call_id}


@requirement("process/start.env:tty-shell")
async def test_a_terminal_adds_a_shell_unless_there_is_one(wire):
    found = await environment(wire, env={"A": "b"}, tty=True)
    assert found.keys() == {"A", "SHELL"}
    assert found["SHELL"].startswith("/")


@requirement("process/start.env:tty-shell")
async def test_a_shell_of_the_callers_stays(wire):
    assert await environment(wire, env={"SHELL": "mine"}, tty=True) == {"SHELL": "mine"}


@requirement("process/start.env:odd-names")
async def test_odd_names_pass_through(wire):
    finished = await wire.run(
        "p", ["/bin/cat", "/proc/self/environ"], env={"A=B": "c", "": "empty", "D": "e"}
    )
    assert sorted(finished.stdout.split(b"\0")[:-1]) == [b"=empty", b"A=B=c", b"D=e"]


@requirement("process/start.env:each-once")
async def test_names_that_a_program_cannot_tell_apart_are_there_once(wire):
    finished = await wire.run(
        "p",
        ["/bin/cat", "/proc/self/environ"],
        env={"A=C": "3", "A": "1", "A=B": "2", "": "x", "=": "y"},
    )
    # The last variable in alphabetical order.
    assert sorted(finished.stdout.split(b"\0")[:-1]) == [b"==y", b"A=C=3"]


@requirement("process/start.env:nul")
async def test_a_nul_in_a_name_or_value_is_refused(wire):
    for env in ({"A": "b\0c"}, {"A\0": "b"}):
        error = await wire.error("process/start", start_params("p", ["/bin/true"], env=env))
        assert error["code"] == -32603
    assert await wire.call("process/list") == {"processes": []}


@requirement("process/start.env:read-once")
async def test_the_servers_environment_is_that_of_its_start(wire, monkeypatch):
    monkeypatch.setenv("LATER", "x")
    found = await environment(wire, env={}, envPolicy=policy(includeOnly=["LATER", "OTHER"]))
    assert found == {"OTHER": "other"}

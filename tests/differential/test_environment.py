"""The environments of children beside the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.comparing import Both, ran
from tests.support.servers import reference_binary, start_reference, start_server

pytestmark = pytest.mark.one_loop

# Beside what the tests themselves run with.
SERVER = {
    "API_TOKEN": "secret",
    "my_Secret_x": "secret",
    "MONKEY": "contains key",
    "EXTRA_ONE": "1",
    "EXTRA_TWO": "2",
    "lower": "case",
    "[A]": "brackets",
    "lang": "lower",
    "TMPDIR": "/tmp",
    "LC_ALL": "C.UTF-8",
    "LOGNAME": "someone",
    "NODE_REPL_AUTH_TOKEN": "secret",
    "OPENAI_IDENTITY_TOKEN_FILE": "secret",
    "CODEX_TOOL_CALL_ID": "the server's",
    "CODEX_THREAD_ID": "the server's",
    "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE": "false",
    "EQUALS": "a=b=c",
    "LINES_OF_TEXT": "one\ntwo",
}
POLICIES: list[dict[str, Any]] = [
    {},
    {"inherit": "none"},
    {"inherit": "core"},
    {"ignoreDefaultExcludes": False},
    {"inherit": "core", "ignoreDefaultExcludes": False},
    {"exclude": ["EXTRA_*"]},
    {"exclude": ["extra_?ne", "[a]"]},
    {"exclude": ["*"]},
    {"exclude": [""]},
    {"exclude": ["*_*", "L*"], "set": {"EXTRA_ONE": "set", "A_TOKEN": "set"}},
    {"exclude": ["*"], "set": {"A": "b"}, "includeOnly": ["b"]},
    {"includeOnly": ["EXTRA_*"]},
    {"includeOnly": ["*ONE", "lower"]},
    {"includeOnly": ["LOWER"]},
    {"includeOnly": [""]},
    {"includeOnly": ["*"], "set": {"NEW": "1"}},
    {"includeOnly": ["???"]},
    {"includeOnly": ["E.*", "(EXTRA_ONE)", "EXTRA_ON"]},
    {"set": {"NODE_REPL_AUTH_TOKEN": "x", "CODEX_TOOL_CALL_ID": "x", "codex_tool_call_id": "x"}},
    {"set": {"": "empty", "A=B": "c"}, "inherit": "none"},
]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """Both with the same environment."""
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    with (
        start_reference(binary, env=SERVER) as reference,
        start_server(env=SERVER) as ours,
    ):
        yield Both(reference.url, ours.url)


def policy(**members: Any) -> dict[str, Any]:
    return {
        "inherit": "all",
        "ignoreDefaultExcludes": True,
        "exclude": [],
        "set": {},
        "includeOnly": [],
        **members,
    }


async def environment(wire, **params) -> Any:
    """What a child is given, but for what the reference has put into its own environment."""
    said = await ran(wire, ["/bin/cat", "/proc/self/environ"], **params)
    if isinstance(said, int):
        return said
    output = said.get("stdout", said.get("pty", b"")).split(b"\0")
    return sorted(
        re.sub(rb"^PATH=[^:]*/codex-path:", b"PATH=", entry)
        for entry in output
        if not entry.startswith(b"CODEX_HOME=")
    )


@pytest.mark.parametrize("members", POLICIES, ids=lambda members: repr(members)[:60])
@requirement(
    "process/start.envPolicy:inherit-all",
    "process/start.envPolicy:inherit-core",
    "process/start.envPolicy:exclude",
    "process/start.envPolicy:include-only",
    "process/start.envPolicy:patterns",
)
async def test_policies_give_the_same_environment(both, members):
    async def conversation(wire):
        env = {"MINE": "1", "EXTRA_TWO": "mine"}
        return await environment(wire, env=env, envPolicy=policy(**members))

    found = await both.agree(conversation)
    assert b"EXTRA_TWO=mine" in found


@pytest.mark.parametrize(
    "params",
    [
        {"env": {}},
        {"env": {"A": "b", "": "x", "A=B": "c", "=": "d"}},
        {"env": {"A=C": "3", "A": "1", "A=B": "2"}},
        {"env": {"É": "ü", "a": "b\n"}},
        {"env": {"openai_identity_TOKEN_file": "x", "OPENAI_WORKLOAD_IDENTITY_CONTEXT": "y"}},
        {"env": {"CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "x", "OPENAI_FEDERATION_RULE_ID": "y"}},
        {"env": {"CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE": "x", "CODEX_TOOL_CALL_ID": "y"}},
        {"env": {"codex_exec_server_exit_on_stdin_close": "x", "codex_tool_call_id": "y"}},
        {"env": {"A": "b"}, "metadata": {"toolCallId": "call"}},
        {"env": {"A": "b"}, "metadata": {"toolCallId": ""}},
        {"env": {"A": "b"}, "metadata": {"toolCallId": None}},
        {"env": {"CODEX_THREAD_ID": "mine"}},
        {"env": {"CODEX_THREAD_ID": "mine"}, "metadata": {}},
        {"env": {}, "envPolicy": policy(includeOnly=["CODEX_*"])},
        {"env": {}, "envPolicy": policy(includeOnly=["CODEX_*"]), "metadata": {}},
        {"env": {"A": "b\0"}},
        {"env": {"A\0": "b"}},
        {"env": {"A": "b"}, "tty": True},
        {"env": {"SHELL": "mine"}, "tty": True},
        {"env": {"SHELL": ""}, "tty": True},
        {"env": {"shell": "lower"}, "tty": True},
    ],
    ids=lambda params: repr(params)[:70],
)
@requirement(
    "process/start.env:exact-without-policy",
    "process/start.env:server-credentials-withheld",
    "process/start.env:launch-names-withheld",
    "process/start.env:tool-call-id",
    "process/start.env:odd-names",
    "process/start.env:nul",
)
async def test_the_rest_of_the_environment_is_the_same(both, params):
    async def conversation(wire):
        return await environment(wire, **params)

    await both.agree(conversation)

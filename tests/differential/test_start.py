"""process/start: the same requests to the reference and to ours."""

from __future__ import annotations

import pytest

from tests.requirements import requirement
from tests.support.comparing import ask, ran, try_start
from tests.support.start_cases import (
    ACCEPTED,
    REQUIRED,
    SPAWN_FAILURES,
    TWO_FAULTS,
    WRONG,
    name_of,
)
from tests.support.wire import ENV, start_params

pytestmark = pytest.mark.one_loop


@pytest.mark.parametrize("gone", REQUIRED)
@requirement("process/start:required-members")
async def test_a_missing_member_is_refused(both, gone):
    async def conversation(wire):
        params = start_params("p", ["true"])
        del params[gone]
        return await ask(wire, "process/start", params)

    assert await both.agree(conversation) == -32602


@pytest.mark.parametrize("params", WRONG, ids=name_of)
@requirement("process/start:wrong-types")
async def test_wrong_parameters_are_refused(both, params):
    async def conversation(wire):
        return await ask(wire, "process/start", {**start_params("p", ["true"]), **params})

    assert await both.agree(conversation) == -32602


@pytest.mark.parametrize("params", ACCEPTED, ids=name_of)
@requirement("process/start:optional-members", "process/start:result")
async def test_optional_parameters_are_accepted(both, params):
    async def conversation(wire):
        return await ask(wire, "process/start", {**start_params("p", ["true"]), **params})

    result = await both.agree(conversation)
    assert result == {"processId": params.get("processId", "p"), "sandboxType": "none"}


@pytest.mark.parametrize(("params", "code"), TWO_FAULTS, ids=name_of)
@requirement("process/start:order-of-checks")
async def test_the_checks_come_in_the_same_order(both, params, code):
    async def conversation(wire):
        await try_start(wire, "taken", ["true"])
        return await ask(wire, "process/start", {**start_params("p", ["true"]), **params})

    assert await both.agree(conversation) == code


@pytest.mark.parametrize("state", ["running", "closed"])
@requirement("process/start:id-taken")
async def test_a_taken_id_is_refused(both, state):
    async def conversation(wire):
        argv = ["true"] if state == "closed" else ["sleep", "60"]
        await try_start(wire, "p", argv)
        if state == "closed":
            await wire.event("p", "process/closed")
        return await try_start(wire, "p", ["true"])

    assert await both.agree(conversation) == -32600


@requirement("process/start:failed-spawn-frees-the-id")
async def test_a_failed_spawn_frees_the_id(both):
    async def conversation(wire):
        return [await try_start(wire, "p", ["/no/such"]), await try_start(wire, "p", ["true"])]

    assert await both.agree(conversation) == [-32603, {"processId": "p", "sandboxType": "none"}]


@pytest.mark.parametrize("params", SPAWN_FAILURES, ids=name_of)
@requirement("process/start:spawn-failure")
async def test_what_cannot_be_started_is_refused(both, params):
    async def conversation(wire):
        return await ask(wire, "process/start", {**start_params("p", []), **params})

    assert await both.agree(conversation) == -32603


@pytest.mark.parametrize(
    ("argv", "params"),
    [
        (["sh", "-c", "echo out; echo err >&2; exit 3"], {}),
        (["sh", "-c", "echo $0 $#", "zero", "a b", ""], {}),
        (["sh", "-c", "echo $0"], {"arg0": "renamed"}),
        (["cat", "/proc/self/cmdline"], {"arg0": ""}),
        (["cat", "/proc/self/cmdline"], {"arg0": "é b"}),
        (["true"], {"env": {}}),
        (["./usr/bin/env"], {"cwd": "file:///", "env": {"A": "b"}}),
        (["bin/pwd"], {"cwd": "file:///usr"}),
        (["pwd"], {"cwd": "file:///usr", "env": {"PATH": ":/no/such"}}),
        (["pwd"], {"cwd": "file:///usr/bin", "env": {"PATH": ":/no/such"}}),
        (["pwd"], {"cwd": "file:///usr/bin", "env": {"PATH": "."}}),
        (["pwd"], {"cwd": "file:///usr", "env": {"PATH": "bin"}}),
        (["sh", "-c", "cat; echo end"], {}),
        (["sh", "-c", "ls -l /proc/self/fd | wc -l"], {}),
        (["sh", "-c", "grep ^SigBlk /proc/self/status"], {}),
        (["sh", "-c", "ps -o pgid= -o sid= -p $$ | tr -d ' ' | sed s/$$/me/g"], {}),
        (["sh", "-c", "tty; exec 3</dev/tty; echo $?"], {}),
        (["sh", "-c", "umask; ulimit -c"], {}),
        (["env"], {"env": {**ENV, "": "x"}}),
        (["env"], {"env": {**ENV, "A=B": "x"}}),
        (["env"], {"env": {**ENV, "É": "ü"}}),
        (["env"], {"env": {}}),
        (["env"], {"env": {"Z": "1", "A": "2"}, "metadata": {"toolCallId": "call"}}),
        (["env"], {"env": {"CODEX_TOOL_CALL_ID": "x"}, "metadata": {"toolCallId": ""}}),
        (["env"], {"env": {"CODEX_TOOL_CALL_ID": "x", "node_repl_auth_token": "y"}}),
    ],
    ids=name_of,
)
@requirement("process/start:launch", "process/start:arg0")
async def test_a_process_on_pipes_finds_the_same_world(both, argv, params):
    async def conversation(wire):
        said = await ran(wire, argv, **params)
        if argv == ["env"] and "stdout" in said:
            said["stdout"] = sorted(said["stdout"].splitlines())
        return said

    await both.agree(conversation)


CWD = [
    "file:///usr",
    "file:///usr/",
    "FILE:///usr",
    "file:/usr",
    "file:usr",
    "file://localhost/usr",
    "file://LOCALHOST/usr",
    "file:///tmp/../usr/./bin",
    "file:///%2e%2e/usr/bin",
    "file:///%75sr",
    "file:///usr%2Fbin",
    "file:///usr\\bin",
    "file:///usr//bin",
    "file:///",
    "file:",
    "file://",
    " file:///usr ",
    "file:///us\nr",
    "file:///%",
    "file:///a%ffb",
    "file:///a b",
    "file:///usr?x",
    "file:///usr#x",
    "file:///usr?",
    "file:///usr#",
    "file://server/usr",
    "file://user@localhost/usr",
    "file://localhost:1/usr",
    "file:///C:/x",
    "file:///c|/x",
    "file:///usr%00",
    "http://x/usr",
    "http:///usr",
    "",
    "tmp",
    "~",
    "./tmp",
    "C:\\x",
    "file",
    "file:///%00/bad/path/L3Vzcg",
    "file:///%00/bad/path/",
]


@pytest.mark.parametrize("cwd", CWD)
@requirement("process/start:cwd")
async def test_a_cwd_means_the_same_directory(both, cwd):
    async def conversation(wire):
        return await ran(wire, ["pwd"], cwd=cwd)

    await both.agree(conversation)


@pytest.mark.parametrize("cwd", ["/usr", "/usr/../tmp", "/tmp//", "//usr"])
@requirement("dialect/cwd:native")
async def test_a_native_cwd_is_ours_and_the_older_documents(both, cwd):
    async def conversation(wire):
        return await ran(wire, ["pwd"], cwd=cwd)

    theirs, mine = await both.hear(conversation)
    assert theirs == -32602
    assert mine["exitCode"] == 0

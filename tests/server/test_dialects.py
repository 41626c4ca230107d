"""Older forms of the protocol: one server for all of them."""

from __future__ import annotations

import base64
import json
import os

import pytest

from tests.requirements import requirement
from tests.support.local import resumed
from tests.support.raw import BINARY, TEXT, RawSocket
from tests.support.wire import Wire, decoded, start_params

# A session as the oldest documents have it: a native cwd, neither pipeStdin nor writeId nor a
# session id. "<" lines are what those documents promise; newer members may stand beside it.
SESSION = r"""
> {"id":1,"method":"initialize","params":{"clientName":"example-client"}}
< {"id":1,"result":{}}
> {"method":"initialized","params":{}}
> {"id":2,"method":"process/start","params":{"processId":"proc-1","argv":["bash","-c","stty -echo; printf 'ready\n'; while IFS= read -r line; do printf 'echo:%s\n' \"$line\"; done"],"cwd":"/tmp","env":{"PATH":"/usr/bin:/bin"},"tty":true,"arg0":null}}
< {"id":2,"result":{"processId":"proc-1"}}
< {"method":"process/output","params":{"processId":"proc-1","seq":1,"stream":"pty","chunk":"cmVhZHkNCg=="}}
> {"id":3,"method":"process/write","params":{"processId":"proc-1","chunk":"aGVsbG8K"}}
< {"id":3,"result":{"status":"accepted"}}
< {"method":"process/output","params":{"processId":"proc-1","seq":2,"stream":"pty","chunk":"ZWNobzpoZWxsbw0K"}}
> {"id":4,"method":"process/read","params":{"processId":"proc-1","afterSeq":1,"maxBytes":65536,"waitMs":1000}}
< {"id":4,"result":{"chunks":[{"seq":2,"stream":"pty","chunk":"ZWNobzpoZWxsbw0K"}],"nextSeq":3,"exited":false,"exitCode":null,"closed":false,"failure":null}}
> {"id":5,"method":"process/terminate","params":{"processId":"proc-1"}}
< {"id":5,"result":{"running":true}}
< {"method":"process/exited","params":{"processId":"proc-1","seq":3}}
< {"method":"process/closed","params":{"processId":"proc-1"}}
"""  # noqa: E501


def holds(actual: object, promised: object) -> bool:
    """True if *actual* has everything that was *promised*; it may have more members."""
    if isinstance(promised, dict) and isinstance(actual, dict):
        return all(name in actual and holds(actual[name], promised[name]) for name in promised)
    if isinstance(promised, list) and isinstance(actual, list):
        return len(actual) == len(promised) and all(map(holds, actual, promised))
    return actual == promised


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@requirement("dialect/example-session", "dialect/frames")
async def test_a_session_of_the_older_documents_can_be_pasted(server, opcode):
    async with RawSocket(server.url) as sock:
        await sock.upgrade()
        for line in SESSION.strip().splitlines():
            direction, text = line[0], line[2:]
            if direction == ">":
                await sock.send_frame(opcode, text.encode())
            else:
                got = await sock.receive_json()
                assert holds(got, json.loads(text)), got


@requirement("dialect/initialize:extra-members")
async def test_everybody_gets_a_session_id(server):
    async with Wire(server.url) as wire:
        result = await wire.call("initialize", {"clientName": "old"})
        assert {"sessionId", "environmentInfo"} <= result.keys()


@pytest.mark.parametrize(
    "folder",
    ["plain", "with space", "100%", "50%25", "what?", "sharp#", "é", "a%2Fb", "back\\slash"],
)
@requirement("dialect/cwd:native", "dialect/cwd:literal")
async def test_a_native_cwd_is_taken_literally(wire, tmp_path, folder):
    path = tmp_path / folder
    path.mkdir()
    finished = await wire.run("p", ["pwd", "-P"], cwd=str(path))
    assert finished.stdout == os.fsencode(path) + b"\n"


@requirement("dialect/cwd:native")
async def test_a_native_cwd_that_is_missing_is_a_spawn_failure(wire):
    error = await wire.error("process/start", start_params("p", ["true"], cwd="/no/such"))
    assert error["code"] == -32603


@pytest.mark.parametrize("cwd", ["", "tmp", "./tmp", "~", "C:\\tmp", "\\tmp", "//\0", "/a\0b"])
@requirement("dialect/cwd:else-refused")
async def test_any_other_text_is_refused(wire, cwd):
    error = await wire.error("process/start", start_params("p", ["true"], cwd=cwd))
    assert error["code"] == -32602


@requirement("dialect/pipe-stdin:default")
async def test_without_pipe_stdin_only_a_terminal_can_be_written_to(wire):
    await wire.start("pipes", ["sleep", "60"])
    await wire.start("tty", ["cat"], tty=True)
    assert await wire.write("pipes", b"x") == "stdinClosed"
    assert await wire.write("tty", b"x\n") == "accepted"


@requirement("dialect/start-reply")
async def test_a_start_always_tells_the_sandbox(wire):
    assert await wire.start("p", ["true"]) == {"processId": "p", "sandboxType": "none"}


@requirement("dialect/read-reply")
async def test_a_read_always_tells_of_denials(wire):
    await wire.run("p", ["true"])
    page = await wire.call("process/read", {"processId": "p"})
    assert page["sandboxDenied"] is False


@requirement("dialect/write-id:absent")
async def test_a_write_without_an_id_is_done_every_time(wire):
    await wire.start("p", ["cat"], pipeStdin=True)
    for _ in range(3):
        assert await wire.write("p", b"x") == "accepted"
    assert await wire.write("p", b"y", "1") == "accepted"
    assert await wire.write("p", b"y", "1") == "accepted"
    assert await wire.write("p", b"z") == "accepted"
    assert await wire.output_until("p", b"z") == b"xxxyz"


@requirement("dialect/write-id:present")
async def test_an_id_that_is_there_must_be_a_text(wire):
    await wire.start("p", ["cat"], pipeStdin=True)
    for wrong in ({"writeId": value} for value in (None, 1, "", [1])):
        params = {"processId": "p", "chunk": "", **wrong}
        assert (await wire.error("process/write", params))["code"] == -32602


@requirement("dialect/write-id:absent")
async def test_a_write_without_an_id_has_the_same_statuses(wire):
    assert await wire.write("nobody", b"x") == "unknownProcess"
    await wire.start("p", ["cat"], pipeStdin=True)
    await wire.call("process/terminate", {"processId": "p"})
    params = {"processId": "p", "chunk": base64.b64encode(b"x").decode()}
    assert (await wire.error("process/write", params))["code"] == -32603


@requirement("dialect/closed-seq", "dialect/exited-denied")
async def test_events_always_have_the_newest_members(wire):
    finished = await wire.run("p", ["true"])
    exited, closed = (event["params"] for event in finished.events)
    assert exited == {"processId": "p", "seq": 1, "exitCode": 0, "sandboxDenied": False}
    assert closed == {"processId": "p", "seq": 2}


@requirement("dialect/unknown-fields", "envelope/unknown-params")
async def test_unknown_members_are_ignored_everywhere(wire):
    more = {"newMember": {"deep": [1, 2]}, "another": None}
    await wire.start("p", ["cat"], pipeStdin=True, **more)
    for method, params in (
        ("process/write", {"chunk": "eA==", "writeId": "1"}),
        ("process/read", {"waitMs": 0}),
        ("process/signal", {"signal": "interrupt"}),
        ("process/terminate", {}),
        ("process/closeStdin", {}),
    ):
        await wire.call(method, {"processId": "p", **params, **more})


@requirement("dialect/disconnect")
async def test_a_disconnect_detaches_even_the_oldest_client(server):
    async with Wire(server.url) as wire:
        session_id = (await wire.call("initialize", {"clientName": "old"}))["sessionId"]
        await wire.send({"method": "initialized", "params": {}})
        await wire.start("p", ["cat"], tty=True, cwd="/")
        wire.cut()
    second = await resumed(server.url, session_id)
    page = await second.call("process/read", {"processId": "p"})
    assert page["exited"] is False
    second.cut()


@requirement("dialect/real-client")
async def test_the_newest_client_is_understood(wire):
    """A start and a write with every member that the reference's client sends."""
    start = {
        "processId": "mcp-stdio-1",
        "argv": ["/bin/cat"],
        "cwd": "file:///tmp",
        "envPolicy": {
            "inherit": "core",
            "ignoreDefaultExcludes": True,
            "exclude": [],
            "set": {},
            "includeOnly": [],
        },
        "env": {},
        "tty": False,
        "pipeStdin": True,
        "arg0": None,
        "sandbox": None,
        "enforceManagedNetwork": False,
        "managedNetwork": None,
    }
    result = await wire.call("process/start", start)
    assert result == {"processId": "mcp-stdio-1", "sandboxType": "none"}
    assert await wire.write("mcp-stdio-1", b'{"jsonrpc":"2.0"}\n', "1") == "accepted"
    event = await wire.event("mcp-stdio-1", "process/output")
    assert (event["seq"], event["stream"], decoded(event)) == (
        1,
        "stdout",
        b'{"jsonrpc":"2.0"}\n',
    )
    params = {"processId": "mcp-stdio-1", "afterSeq": 1, "maxBytes": None, "waitMs": 0}
    assert await wire.call("process/read", params) == {
        "chunks": [],
        "nextSeq": 2,
        "exited": False,
        "exitCode": None,
        "closed": False,
        "failure": None,
        "sandboxDenied": False,
    }
    assert await wire.call("process/terminate", {"processId": "mcp-stdio-1"}) == {"running": True}
    exited, closed = await wire.events_until_closed("mcp-stdio-1")
    assert (exited["params"]["seq"], exited["params"]["exitCode"]) == (2, 137)
    assert closed["params"]["seq"] == 3

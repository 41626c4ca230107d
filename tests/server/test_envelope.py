"""Messages on a real connection: what is malformed, what is fatal, what is ignored."""

from __future__ import annotations

import json

import pytest

from tests.requirements import requirement
from tests.support.local import resumed
from tests.support.messages import FATAL, MALFORMED
from tests.support.raw import BINARY, TEXT, RawSocket, frame
from tests.support.wire import Wire


@pytest.mark.parametrize("name", MALFORMED)
@requirement("envelope/malformed:answer", "envelope/malformed:connection-goes-on")
async def test_a_malformed_message_is_answered_and_the_connection_goes_on(wire, name):
    await wire.send(MALFORMED[name])
    answer = await wire.receive()
    assert (answer["id"], answer["error"]["code"]) == (-1, -32600)
    host, port = wire.socket.local_address[:2]
    assert answer["error"]["message"].startswith(
        f"failed to parse websocket JSON-RPC message from exec-server websocket {host}:{port}: "
    )
    assert answer.keys() == {"error", "id"}
    assert answer["error"].keys() == {"code", "message"}
    # None of it was executed: the next answer is that of the next request.
    await wire.send({"id": "next", "method": "environment/status"})
    assert await wire.receive() == {"id": "next", "result": {"status": "ready"}}


@pytest.mark.parametrize("name", FATAL)
@requirement("envelope/fatal", "dialect/notifications:error-then-close")
async def test_a_violation_is_told_and_ends_the_connection(server, name):
    async with Wire(server.url) as wire:
        session_id = (await wire.initialize())["sessionId"]
        await wire.send(FATAL[name])
        answer = await wire.receive()
        assert (answer["id"], answer["error"]["code"]) == (-1, -32600)
        await wire.closed()
    second = await resumed(server.url, session_id)
    assert await second.call("environment/status") == {"status": "ready"}
    second.cut()


@requirement("envelope/fatal")
async def test_initialized_before_initialize_is_a_violation(server):
    async with Wire(server.url) as wire:
        await wire.send({"method": "initialized"})
        assert (await wire.receive())["id"] == -1
        await wire.closed()


@pytest.mark.parametrize("is_busy", [False, True])
@requirement("envelope/fatal:nothing-after-it")
async def test_nothing_behind_a_violation_is_executed(server, tmp_path, is_busy):
    marker = tmp_path / "marker"
    async with RawSocket(server.url) as sock:
        await sock.upgrade()
        await sock.send_json({"id": 1, "method": "initialize", "params": {"clientName": "x"}})
        session_id = (await sock.receive_json())["result"]["sessionId"]
        start = {
            "processId": "p",
            "argv": ["sleep", "60"],
            "cwd": "file:///",
            "env": {},
            "tty": False,
        }
        messages = [
            {"method": "initialized"},
            {"id": 2, "method": "process/start", "params": start},
            # It lets the violation and the messages after it wait together.
            {"id": 3, "method": "process/read", "params": {"processId": "p", "waitMs": 50}},
            {"method": "no/such"},
            {
                "id": 4,
                "method": "process/start",
                "params": {**start, "processId": "q", "argv": ["touch", str(marker)]},
            },
            {"id": 5, "method": "process/terminate", "params": {"processId": "p"}},
        ]
        if not is_busy:
            del messages[2]
        await sock.send(b"".join(frame(TEXT, json.dumps(m).encode()) for m in messages))
        await sock.at_end()
    second = await resumed(server.url, session_id)
    (process,) = (await second.call("process/list"))["processes"]
    assert (process["processId"], process["state"]) == ("p", "running")
    second.cut()


@pytest.mark.parametrize("request_id", ["", "x", "é\n", 0, -1, 7, -(2**63), 2**63 - 1])
@requirement("envelope/id:echoed")
async def test_an_id_is_echoed_with_its_type(wire, request_id):
    await wire.send({"id": request_id, "method": "environment/status"})
    answer = await wire.receive()
    assert answer == {"id": request_id, "result": {"status": "ready"}}
    assert type(answer["id"]) is type(request_id)


@requirement("envelope/id:not-unique")
async def test_ids_need_not_be_unique(wire):
    for _ in range(3):
        await wire.send({"id": 1, "method": "environment/status"})
    for _ in range(3):
        assert await wire.receive() == {"id": 1, "result": {"status": "ready"}}


@requirement("envelope/unknown-members", "envelope/kinds")
async def test_other_members_are_ignored(wire):
    for members in ('"jsonrpc":"2.0"', '"jsonrpc":7', '"result":1,"error":2', '"x":{}'):
        await wire.send(f'{{{members},"id":1,"method":"environment/status"}}')
        assert await wire.receive() == {"id": 1, "result": {"status": "ready"}}


@requirement("envelope/trace")
async def test_a_trace_has_no_effect(wire):
    for trace in (None, {}, {"traceparent": "nonsense", "tracestate": "é", "more": 1}):
        await wire.send({"id": 1, "method": "environment/status", "trace": trace})
        assert await wire.receive() == {"id": 1, "result": {"status": "ready"}}


@requirement("envelope/trace:not-for-children")
async def test_a_trace_does_not_reach_a_child(wire):
    request_id = await wire.request(
        "process/start",
        {
            "processId": "p",
            "argv": ["/usr/bin/env"],
            "cwd": "file:///",
            "env": {"A": "b"},
            "tty": False,
        },
        trace={"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    )
    assert "result" in await wire.answer(request_id)
    assert await wire.output_until("p", b"\n") == b"A=b\n"


@requirement("envelope/output")
async def test_output_is_compact_and_not_escaped(server):
    async with RawSocket(server.url) as sock:
        await sock.upgrade()
        await sock.send_frame(TEXT, '{ "id": "ü", "method": "é" }'.encode())
        got = await sock.receive_frame()
        assert got.opcode == TEXT
        message = "exec-server stub does not implement `é` yet"
        expected = f'{{"error":{{"code":-32601,"message":"{message}"}},"id":"ü"}}'
        assert got.payload == expected.encode()


@requirement("websocket:text-and-binary")
async def test_binary_messages_are_answered_in_text(server):
    async with RawSocket(server.url) as sock:
        await sock.upgrade()
        await sock.send_frame(BINARY, b'{"id":1,"method":"x"}')
        got = await sock.receive_frame()
        assert (got.opcode, got.fin, got.is_masked) == (TEXT, True, False)

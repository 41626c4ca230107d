"""Messages, good and bad: the same to the reference and to ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
import websockets

from tests.requirements import requirement
from tests.support.comparing import outcome
from tests.support.messages import FATAL, MALFORMED
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

GOOD: dict[str, str | bytes] = {
    "plain": '{"id":1,"method":"environment/status"}',
    "jsonrpc": '{"jsonrpc":"2.0","id":1,"method":"environment/status"}',
    "jsonrpc of any type": '{"jsonrpc":{},"id":1,"method":"environment/status"}',
    "empty id": '{"id":"","method":"environment/status"}',
    "text id": '{"id":"é\\n","method":"environment/status"}',
    "negative zero": '{"id":-0,"method":"environment/status"}',
    "largest id": '{"id":9223372036854775807,"method":"environment/status"}',
    "smallest id": '{"id":-9223372036854775808,"method":"environment/status"}',
    "null params": '{"id":1,"method":"environment/status","params":null}',
    "empty params": '{"id":1,"method":"environment/status","params":{}}',
    "empty array": '{"id":1,"method":"environment/status","params":[]}',
    "params with a member": '{"id":1,"method":"environment/status","params":{"a":1}}',
    "text as params": '{"id":1,"method":"environment/status","params":"x"}',
    "result and error beside": '{"id":1,"method":"environment/status","result":1,"error":2}',
    "null trace": '{"id":1,"method":"environment/status","trace":null}',
    "empty trace": '{"id":1,"method":"environment/status","trace":{}}',
    "odd trace": '{"id":1,"method":"environment/status","trace":{"traceparent":"?","x":1}}',
    "null in a trace": '{"id":1,"method":"environment/status","trace":{"tracestate":null}}',
    "blanks around": ' \r\n\t{ "id" : 1 , "method" : "environment/status" } \r\n\t',
    "binary": b'{"id":1,"method":"environment/status"}',
    "unknown method": '{"id":1,"method":"no/such","params":{"any":1}}',
    "empty method": '{"id":1,"method":""}',
    "upper case": '{"id":1,"method":"ENVIRONMENT/STATUS"}',
    "escaped method": '{"id":1,"method":"environment\\/status"}',
    "initialized as a request": '{"id":1,"method":"initialized"}',
    "an event as a request": '{"id":1,"method":"process/output","params":{}}',
    "large number": '{"id":1,"method":"no/such","params":123456789012345678901234567890}',
    "number beyond a double": '{"id":1,"method":"no/such","params":[1e400,-1e400,1e-400]}',
    "paired surrogates": '{"id":1,"method":"no/such","params":"\\ud83d\\ude00"}',
    "delete character": '{"id":1,"method":"no/such","params":"\x7f"}',
    "as deep as allowed": '{"id":1,"method":"no/such","params":' + "[" * 126 + "]" * 126 + "}",
    "as many as allowed": '{"id":1,"method":"no/such","params":[' + "1," * 262_139 + "1]}",
    "as many in objects": '{"id":1,"method":"no/such","params":[' + '{"a":1},' * 131_069 + "{},1]}",
}


async def heard(wire: Wire, raw: str | bytes) -> Any:
    """What comes back for *raw*, up to the answer to a request behind it or the end."""
    await wire.send(raw)
    found: list[Any] = []
    try:
        await wire.send({"id": "barrier", "method": "environment/status"})
        while (message := await wire.receive()).get("id") != "barrier":
            found.append((message["id"], outcome(message)))
    except websockets.ConnectionClosed:
        found.append("closed")
    return found


@pytest.mark.parametrize("name", GOOD)
@requirement("envelope/kinds", "envelope/id:echoed", "errors:unknown-method")
async def test_good_messages_have_the_same_answers(both, name):
    async def conversation(wire):
        return await heard(wire, GOOD[name])

    ((request_id, _),) = await both.agree(conversation)
    assert request_id != -1


@pytest.mark.parametrize("name", MALFORMED)
@requirement("envelope/malformed:answer", "envelope/malformed:connection-goes-on")
async def test_malformed_messages_have_the_same_answers(both, name):
    async def conversation(wire):
        return await heard(wire, MALFORMED[name])

    assert await both.agree(conversation) == [(-1, -32600)]


@requirement("envelope/malformed:prefix")
async def test_malformed_messages_are_described_with_the_same_prefix(both):
    async def conversation(wire):
        await wire.send("not JSON")
        host, port = wire.socket.local_address[:2]
        message = (await wire.receive())["error"]["message"]
        head, peer, _ = message.partition(f"{host}:{port}: ")
        return head, bool(peer)

    prefix = "failed to parse websocket JSON-RPC message from exec-server websocket "
    assert await both.agree(conversation) == (prefix, True)


@pytest.mark.parametrize("name", FATAL)
@requirement("envelope/fatal", "dialect/notifications:error-then-close")
async def test_violations_end_the_connection_of_both(both, name):
    async def conversation(wire):
        return await heard(wire, FATAL[name])

    theirs, mine = await both.hear(conversation)
    assert theirs == ["closed"]
    # Ours also tells why, as the older documents promise.
    assert mine == [(-1, -32600), "closed"]


@requirement("envelope/fatal")
async def test_initialized_before_initialize_ends_the_connection_of_both(both):
    async def conversation(wire):
        return await heard(wire, '{"method":"initialized"}')

    theirs, mine = await both.hear(conversation, handshake=False)
    assert (theirs, mine) == (["closed"], [(-1, -32600), "closed"])


@pytest.mark.parametrize("trace", [[], ["a", "b"], [None, None]], ids=["empty", "texts", "nulls"])
@requirement("oddity:positional")
async def test_positional_traces_are_not_ours(both, trace):
    async def conversation(wire):
        message = {"id": 1, "method": "environment/status", "trace": trace}
        return await heard(wire, json.dumps(message))

    theirs, mine = await both.hear(conversation)
    assert theirs == [(1, {"status": "ready"})]
    # Free: positional forms are an accident of the reference.
    assert mine == [(-1, -32600)]


@requirement("oddity:positional")
async def test_positional_params_are_not_ours(both):
    async def conversation(wire):
        return await heard(wire, '{"id":1,"method":"process/terminate","params":["p"]}')

    theirs, mine = await both.hear(conversation)
    assert (theirs, mine) == ([(1, {"running": False})], [(1, -32602)])


@requirement("envelope/output")
async def test_members_are_sent_in_the_same_order(both):
    async def conversation(wire):
        await wire.socket.send('{"id":1,"method":"environment/status"}')
        result = await wire.socket.recv()
        await wire.socket.send('{"id":"é","method":"é"}')
        return result, await wire.socket.recv()

    result, _ = await both.agree(conversation)
    assert result == '{"id":1,"result":{"status":"ready"}}'

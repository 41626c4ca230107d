"""What a client does with requests of the server."""

from __future__ import annotations

import asyncio

import pytest

from exec_server import connect
from exec_server.errors import ConnectionClosed
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.wire import PATIENCE

QUESTION = {"protocol": "http", "host": "a.invalid", "port": 80}


def asked(request_id, host="a.invalid"):
    params = {"processId": "p", "request": {**QUESTION, "host": host}}
    return {"id": request_id, "method": "network/policyRequest", "params": params}


@pytest.mark.parametrize("request_id", [-1, "1", 7], ids=["negative", "text", "in flight"])
@requirement("network/policy:client-ids")
async def test_an_id_that_cannot_be_told_apart_ends_the_connection(request_id):
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.expect("environment/status")
        await talk.send(asked(7))
        await talk.send(asked(request_id))
        await talk.gone()

    async def never(question):
        await asyncio.Event().wait()

    async with (
        fake_server(script) as url,
        connect(url, reconnect=False, on_policy_request=never) as client,
        asyncio.timeout(PATIENCE),
    ):
        with pytest.raises(ConnectionClosed):
            await client.environment_status()


@requirement("network/policy:client-ids")
async def test_an_answered_id_may_come_again():
    answers = []

    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        request = await talk.expect("environment/status")
        for message in (
            asked(0),
            asked(0, "b.invalid"),
            {"id": 0, "method": "no/such", "params": {}},
            {"id": 0, "method": "network/policyRequest", "params": {}},
            asked(0),
        ):
            await talk.send(message)
            answers.append(await talk.receive())
        await talk.answer(request, {"status": "ready"})
        await talk.gone()

    async def decide(question):
        return question.request.host == "a.invalid"

    async with fake_server(script) as url, connect(url, on_policy_request=decide) as client:
        assert await client.environment_status() == "ready"
    allowed, denied, unknown, undecodable, again = answers
    assert allowed == again == {"id": 0, "result": {"decision": {"type": "allow"}}}
    assert denied["result"] == {"decision": {"type": "deny", "reason": ""}}
    text = "exec-server client does not implement `no/such` yet"
    assert unknown["error"] == {"code": -32601, "message": text}
    assert undecodable["error"]["code"] == -32602


@requirement("network/policy:client", "network/policy:client-ids")
async def test_without_a_function_the_answer_is_a_refusal():
    answers = []

    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        request = await talk.expect("environment/status")
        # A report that makes no sense is no reason to go.
        await talk.send({"method": "network/policyDecision", "params": {"processId": 5}})
        await talk.send(asked(1))
        answers.append(await talk.receive())
        await talk.answer(request, {"status": "ready"})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        assert await client.environment_status() == "ready"
    decision = {"type": "deny", "reason": "not_allowed"}
    assert answers == [{"id": 1, "result": {"decision": decision}}]

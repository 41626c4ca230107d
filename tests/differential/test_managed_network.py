"""The managed network beside the reference: what a process is told, and what the client hears."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.network.test_rules import BAD, GOOD
from tests.requirements import requirement
from tests.support.comparing import ask, finished
from tests.support.proxied import answered, get, launch, origin, socks, wanted
from tests.support.wire import PATIENCE, start_params

pytestmark = pytest.mark.one_loop

RULES = {"127.0.0.1": "allow", "bad.invalid": "deny", "*.sub.invalid": "allow"}


def undated(answer):
    head, body = answer
    return re.sub(rb"date: [^\r]*", b"date: D", head), body


async def decisions(wire, count):
    """The next *count* decisions, without what differs every time."""
    events = [await wire.event("p", "network/policyDecision") for _ in range(count)]
    for event in events:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("timestamp"))
        assert re.fullmatch(r"127\.0\.0\.1:\d+", event.pop("client"))
    return events


@pytest.mark.parametrize("members", [*(members for members, _ in BAD), *GOOD])
@requirement("network/start:config")
async def test_a_configuration_is_accepted_or_refused_alike(both, members):
    async def conversation(wire):
        params = start_params("p", ["true"], networkProxy=wanted(**members))
        answer = await wire.answer(await wire.request("process/start", params))
        return answer.get("error") or answer["result"]

    await both.agree(conversation)


@requirement("network/start:environment")
async def test_the_environment_is_the_same(both):
    async def conversation(wire):
        seen = []
        for number, members in enumerate(
            ({}, {"enableSocks5": False}, {"allowLocalBinding": True})
        ):
            name = f"p{number}"
            params = start_params(name, ["env"], networkProxy=wanted(**members))
            await ask(wire, "process/start", params)
            output = (await finished(wire, name))["stdout"].decode()
            seen.append(sorted(re.sub(r":\d+$", ":PORT", output, flags=re.MULTILINE).splitlines()))
        return seen

    await both.agree(conversation)


@pytest.mark.parametrize("mode", ["full", "limited"])
@requirement("network/http:blocked", "network/policy:decision", "network/http:limited")
async def test_http_is_answered_and_reported_alike(both, mode):
    async with origin() as (_, port):
        here = f"127.0.0.1:{port}"

        async def conversation(wire):
            http, _ = await launch(wire, mode=mode, domains=RULES)
            said = []
            for request, told in [
                (get("other.invalid"), 1),
                (get("bad.invalid", method="HEAD"), 1),
                (get("BAD.invalid.:81"), 1),
                (get("localhost:8080"), 1),
                (get("[::1]:80"), 1),
                (get("a.sub.invalid"), 1),
                (get("sub.invalid"), 1),
                (get(here), 1),
                (get(here, method="DELETE"), 1 + (mode == "limited")),
                (b"CONNECT other.invalid:443 HTTP/1.1\r\n\r\n", 1),
                (b"CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n", 1),
                (get("localhost", headers="x-unix-socket: /x\r\n"), 1),
                (b"GET /x HTTP/1.1\r\n\r\n", 0),
                (b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", 0),
            ]:
                said.append(undated(await answered(http, request)))
                said.append(await decisions(wire, told))
            return said

        await both.agree(conversation)


@requirement("network/socks:connect", "network/policy:decision")
async def test_socks_is_answered_and_reported_alike(both):
    async def conversation(wire):
        _, anything = await launch(wire, domains=RULES)
        said = []
        for host, port in [(b"other.invalid", 443), (b"bad.invalid", 1), (b"127.0.0.1", 1)]:
            _, writer, reply = await socks(anything, host, port)
            writer.close()
            said += [reply, await decisions(wire, 1)]
        return said

    await both.agree(conversation)


@pytest.mark.parametrize(
    "reply",
    [
        {"result": {"decision": {"type": "allow"}}},
        {"result": {"decision": {"type": "deny", "reason": "nope"}}},
        {"result": {"decision": {"type": "ask", "reason": "later"}}},
        {"result": {"decision": {"type": "deny", "reason": ""}}},
        {"result": {"decision": {"type": "deny", "reason": "a\nb"}}},
        {"result": {"decision": {"type": "deny", "reason": "x" * 1025}}},
        {"result": {"decision": {"type": "other"}}},
        {"result": 5},
        {"error": {"code": -1, "message": "no"}},
    ],
)
@requirement("network/policy:request", "network/policy:answers")
async def test_an_answer_of_the_client_means_the_same(both, reply):
    async def conversation(wire):
        http, _ = await launch(wire, policyDecisionTimeoutMs=60_000)
        asking = asyncio.ensure_future(answered(http, get("x.invalid:81")))
        question = await wire.find(lambda m: m.get("method") == "network/policyRequest")
        await wire.send({"id": question["id"], **reply})
        return [question, undated(await asking), await decisions(wire, 1)]

    await both.agree(conversation)


@requirement("network/policy:fails-closed")
async def test_of_three_hundred_questions_as_many_are_denied_at_once(both):
    async def conversation(wire):
        http, _ = await launch(wire, policyDecisionTimeoutMs=60_000)
        asking = [
            asyncio.ensure_future(answered(http, get(f"x{number}.invalid")))
            for number in range(300)
        ]
        questions = [
            await wire.find(lambda m: m.get("method") == "network/policyRequest")
            for _ in range(256)
        ]
        # No question is answered before the refusals have come.
        ended = asyncio.as_completed(asking)
        refused = [json.loads((await next(ended))[1]) for _ in range(44)]
        for question in questions:
            decision = {"type": "deny", "reason": "nope"}
            await wire.send({"id": question["id"], "result": {"decision": decision}})
        bodies = [json.loads(body) for _, body in await asyncio.gather(*asking)]
        # Hundreds of reports are still to be read, and neither server says goodbye before that.
        wire.cut()
        return [
            {body["reason"] for body in refused},
            sorted(body["reason"] for body in bodies),
            {body["source"] for body in bodies},
        ]

    async with asyncio.timeout(PATIENCE):
        await both.agree(conversation)

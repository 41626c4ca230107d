"""Questions to the client about the network of a process, over the wire and in the library."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from exec_server import connect
from exec_server.client.client import ExecServerClient
from exec_server.limits import Limits
from exec_server.protocol import network, process
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.local import resumed, wire_with
from tests.support.proxied import SWITCHES, answered, dialled, get, launch, said, wanted
from tests.support.start_cases import SHELL
from tests.support.wire import ENV, PATIENCE, Wire, start_params


def is_question(message):
    return message.get("method") == "network/policyRequest"


def allow(question):
    return {"id": question["id"], "result": {"decision": {"type": "allow"}}}


def deny(question, reason="nope"):
    return {"id": question["id"], "result": {"decision": {"type": "deny", "reason": reason}}}


async def reason_of(port, host="x.invalid"):
    return json.loads((await answered(port, get(host)))[1])["reason"]


@requirement("network/policy:request", "network/policy:decision")
async def test_the_client_is_asked_once_for_each_attempt(wire):
    port, _ = await launch(wire, policyDecisionTimeoutMs=60_000)
    for number in (1, 2):
        asking = asyncio.ensure_future(reason_of(port))
        question = await wire.find(is_question)
        assert question == {
            "id": number,
            "method": "network/policyRequest",
            "params": {
                "processId": "p",
                "request": {"protocol": "http", "host": "x.invalid", "port": 80},
            },
        }
        await wire.send(deny(question))
        assert await asking == "nope"
        decision = await wire.event("p", "network/policyDecision")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", decision.pop("timestamp"))
        assert re.fullmatch(r"127\.0\.0\.1:\d+", decision.pop("client"))
        assert decision == {
            "processId": "p",
            "scope": "domain",
            "decision": "deny",
            "source": "decider",
            "reason": "nope",
            "protocol": "http",
            "host": "x.invalid",
            "port": 80,
            "method": "GET",
            "policyOverride": False,
        }


@requirement("network/policy:out-of-band")
async def test_an_answer_does_not_wait_behind_a_request(wire):
    port, _ = await launch(wire, policyDecisionTimeoutMs=60_000)
    asking = asyncio.ensure_future(reason_of(port))
    question = await wire.find(is_question)
    await wire.request("process/read", {"processId": "p", "afterSeq": 1, "waitMs": 60_000})
    await wire.send(deny(question))
    assert await asking == "nope"


@pytest.mark.parametrize("answer", [{"error": {"code": -1, "message": "x"}}, {"result": 5}])
@requirement("network/policy:answers")
async def test_an_answer_that_means_nothing_is_a_refusal(wire, answer):
    port, _ = await launch(wire, policyDecisionTimeoutMs=60_000)
    asking = asyncio.ensure_future(reason_of(port))
    question = await wire.find(is_question)
    await wire.send({"id": question["id"], **answer})
    assert await asking == "not_allowed"
    # A second answer is ignored.
    await wire.send(allow(question))
    await wire.call("process/list")


@requirement("network/policy:fails-closed")
async def test_ending_the_process_refuses_what_is_asked(wire):
    port, _ = await launch(wire, policyDecisionTimeoutMs=60_000)
    asking = asyncio.ensure_future(reason_of(port))
    question = await wire.find(is_question)
    await wire.call("process/terminate", {"processId": "p"})
    assert await asking == "not_allowed"
    await wire.event("p", "process/closed")
    with pytest.raises(ConnectionRefusedError):
        await said(port, b"")
    await wire.send(allow(question))
    await wire.call("process/list")


@requirement("network/policy:fails-closed", "network/policy:request")
async def test_a_lost_client_refuses_and_the_next_one_is_asked_from_one(server):
    async with Wire(server.url) as wire:
        session = (await wire.initialize())["sessionId"]
        port, _ = await launch(wire, policyDecisionTimeoutMs=60_000)
        asking = asyncio.ensure_future(reason_of(port))
        await wire.find(is_question)
        wire.cut()
        assert await asking == "not_allowed"
    assert await reason_of(port) == "not_allowed"
    again = await resumed(server.url, session)
    try:
        asking = asyncio.ensure_future(reason_of(port))
        question = await again.find(is_question)
        assert question["id"] == 1
        await again.send(deny(question))
        assert await asking == "nope"
    finally:
        await again.socket.close()


@requirement("network/policy:fails-closed")
async def test_a_question_too_many_is_a_refusal(no_leaks):
    async with wire_with(policy_questions=1) as wire:
        port, _ = await launch(wire, policyDecisionTimeoutMs=60_000)
        asking = asyncio.ensure_future(reason_of(port))
        question = await wire.find(is_question)
        assert await reason_of(port) == "not_allowed"
        await wire.send(deny(question))
        assert await asking == "nope"


@requirement("network/policy:decision")
async def test_decisions_are_told_without_questions_too(wire):
    port, _ = await launch(wire)
    assert await reason_of(port) == "not_allowed"
    decision = await wire.event("p", "network/policyDecision")
    assert (decision["source"], decision["reason"]) == ("baseline_policy", "not_allowed")


# process/start.


@requirement("network/start:environment")
async def test_the_variables_are_laid_over_everything_else(wire):
    env = {**ENV, "HTTP_PROXY": "mine", "NO_PROXY": "mine", "OTHER": "kept"}
    for local, socks_on in ((False, True), (True, False)):
        members = {"allowLocalBinding": local, "enableSocks5": socks_on}
        done = await wire.run(f"p{local}", ["env"], env=env, networkProxy=wanted(**members))
        seen = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
        http = seen["HTTP_PROXY"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", http)
        assert (seen["ALL_PROXY"] == http) != socks_on
        assert seen["ALL_PROXY"].startswith("socks5h://127.0.0.1:") == socks_on
        assert seen["NO_PROXY"] == (
            "localhost,127.0.0.1,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16" if local else ""
        )
        assert seen["CODEX_NETWORK_ALLOW_LOCAL_BINDING"] == str(int(local))
        assert seen["OTHER"] == "kept"
        assert len(seen) == len(ENV) + 1 + 21 + 4 + 5 + 4


@requirement("network/start:members")
async def test_a_missing_or_wrong_member_is_refused(wire):
    cases: list[dict[str, Any]] = [{name: None} for name in SWITCHES]
    cases += [{"mode": "x"}, {"domains": {"a": "x"}}, {"domains": []}, {"reviewDomains": None}]
    cases += [{"unixSockets": {"/x": "none"}}, {"auditMetadata": None}, {"environmentId": 1}]
    cases += [{"policyDecisionTimeoutMs": bad} for bad in (-1, 1.5, "1", 1 << 64)]
    for members in cases:
        params = start_params("p", ["true"], networkProxy=wanted(**members))
        assert (await wire.error("process/start", params))["code"] == -32602, members
    for name in SWITCHES:
        asked = wanted()
        del asked["proxy"][name]
        error = await wire.error("process/start", start_params("p", ["true"], networkProxy=asked))
        assert error["message"].startswith(f"missing field `{name}`")
    for bad in ({"loopbackPorts": [65536]}, {"loopbackPorts": None}, {"allowLocalBinding": 1}):
        params = start_params("p", ["true"], managedNetwork=bad)
        assert (await wire.error("process/start", params))["code"] == -32602, bad


@requirement("network/start:config", "network/start:order")
async def test_the_proxy_is_judged_before_the_rest(wire):
    disabled = "invalid network proxy config: executor-local network proxy launch requires an "
    bad = {"networkProxy": wanted(enabled=False)}
    others: list[dict[str, Any]] = [
        {"argv": []},
        {"shellSnapshot": {"scopeId": "", "shell": SHELL}},
    ]
    for rest in others:
        error = await wire.error("process/start", start_params("p", ["true"]) | rest | bad)
        assert error["message"] == f"{disabled}enabled proxy"
    bad = {"networkProxy": wanted(enabled=False, policyDecisionTimeoutMs=0)}
    error = await wire.error("process/start", start_params("p", ["true"]) | bad)
    assert error["message"] == "network policy decision callback timeout must be nonzero"
    for name in ("", "x" * 257):
        bad = {"networkProxy": wanted(policyDecisionTimeoutMs=5)}
        error = await wire.error("process/start", start_params(name, ["true"]) | bad)
        assert error["message"].startswith("callback-enabled process ID must be non-empty")


@requirement("network/start:lifetime")
async def test_a_start_that_fails_leaves_no_proxy(server):
    """`no_leaks` of the server counts descriptors."""
    async with Wire(server.url) as wire:
        await wire.initialize()
        params = start_params("p", ["/no/such"], networkProxy=wanted())
        assert (await wire.error("process/start", params))["code"] == -32603
        params = start_params("p", ["a\0b"], networkProxy=wanted())
        assert (await wire.error("process/start", params))["code"] == -32603


# The library.


def started(**members):
    return process.StartParams(
        "p",
        ["sh", "-c", "echo $HTTP_PROXY; exec cat"],
        "file:///tmp",
        ENV,
        tty=False,
        pipe_stdin=True,
        network_proxy=network.NetworkProxy(
            network.ProxyConfig(
                enabled=True,
                enable_socks5=False,
                enable_socks5_udp=False,
                allow_upstream_proxy=False,
                dangerously_allow_all_unix_sockets=False,
                mode="full",
                allow_local_binding=False,
            ),
            **members,
        ),
    )


async def port_of(handle):
    async for chunk in handle:
        return int(chunk.data.strip().rpartition(b":")[2])


@requirement("network/policy:client")
async def test_a_client_decides_with_an_async_function(server):
    asked: list[tuple[str, str]] = []
    told: list[network.PolicyDecisionEvent] = []

    async def decide(question):
        asked.append((question.process_id, question.request.host))
        return {"a.invalid": network.Deny("nope"), "b.invalid": False}[question.request.host]

    async with (
        connect(server.url, on_policy_request=decide, on_policy_decision=told.append) as client,
        asyncio.timeout(PATIENCE),
    ):
        handle = await client.start_process(started(policy_decision_timeout_ms=60_000))
        port = await port_of(handle)
        assert await reason_of(port, "a.invalid") == "nope"
        assert await reason_of(port, "b.invalid") == "policy_denied"
        # Any exception of the function is a refusal.
        assert await reason_of(port, "c.invalid") == "not_allowed"
        await client.list_processes()
        await handle.terminate()
    assert asked == [("p", "a.invalid"), ("p", "b.invalid"), ("p", "c.invalid")]
    assert [event.reason for event in told] == ["nope", "policy_denied", "not_allowed"]


@requirement("network/policy:client")
async def test_a_client_that_thinks_goes_on_with_everything_else(server):
    thinking, answer = asyncio.Event(), asyncio.Event()

    async def decide(question):
        thinking.set()
        await answer.wait()
        return network.Ask("later")

    async with connect(server.url, on_policy_request=decide) as client, asyncio.timeout(PATIENCE):
        handle = await client.start_process(started(policy_decision_timeout_ms=60_000))
        port = await port_of(handle)
        asking = asyncio.ensure_future(reason_of(port))
        await thinking.wait()
        await client.list_processes()
        answer.set()
        assert await asking == "later"
        await handle.terminate()


@requirement("network/policy:client")
async def test_a_client_without_a_function_refuses(server):
    async with connect(server.url) as client, asyncio.timeout(PATIENCE):
        assert isinstance(client, ExecServerClient)
        handle = await client.start_process(started(policy_decision_timeout_ms=60_000))
        assert await reason_of(await port_of(handle)) == "not_allowed"
        await handle.terminate()


@requirement("network/policy:fails-closed")
async def test_a_client_that_does_not_answer_is_not_waited_for(no_leaks):
    async with serve(limits=Limits(policy_grace=0.0)) as running, Wire(running.url) as wire:
        await wire.initialize()
        port, _ = await launch(wire, policyDecisionTimeoutMs=20)
        async with dialled(port) as (reader, writer):
            writer.write(get("x.invalid"))
            async with asyncio.timeout(PATIENCE):
                assert b" 403 " in await reader.readuntil(b"\r\n\r\n")

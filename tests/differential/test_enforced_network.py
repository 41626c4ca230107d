"""`enforceManagedNetwork` beside the reference: what a sandboxed process reaches, and is told."""

from __future__ import annotations

import re
import shutil

import pytest

from exec_server.sandbox.backends import HERE
from tests.requirements import requirement
from tests.support.comparing import ask
from tests.support.proxied import origin, wanted
from tests.support.sandbox_cases import DISABLED, ROOT_READ, context, managed
from tests.support.wire import ENV, decoded, start_params

pytestmark = [
    pytest.mark.one_loop,
    pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here"),
    pytest.mark.skipif(
        not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
    ),
]


async def confined(wire, script, *, permissions=None, env=None, **params):
    """What a shell prints that may reach its proxy alone, its exit code, and what was decided."""
    sandbox = context(permissions or managed(ROOT_READ), cwd="file:///tmp")
    params |= {"sandbox": sandbox, "enforceManagedNetwork": True, "env": {**ENV, **(env or {})}}
    started = await ask(wire, "process/start", start_params("p", ["sh", "-c", script], **params))
    assert started["sandboxType"] == "linuxSeccomp"
    events = await events_of(wire)
    printed = sorted(
        (event["stream"], event["seq"], decoded(event))
        for method, event in events
        if method == "process/output"
    )
    text = b"".join(data for *_, data in printed).decode()
    code = next(event["exitCode"] for method, event in events if method == "process/exited")
    decisions = [
        tuple(event.get(name) for name in ("host", "protocol", "decision", "source", "reason"))
        for method, event in events
        if method == "network/policyDecision"
    ]
    return re.sub(r"127\.0\.0\.1:\d+", "HERE", text), code, decisions


async def events_of(wire):
    """Everything that was said of the process until both its end and its last output came."""
    events = []
    last = None
    while last is None or sum("seq" in event for _, event in events) < last:
        message = await wire.find(lambda m: m.get("params", {}).get("processId") == "p")
        events.append((message["method"], message["params"]))
        if message["method"] == "process/closed":
            last = message["params"]["seq"]
    return events


@pytest.mark.parametrize("permissions", [None, DISABLED], ids=["managed", "disabled"])
@requirement("network/enforced:only-the-proxy")
async def test_the_same_is_reached_and_the_same_refused(both_confined, permissions):
    async with origin() as (_, port):
        here = f"http://127.0.0.1:{port}/"
        script = (
            f"curl -sS -m 10 {here}; echo; curl -sS -m 10 -x $ALL_PROXY {here}; echo; "
            "curl -s -m 10 http://wrong.invalid/; echo; "
            "curl -s -m 10 -x $ALL_PROXY https://wrong.invalid/; echo $?; "
            f"curl -s -m 10 --noproxy '*' {here}; echo direct $?; "
            "curl -s -m 10 --noproxy '*' http://192.0.2.1/; echo direct $?"
        )

        async def conversation(wire):
            proxy = wanted(domains={"127.0.0.1": "allow"})
            return await confined(wire, script, permissions=permissions, networkProxy=proxy)

        text, code, decisions = await both_confined.agree(conversation)
    assert text.startswith("ok\nok\n") and code == 0
    assert [decision[:3] for decision in decisions] == [
        ("127.0.0.1", "http", "allow"),
        ("127.0.0.1", "socks5_tcp", "allow"),
        ("wrong.invalid", "http", "deny"),
        ("wrong.invalid", "socks5_tcp", "deny"),
    ]


@requirement("network/enforced:named-proxies")
async def test_a_proxy_of_the_environment_is_moved_alike(both_confined):
    async with origin() as (_, port):
        env = {"http_proxy": f"http://u:p@localhost:{port}/", "NO_PROXY": "x", "OTHER": "kept"}

        async def conversation(wire):
            script = "echo $http_proxy $NO_PROXY $OTHER; curl -sS -m 10 http://some.invalid/x"
            return await confined(wire, script, env=env)

        text, *_ = await both_confined.agree(conversation)
    assert text == "http://u:p@HERE/ x kept\nok"


@pytest.mark.parametrize("env", [{}, {"HTTP_PROXY": "http://192.0.2.1:1"}, {"ALL_PROXY": ":::"}])
@requirement("network/enforced:fails-closed")
async def test_without_a_proxy_nothing_runs_on_either(both_confined, env):
    async def conversation(wire):
        text, code, _ = await confined(wire, "echo ran", env=env)
        reason = re.search(r"managed proxy mode requires [a-z ]*", text)
        return reason and reason[0], code, "ran" in text.split()

    reason, code, has_run = await both_confined.agree(conversation)
    assert reason and code == 101 and not has_run

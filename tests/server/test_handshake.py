"""initialize, initialized, and what is refused before them."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

import pytest

from exec_server.server.server import ROUTES
from tests.requirements import requirement
from tests.support.local import connected
from tests.support.wire import Wire, start_params

# Valid parameters, so that only the handshake can be the reason for a refusal.
GATED: dict[str, tuple[Any, str]] = {
    "process/start": (start_params("p", ["true"]), "exec"),
    "process/read": ({"processId": "p"}, "exec"),
    "process/write": ({"processId": "p", "chunk": "", "writeId": "1"}, "exec"),
    "process/signal": ({"processId": "p", "signal": "interrupt"}, "exec"),
    "process/terminate": ({"processId": "p"}, "exec"),
    "process/resize": ({"processId": "p", "rows": 1, "cols": 1}, "exec"),
    "process/closeStdin": ({"processId": "p"}, "exec"),
    "process/list": ({}, "exec"),
    "process/watch": ({"processId": "p", "watchId": "w"}, "exec"),
    "process/unwatch": ({"watchId": "w"}, "exec"),
    "process/control": ({"processId": "p"}, "exec"),
    "process/screen": ({"processId": "p"}, "exec"),
    "process/waitFor": ({"processId": "p", "conditions": [{"kind": "exit"}]}, "exec"),
    "process/denials": ({"processId": "p"}, "exec"),
    "process/grant": ({"processId": "p", "grant": "write=/x"}, "exec"),
    "session/retain": ({"seconds": 1}, "session"),
    "rpc.discover": (None, "session"),
    "job/list": ({}, "job"),
    "job/prune": ({}, "job"),
    "server/stop": ({}, "server"),
    "environment/info": (None, "environment info"),
    "environment/status": (None, "environment status"),
    "session/ping": (None, "session"),
    "session/whoami": (None, "session"),
    "environmentConfig/read": (
        {"cwd": "file:///", "configPaths": [["a"]], "requirementsPaths": []},
        "environment config",
    ),
    "capabilityRoots/discoverV1": ({"roots": []}, "capability discovery"),
    "capabilities/discoverV2": ({"cwd": "file:///"}, "capability discovery"),
    "process/ports": ({}, "exec"),
    "stream/open": ({"streamId": "s", "host": "localhost", "port": 1}, "stream"),
    "stream/listen": ({"listenerId": "s", "host": "localhost", "port": 0}, "stream"),
    "stream/close": ({"ids": []}, "stream"),
    "stream/resume": ({}, "stream"),
    "stream/list": ({}, "stream"),
    "http/request": ({"method": "GET", "url": "http://h/", "requestId": "r"}, "http"),
}
REFERENCE_CAPABILITIES = {
    "networkProxyLaunch",
    "networkProxyReviewDomains",
    "credentialMasking",
    "credentialMaskingCustomProviders",
    "capabilityDiscoverySandbox",
    "fsWatchMissing",
    "capabilityDiscoveryV2",
    "environmentConfigRead",
    "httpHeaderEnvVars",
    "sandboxedFileStreaming",
    "fileWriteStreaming",
    "shellSnapshotV2",
    "windowsMxc",
    "linuxRootWritePreservesDevices",
    "linuxApprovedRootWritePreservesRestrictions",
}


@pytest.fixture
async def fresh(server):
    """A connection before any handshake."""
    async with Wire(server.url) as wire:
        yield wire


def test_every_method_that_needs_the_handshake_is_in_the_table():
    assert GATED.keys() == {name for name in ROUTES if name != "initialize" and "fs/" not in name}


@requirement("initialize:result")
async def test_initialize_answers_a_random_session_id_and_the_environment(fresh):
    result = await fresh.call("initialize", {"clientName": "someone"})
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", result["sessionId"]
    )
    assert result.keys() == {"sessionId", "environmentInfo"}
    await fresh.send({"method": "initialized"})
    info = await fresh.call("environment/info")
    # This member is ours. It takes a moment to find out, so it is not awaited here.
    info.pop("sandbox")
    assert result["environmentInfo"] == info


@pytest.mark.parametrize(
    "params",
    [
        {"clientName": ""},
        {"clientName": "x", "resumeSessionId": None},
        {"clientName": "x", "unknown": {"a": 1}, "protocolVersion": 9},
    ],
)
@requirement("initialize:params", "envelope/unknown-params")
async def test_initialize_needs_only_a_name(fresh, params):
    assert (await fresh.call("initialize", params))["sessionId"]


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        "x",
        1,
        {"clientName": 1},
        {"clientName": None},
        {"client_name": "x"},
        {"clientname": "x"},
        {"clientName": "x", "resumeSessionId": 1},
        {"clientName": "x", "resumeSessionId": {}},
    ],
)
@requirement("initialize:params", "envelope/camel-case")
async def test_wrong_parameters_of_initialize_are_refused(fresh, params):
    assert (await fresh.error("initialize", params))["code"] == -32602


@requirement("initialize:missing-member-wording")
async def test_a_missing_member_is_named(fresh):
    assert (await fresh.error("initialize", {}))["message"] == "missing field `clientName`"


@pytest.mark.parametrize("method", GATED)
@requirement("handshake:before-initialize", "errors:codes")
async def test_nothing_else_works_before_initialize(fresh, method):
    params, family = GATED[method]
    assert await fresh.error(method, params) == {
        "code": -32600,
        "message": f"client must call initialize before using {family} methods",
    }


@pytest.mark.parametrize("method", GATED)
@requirement("handshake:before-initialized")
async def test_nothing_else_works_before_initialized(fresh, method):
    await fresh.call("initialize", {"clientName": "x"})
    params, family = GATED[method]
    assert await fresh.error(method, params) == {
        "code": -32600,
        "message": f"client must send initialized before using {family} methods",
    }


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("process/start", {}),
        ("process/start", start_params("p", ["true"], cwd="http://x/")),
        ("process/read", {"processId": "p", "afterSeq": -1}),
        ("process/write", {"processId": "p", "chunk": "?"}),
        ("process/signal", {"processId": "p", "signal": "NOSUCH"}),
        ("process/terminate", {}),
        ("environment/info", 1),
        ("environment/status", [1]),
    ],
)
@requirement("errors:order")
async def test_parameters_are_judged_before_the_handshake(fresh, method, params):
    assert (await fresh.error(method, params))["code"] == -32602


@requirement("errors:order", "errors:unknown-method")
async def test_an_unknown_method_is_told_before_anything_else(fresh):
    for method in ("no/such", "Initialize", "process/Start", "", "initialized", "é`\n"):
        assert await fresh.error(method, {"any": 1}) == {
            "code": -32601,
            "message": f"exec-server stub does not implement `{method}` yet",
        }


@requirement("handshake:pipelined")
async def test_the_steps_may_be_pipelined(fresh):
    await fresh.request("initialize", {"clientName": "x"})
    await fresh.send({"method": "initialized"})
    await fresh.request("process/start", start_params("p", ["true"]))
    answers = [await fresh.answer(1), await fresh.answer(2)]
    assert ["result" in answer for answer in answers] == [True, True]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({}, -32602),
        ({"clientName": "x", "resumeSessionId": "unknown"}, -32600),
        ({"clientName": "x", "resumeSessionId": ""}, -32600),
    ],
)
@requirement("initialize:failure-changes-nothing", "session:unknown")
async def test_a_failed_initialize_may_be_repeated(fresh, params, code):
    for _ in range(2):
        assert (await fresh.error("initialize", params))["code"] == code
        assert (await fresh.error("process/list"))["message"].startswith("client must call init")
    await fresh.initialize()
    assert await fresh.call("process/list") == {"processes": []}


@requirement("initialize:failure-changes-nothing", "session:no-takeover")
async def test_an_initialize_refused_for_a_held_session_may_be_repeated(server, fresh):
    async with Wire(server.url) as holder:
        session_id = (await holder.initialize())["sessionId"]
        params = {"clientName": "x", "resumeSessionId": session_id}
        assert (await fresh.error("initialize", params))["code"] == -32010
        assert (await fresh.initialize())["sessionId"] != session_id


@requirement("initialize:once")
async def test_a_second_initialize_fails_for_ever(wire):
    for params in ({"clientName": "x"}, {"clientName": "x", "resumeSessionId": "y"}):
        assert await wire.error("initialize", params) == {
            "code": -32600,
            "message": "initialize may only be sent once per connection",
        }
    assert await wire.call("environment/status") == {"status": "ready"}


@pytest.mark.parametrize("params", [None, {}, {"a": 1}, [1], "x", 5])
@requirement("initialized:params")
async def test_the_params_of_initialized_do_not_matter(fresh, params):
    await fresh.call("initialize", {"clientName": "x"})
    await fresh.send({"method": "initialized", "params": params})
    assert await fresh.call("environment/status") == {"status": "ready"}


@requirement("initialized:repeatable")
async def test_initialized_may_be_repeated(wire):
    for _ in range(3):
        await wire.send({"method": "initialized"})
    assert await wire.call("environment/status") == {"status": "ready"}
    assert (await wire.error("initialized"))["code"] == -32601


@requirement("handshake:resumed-events-flow-early")
async def test_events_of_a_resumed_session_flow_before_initialized(server):
    async with Wire(server.url) as first:
        session_id = (await first.initialize())["sessionId"]
        await first.start("p", ["sleep", "60"])
        (process,) = (await first.call("process/list"))["processes"]
    async with Wire(server.url) as second:
        await second.call("initialize", {"clientName": "x", "resumeSessionId": session_id})
        assert (await second.error("process/list"))["code"] == -32600
        os.kill(process["pid"], signal.SIGTERM)
        assert (await second.event("p", "process/exited"))["exitCode"] == 143


@pytest.mark.parametrize("method", ["environment/info", "environment/status", "process/list"])
@requirement("environment:unit-params")
async def test_a_method_without_parameters_takes_none_null_or_an_empty_object(wire, method):
    await wire.send(json.dumps({"id": "none", "method": method}))
    assert "result" in await wire.answer("none")
    await wire.call(method, None)
    await wire.call(method, {})
    for wrong in ({"a": 1}, [], [1], "x", 5, False):
        assert (await wire.error(method, wrong))["code"] == -32602


@requirement("environment/status:ready")
async def test_the_status_is_ready(wire):
    assert await wire.call("environment/status") == {"status": "ready"}


@requirement("environment/info:capabilities")
async def test_capabilities_name_those_of_the_reference_and_ours(wire):
    capabilities = (await wire.call("environment/info"))["capabilities"]
    assert capabilities.keys() >= REFERENCE_CAPABILITIES
    assert all(type(value) is bool for value in capabilities.values())
    assert capabilities["windowsMxc"] is False
    assert capabilities["shellSnapshotV2"] is True


@requirement("session:many")
async def test_two_hundred_connections_have_sessions_of_their_own(server):
    ids = set()
    wires = []
    for _ in range(200):
        wire = await Wire(server.url).__aenter__()
        wires.append(wire)
        ids.add((await wire.initialize())["sessionId"])
    assert len(ids) == 200
    for wire in wires:
        assert await wire.call("environment/status") == {"status": "ready"}
        wire.cut()


async def test_each_connection_shakes_hands_for_itself(server):
    async with connected(server.url), Wire(server.url) as other:
        assert (await other.error("process/list"))["code"] == -32600

"""Messages, errors and the handshake."""

from __future__ import annotations

import re
from typing import Any

from exec_server.conformance.check import CheckSkipped, Kit, check, expect, expect_that
from exec_server.conformance.kit_process import start_params, wants_error

_MALFORMED = -32600
_UNKNOWN_METHOD = -32601
_INVALID = -32602


async def _malformed(kit: Kit, text: str) -> None:
    """Send *text*, and fail unless it is answered as malformed and the connection goes on."""
    if kit.is_remote:
        raise CheckSkipped("a stream of the relay ends instead: see remote.malformed")
    wire = await kit.ready()
    await wire.send(text)
    answer = await wire.answer(-1)
    expect("the code of the error", answer["error"]["code"], _MALFORMED)
    expect("the next answer", await wire.call("environment/status"), {"status": "ready"})


@check("envelope.no-json", "Text that is not JSON is answered with -32600 and the id -1.")
async def no_json(kit: Kit) -> None:
    await _malformed(kit, "{not json")


@check("envelope.batch", "An array is malformed: there are no batches.")
async def batch(kit: Kit) -> None:
    await _malformed(kit, '[{"id": 1, "method": "environment/status"}]')


@check("envelope.repeated-key", "An object that has a key twice is malformed.")
async def repeated_key(kit: Kit) -> None:
    await _malformed(kit, '{"id": 1, "id": 2, "method": "environment/status"}')


@check("envelope.null-id", "A request with the id null is malformed; it is no notification.")
async def null_id(kit: Kit) -> None:
    await _malformed(kit, '{"id": null, "method": "environment/status"}')


@check("envelope.fraction-id", "A number with a fraction is no id.")
async def fraction_id(kit: Kit) -> None:
    await _malformed(kit, '{"id": 1.0, "method": "environment/status"}')


@check("envelope.deep", "Containers that are nested deeper than 127 are malformed.")
async def deep(kit: Kit) -> None:
    nested = "[" * 127 + "]" * 127
    await _malformed(kit, f'{{"id": 9, "method": "no/such", "params": {nested}}}')


@check("envelope.string-id", "An id is echoed with its type.")
async def string_id(kit: Kit) -> None:
    wire = await kit.ready()
    for request_id in ("seven", "", "7", -(2**63), 2**63 - 1):
        await wire.send({"id": request_id, "method": "environment/status"})
        answer = await wire.answer(request_id)
        expect("the result", answer.get("result"), {"status": "ready"})


@check("envelope.extra-members", "Unknown members of messages and parameters are ignored.")
async def extra_members(kit: Kit) -> None:
    wire = await kit.connect()
    params = {"clientName": "conformance", "resumeSessionId": None, "colour": "red"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params, "more": [1]}
    await wire.send(message)
    answer = await wire.answer(1)
    expect_that("result" in answer, "a result", answer)
    expect_that("jsonrpc" not in answer, "no member `jsonrpc`", answer)


@check("envelope.unknown-method", "An unknown method is answered with -32601, at any time.")
async def unknown_method(kit: Kit) -> None:
    wire = await kit.connect()
    await wants_error(wire, _UNKNOWN_METHOD, "no/such", {})
    await wire.handshake()
    await wants_error(wire, _UNKNOWN_METHOD, "no/such", {})
    await wants_error(wire, _UNKNOWN_METHOD, "Process/Start", {})


@check("envelope.params-first", "Parameters are decoded before the handshake is looked at.")
async def params_first(kit: Kit) -> None:
    wire = await kit.connect()
    await wants_error(wire, _INVALID, "process/read", {})
    await wants_error(wire, _MALFORMED, "process/read", {"processId": "p"})


@check("envelope.no-data", "An error has a code and a message.")
async def error_members(kit: Kit) -> None:
    wire = await kit.ready()
    error = await wire.error("process/read", {"processId": "unknown"})
    expect("the members of the error", sorted(error), ["code", "message"])


@check("handshake.result", "`initialize` answers with a new session id, a lower-case UUID.")
async def initialize_result(kit: Kit) -> None:
    found = [(await (await kit.connect()).handshake())["sessionId"] for _ in range(2)]
    pattern = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    for session_id in found:
        expect_that(bool(re.fullmatch(pattern, session_id)), "a lower-case UUID", session_id)
    expect_that(found[0] != found[1], "a new id for each session", found)


@check("handshake.environment", "`initialize` has the same facts as `environment/info`.")
async def initialize_environment(kit: Kit) -> None:
    wire = await kit.connect()
    result = await wire.handshake()
    facts = await wire.call("environment/info")
    for name in ("shell", "cwd", "userHomeDir", "platformOs", "tempDir", "capabilities"):
        expect(f"`{name}` of initialize", result["environmentInfo"].get(name), facts.get(name))
    expect_that(isinstance(facts["shell"]["path"], str), "the path of a shell", facts["shell"])
    capabilities = facts["capabilities"]
    expect_that(all(type(value) is bool for value in capabilities.values()), "booleans")


@check("handshake.needed", "Before `initialize` all other methods fail with -32600.")
async def handshake_needed(kit: Kit) -> None:
    wire = await kit.connect()
    await wants_error(wire, _MALFORMED, "process/start", start_params(["true"]))
    await wants_error(wire, _MALFORMED, "environment/info")


@check("handshake.initialized", "Between `initialize` and `initialized` other methods fail.")
async def initialized_needed(kit: Kit) -> None:
    wire = await kit.connect()
    await wire.call("initialize", {"clientName": "conformance"})
    await wants_error(wire, _MALFORMED, "environment/status")
    await wire.send({"method": "initialized"})
    expect("the status", await wire.call("environment/status"), {"status": "ready"})


@check("handshake.once", "A second `initialize` on a connection fails with -32600.")
async def initialize_once(kit: Kit) -> None:
    wire = await kit.ready()
    await wants_error(wire, _MALFORMED, "initialize", {"clientName": "again"})


@check("handshake.retry", "An `initialize` that failed can be sent again.")
async def initialize_retry(kit: Kit) -> None:
    wire = await kit.connect()
    await wants_error(wire, _INVALID, "initialize", {})
    unknown = {"clientName": "conformance", "resumeSessionId": "unknown"}
    await wants_error(wire, _MALFORMED, "initialize", unknown)
    await wire.handshake()


@check("handshake.pipelined", "The steps of the handshake may be sent without waiting.")
async def handshake_pipelined(kit: Kit) -> None:
    wire = await kit.connect()
    first = await wire.request("initialize", {"clientName": "conformance"})
    await wire.send({"method": "initialized"})
    second = await wire.request("environment/status")
    expect_that("result" in await wire.answer(first), "a result of initialize")
    expect("the status", (await wire.answer(second)).get("result"), {"status": "ready"})


@check("notification.unknown", "An unknown notification ends the connection.")
async def unknown_notification(kit: Kit) -> None:
    wire = await kit.ready()
    await wire.send({"method": "no/such", "params": {}})
    await wire.until_ended()


@check("notification.early", "`initialized` before `initialize` ends the connection.")
async def early_initialized(kit: Kit) -> None:
    wire = await kit.connect()
    await wire.send({"method": "initialized"})
    await wire.until_ended()


@check("notification.stray-answer", "An answer to a request that was not sent ends the connection.")
async def stray_answer(kit: Kit) -> None:
    wire = await kit.ready()
    await wire.send({"id": 4711, "result": {}})
    await wire.until_ended()


@check("order.requests", "Requests of a connection are answered in their order.")
async def requests_in_order(kit: Kit) -> None:
    wire = await kit.ready()
    ids = [await wire.request("environment/status") for _ in range(20)]
    seen: list[Any] = []
    while len(seen) < len(ids):
        message = await wire.receive()
        if "method" not in message:
            seen.append(message["id"])
    expect("the ids of the answers", seen, ids)


@check("environment.status", "`environment/status` is ready, and takes no parameters.")
async def status(kit: Kit) -> None:
    wire = await kit.ready()
    for params in ("null", "{}"):
        await wire.send(f'{{"id": "s", "method": "environment/status", "params": {params}}}')
        expect("the status", (await wire.answer("s")).get("result"), {"status": "ready"})
    await wants_error(wire, _INVALID, "environment/status", [1])

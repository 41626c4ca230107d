"""One command from start to end: the handshake, order, repeats, odd messages."""

from __future__ import annotations

import json

from exec_server.conformance.check import expect, expect_that
from exec_server.conformance.clients.client_check import ClientScript, client_check
from exec_server.conformance.clients.scripted_process import Message, ScriptedProcess
from exec_server.conformance.clients.scripted_server import ClientConnection

_UNKNOWN_METHOD = -32601
LINES = ["conformance one", "conformance two", "conformance three"]


def _three(process: ScriptedProcess) -> None:
    for line in LINES:
        process.output(f"{line}\n")
    process.exit(7)
    process.close()


async def _begun(script: ClientScript) -> tuple[ClientConnection, ScriptedProcess]:
    """A client whose process was started and has three lines, which were not sent."""
    connection = await script.begin().ready()
    process = await connection.started()
    _three(process)
    return connection, process


@client_check("client.command", "Output and exit status of a command reach the caller.")
async def command(script: ClientScript) -> None:
    connection, process = await _begun(script)
    for event in process.events:
        await connection.send(event)
    await script.wants(LINES, 7)


@client_check("client.handshake", "The first request is `initialize`, then comes `initialized`.")
async def handshake(script: ClientScript) -> None:
    connection, process = await _begun(script)
    for event in process.events:
        await connection.send(event)
    await script.wants(LINES, 7)
    first, second = connection.history[:2]
    expect("the first method", first.get("method"), "initialize")
    expect("the second method", second.get("method"), "initialized")
    expect_that("id" not in second, "a notification", second)
    name = first["params"].get("clientName")
    expect_that(isinstance(name, str) and bool(name), "the client's name", name)


@client_check("client.ids", "Requests of a connection have ids that differ.")
async def ids(script: ClientScript) -> None:
    connection, process = await _begun(script)
    for event in process.events:
        await connection.send(event)
    await script.wants(LINES, 7)
    seen = [message["id"] for message in connection.history if "id" in message]
    expect("the number of ids", len(set(map(repr, seen))), len(seen))
    expect_that(all(type(each) in (int, str) for each in seen), "numbers or texts", seen)


@client_check("client.early-events", "Events that come before the answer to the start count.")
async def early(script: ClientScript) -> None:
    connection = await script.begin().ready()
    asked = await connection.request("process/start")
    process = ScriptedProcess(asked["params"]["processId"])
    _three(process)
    for event in process.events[:2]:
        await connection.send(event)
    await connection.reply(asked, {"processId": process.id, "sandboxType": "none"})
    for event in process.events[2:]:
        await connection.send(event)
    await script.wants(LINES, 7)


@client_check("client.repeated-events", "An event that comes several times counts once.")
async def repeated(script: ClientScript) -> None:
    connection, process = await _begun(script)
    for number, event in enumerate(process.events):
        for again in (event, event, *process.events[:number]):
            await connection.send(again)
    await script.wants(LINES, 7)


@client_check("client.reordered-events", "Events are taken in the order of their numbers.")
async def reordered(script: ClientScript) -> None:
    connection, process = await _begun(script)
    for event in reversed(process.events):
        await connection.send(event)
    await script.wants(LINES, 7)


@client_check("client.late-output", "Output after the exit counts, up to the close.")
async def late(script: ClientScript) -> None:
    connection = await script.begin().ready()
    process = await connection.started()
    process.exit(7)
    for line in LINES:
        process.output(f"{line}\n")
    process.close()
    for event in process.events:
        await connection.send(event)
    await script.wants(LINES, 7)


@client_check("client.other-processes", "Events of processes that it did not start are ignored.")
async def others(script: ClientScript) -> None:
    connection, process = await _begun(script)
    stranger = ScriptedProcess("a process of another client")
    for line in reversed(LINES):
        stranger.output(f"{line}\n")
    stranger.exit(0)
    stranger.close()
    for event, other in zip(process.events, stranger.events, strict=True):
        await connection.send(other)
        await connection.send(event)
    await script.wants(LINES, 7)


@client_check("client.unknown-messages", "Unknown notifications, answers and members are ignored.")
async def unknown(script: ClientScript) -> None:
    connection, process = await _begun(script)
    await connection.send({"method": "no/such", "params": {"a": [1]}})
    await connection.send({"id": 999_999, "result": {}})
    await connection.send({"id": 999_998, "error": {"code": -32603, "message": "no"}})
    for event in process.events:
        await connection.send({"jsonrpc": "2.0", "more": 1, **event})
    await script.wants(LINES, 7)


@client_check("client.binary", "Messages in binary frames are taken.")
async def binary(script: ClientScript) -> None:
    connection, process = await _begun(script)
    for event in process.events:
        await connection.send(json.dumps(event).encode())
    await script.wants(LINES, 7)


@client_check("client.server-request", "An unknown request of the server is answered with -32601.")
async def server_request(script: ClientScript) -> None:
    connection, process = await _begun(script)
    await connection.send({"id": 5, "method": "no/such", "params": {}})
    answer = await connection.find(lambda message: "method" not in message)
    expect("the id of the answer", answer.get("id"), 5)
    expect("the code of the error", answer["error"]["code"], _UNKNOWN_METHOD)
    for event in process.events:
        await connection.send(event)
    await script.wants(LINES, 7)


@client_check("client.no-facts", "A server without facts and optional methods is enough.")
async def no_facts(script: ClientScript) -> None:
    script.server.is_helpful = False
    connection = await script.begin().ready(environmentInfo=None)
    process = await connection.started()
    _three(process)
    del process.events[3]["params"]["sandboxDenied"]
    for event in process.events:
        await connection.send(event)
    asked = await _read_or_end(script, connection)
    if asked is not None:
        await connection.reply(asked, process.page(4))
    await script.wants(LINES, 7)


async def _read_or_end(script: ClientScript, connection: ClientConnection) -> Message | None:
    """The read of a client that asks for what the exit did not tell; None if it does not ask."""

    def found() -> object:
        reads = [each for each in connection.waiting if each.get("method") == "process/read"]
        return reads or script.server.has_ended() or connection.is_over

    waited = await script.server.until(found, "the end")
    return waited[0] if isinstance(waited, list) else None


@client_check("client.large-output", "Several MiB of output arrive whole.")
async def large(script: ClientScript) -> None:
    connection = await script.begin().ready()
    process = await connection.started()
    lines = [f"{number:04} {'x' * 8000}" for number in range(300)]
    for line in lines:
        await connection.send(process.output(f"{line}\n"))
    await connection.send(process.exit(0))
    await connection.send(process.close())
    await script.wants(lines, 0)


@client_check("client.start-refused", "A start that is refused is a failure, and is not repeated.")
async def start_refused(script: ClientScript) -> None:
    connection = await script.begin().ready()
    await connection.refuse(await connection.request("process/start"), -32603, "no such program")
    await script.wants_failure()
    expect("the number of starts", len(script.server.sent("process/start")), 1)


@client_check("client.initialize-refused", "An `initialize` that is refused is a failure.")
async def initialize_refused(script: ClientScript) -> None:
    connection = await script.begin().connection()
    await connection.refuse(await connection.request("initialize"), -32600, "not you")
    script.server.is_helpful = False
    await script.wants_failure()
    expect("the number of starts", len(script.server.sent("process/start")), 0)


@client_check("client.no-websocket", "A server that refuses the WebSocket is a failure.")
async def no_websocket(script: ClientScript) -> None:
    script.server.refusal = 404
    script.begin()
    await script.wants_failure()


@client_check("client.initialize-timeout", "A server that answers nothing is given up.")
async def initialize_timeout(script: ClientScript) -> None:
    connection = await script.begin().connection()
    await connection.request("initialize")
    await script.wants_failure()

"""Lost connections: what is resumed, what is repeated, and when a client gives up."""

from __future__ import annotations

from contextlib import suppress

from exec_server.conformance.check import expect, expect_that
from exec_server.conformance.clients.client_check import ClientScript, client_check
from exec_server.conformance.clients.command_checks import LINES
from exec_server.conformance.clients.scripted_process import ScriptedProcess
from exec_server.conformance.clients.scripted_server import ClientConnection, ClientMistake

_ATTACHED, _REFUSED = -32010, -32600


async def _one_line(script: ClientScript) -> tuple[ClientConnection, ScriptedProcess]:
    """A client that has seen the first line of a process."""
    connection = await script.begin().ready()
    process = await connection.started()
    await connection.send(process.output(f"{LINES[0]}\n"))
    await connection.delivered()
    return connection, process


async def _rest(connection: ClientConnection, process: ScriptedProcess) -> None:
    """The third line and the end, as events."""
    await connection.send(process.output(f"{LINES[2]}\n"))
    await connection.send(process.exit(7))
    await connection.send(process.close())


async def _wants_whole(script: ClientScript) -> None:
    await script.wants(LINES, 7)
    expect("the number of starts", len(script.server.sent("process/start")), 1)


@client_check("client.resume", "After a lost connection the session is resumed and read on.")
async def resume(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    connection.cut()
    process.output(f"{LINES[1]}\n")
    second = await script.server.resumed()
    asked = await second.recovered(process)
    expect_that(asked["params"].get("afterSeq") in (None, 0, 1), "the cursor", asked["params"])
    await _rest(second, process)
    await _wants_whole(script)


@client_check("client.resume-after-close", "A close frame of the server is a lost connection.")
async def after_close(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    await connection.close(1001)
    process.output(f"{LINES[1]}\n")
    second = await script.server.resumed()
    await second.recovered(process)
    await _rest(second, process)
    await _wants_whole(script)


@client_check("client.resume-ended", "A process that ended meanwhile is told by the read.")
async def ended_meanwhile(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    connection.cut()
    process.output(f"{LINES[1]}\n")
    process.output(f"{LINES[2]}\n")
    process.exit(7)
    process.close()
    second = await script.server.resumed()
    await second.recovered(process)
    await _wants_whole(script)


@client_check("client.resume-burst", "Events before the answer to the resuming `initialize` count.")
async def burst(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    connection.cut()
    second = await script.server.connection()
    asked = await second.request("initialize")
    await second.send(process.output(f"{LINES[1]}\n"))
    facts = {"sessionId": script.server.session_id}
    await second.reply(asked, facts)
    await second.request("initialized")
    await second.recovered(process)
    await _rest(second, process)
    await _wants_whole(script)


@client_check("client.resume-attached", "A session that is still held (-32010) is tried again.")
async def still_attached(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    connection.cut()
    process.output(f"{LINES[1]}\n")
    for _ in range(3):
        refused = await script.server.connection()
        asked = await refused.request("initialize")
        wanted = script.server.session_id
        expect("the session", asked["params"].get("resumeSessionId"), wanted)
        await refused.refuse(asked, _ATTACHED, f"session {wanted} is already attached")
    second = await script.server.resumed()
    await second.recovered(process)
    await _rest(second, process)
    await _wants_whole(script)


@client_check("client.resume-twice", "A connection that is lost during the recovery is replaced.")
async def twice(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    connection.cut()
    process.output(f"{LINES[1]}\n")
    second = await script.server.resumed()
    await second.request("process/read")
    second.cut()
    third = await script.server.resumed()
    await third.recovered(process)
    await _rest(third, process)
    await _wants_whole(script)


@client_check("client.gap", "An event ahead of its turn waits for the missing one.")
async def gap(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    process.output(f"{LINES[1]}\n")
    await connection.send(process.output(f"{LINES[2]}\n"))
    await connection.delivered()
    connection.cut()
    second = await script.server.resumed()
    asked = await second.recovered(process)
    expect_that(asked["params"].get("afterSeq") in (None, 0, 1), "the cursor", asked["params"])
    await second.send(process.exit(7))
    await second.send(process.close())
    await _wants_whole(script)


@client_check(
    "client.malformed", "A message that is not JSON ends the connection, not the session."
)
async def malformed(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    await connection.send("{not json")
    process.output(f"{LINES[1]}\n")
    second = await script.server.resumed()
    await second.recovered(process)
    await _rest(second, process)
    await _wants_whole(script)


@client_check("client.malformed-event", "An event of another shape ends the connection.")
async def malformed_event(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    wrong = {"processId": process.id, "seq": "two", "stream": "stdout", "chunk": 3}
    await connection.send({"method": "process/output", "params": wrong})
    process.output(f"{LINES[1]}\n")
    second = await script.server.resumed()
    await second.recovered(process)
    await _rest(second, process)
    await _wants_whole(script)


@client_check("client.session-unknown", "A session that the server does not know is given up.")
async def session_unknown(script: ClientScript) -> None:
    connection, _ = await _one_line(script)
    connection.cut()
    second = await script.server.connection()
    asked = await second.request("initialize")
    lost = script.server.session_id
    await second.refuse(asked, _REFUSED, f"unknown session id {lost}")
    await _wants_given_up(script, lost)


@client_check("client.session-swapped", "Another session than the lost one is not accepted.")
async def session_swapped(script: ClientScript) -> None:
    connection, _ = await _one_line(script)
    connection.cut()
    second = await script.server.connection()
    asked = await second.request("initialize")
    lost = script.server.session_id
    await second.reply(asked, {"sessionId": "00000000-0000-4000-8000-000000000000"})
    await _wants_given_up(script, lost)
    reads = [each for each in second.history if each.get("method") == "process/read"]
    expect("the number of reads in the other session", len(reads), 0)


async def _wants_given_up(script: ClientScript, lost: str) -> None:
    await script.wants_failure()
    asked = [each.get("resumeSessionId") for each in script.server.sent("initialize")]
    expect("how often the lost session was asked for", asked.count(lost), 1)
    ids = [each.get("processId") for each in script.server.sent("process/start")]
    expect("the number of different processes", len(set(ids)), len(ids))


@client_check("client.start-lost", "A start without an answer is not repeated.")
async def start_lost(script: ClientScript) -> None:
    connection = await script.begin().ready()
    process_id = (await connection.request("process/start"))["params"]["processId"]
    connection.cut()
    # A client that stays ends what may run. One that ends leaves that to the end of its session.
    await script.server.until(
        lambda: script.server.has_ended() or len(script.server.connections) > 1, "a connection"
    )
    if not script.server.has_ended():
        second = await script.server.connection()
        with suppress(ClientMistake):
            await second.initialize(script.server.session_id)
        await script.server.until(
            lambda: (
                script.server.has_ended()
                or process_id in [each.get("processId") for each in _terminated(script)]
            ),
            "process/terminate",
        )
    await script.wants_failure()
    ids = [each.get("processId") for each in script.server.sent("process/start")]
    expect("how often the process was started", ids.count(process_id), 1)


def _terminated(script: ClientScript) -> list[dict[str, object]]:
    return script.server.sent("process/terminate")


@client_check("client.read-refused", "A process that cannot be read after a loss is terminated.")
async def read_refused(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    connection.cut()
    second = await script.server.resumed()
    asked = await second.request("process/read")
    await second.refuse(asked, _REFUSED, f"unknown process id {process.id}")
    await _wants_terminated(script, process)


@client_check("client.output-gone", "Output that is no longer retained is not skipped silently.")
async def output_gone(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    connection.cut()
    process.output("lost\n")
    process.output(f"{LINES[2]}\n")
    second = await script.server.resumed()
    asked = await second.request("process/read")
    page = process.page(0)
    page["chunks"] = page["chunks"][2:]
    await second.reply(asked, page)
    await _wants_terminated(script, process)


async def _wants_terminated(script: ClientScript, process: ScriptedProcess) -> None:
    await script.wants_failure()
    ids = [each.get("processId") for each in _terminated(script)]
    expect_that(process.id in ids, "process/terminate for the process", ids)


@client_check("client.goodbye", "At its end a client leaves no connection open.")
async def goodbye(script: ClientScript) -> None:
    connection, process = await _one_line(script)
    await connection.send(process.output(f"{LINES[1]}\n"))
    await _rest(connection, process)
    await _wants_whole(script)
    script.server.has_ended = lambda: False
    await script.server.until(lambda: connection.is_over, "the end of the connection")

"""Sessions: lost connections, resuming, what is retained."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from exec_server.conformance.check import CheckSkipped, Kit, check, expect, expect_that
from exec_server.conformance.kit_process import KitProcess, start, wants_error
from exec_server.conformance.kit_wire import KitWire, Message

_REFUSED = -32600
_ATTACHED = -32010


def _needs_sessions(kit: Kit) -> None:
    if kit.is_stdio:
        raise CheckSkipped("a session on stdio ends with its connection")


async def _opened(kit: Kit) -> tuple[KitWire, str]:
    wire = await kit.connect()
    session_id: str = (await wire.handshake())["sessionId"]
    return wire, session_id


async def _resumed(kit: Kit, session_id: str) -> KitWire:
    """A new connection with the session. The server may need a moment to miss the old one."""
    asked = {"clientName": "conformance", "resumeSessionId": session_id}
    async with asyncio.timeout(kit.patience):
        while True:
            wire = await kit.connect()
            answer = await wire.answer(await wire.request("initialize", asked))
            if answer.get("error", {}).get("code") != _ATTACHED:
                break
            await asyncio.sleep(0.05)
    expect_that("result" in answer, "the session to be resumed", answer.get("error", ""))
    expect("the session id", answer["result"]["sessionId"], session_id)
    await wire.send({"method": "initialized"})
    return wire


def _cut(wire: KitWire) -> None:
    channel: Any = wire.channel
    channel.cut()


@check("session.resume", "A process runs on while its connection is lost, and nothing is missing.")
async def resume(kit: Kit) -> None:
    _needs_sessions(kit)
    wire, session_id = await _opened(kit)
    script = "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.1; done; exit 4"
    process = await start(wire, ["/bin/sh", "-c", script])
    await process.output_until(b"line 2")
    _cut(wire)
    again = KitProcess(await _resumed(kit, session_id), process.id)
    page = await _read_to_the_end(again)
    text = b"".join(base64.b64decode(chunk["chunk"]) for chunk in page["chunks"])
    expect("the whole output", text, b"".join(b"line %d\n" % n for n in range(1, 7)))
    expect("the numbers", [c["seq"] for c in page["chunks"]], list(range(1, 7)))
    expect("the exit code", page["exitCode"], 4)


async def _read_to_the_end(process: KitProcess) -> Message:
    page = await process.read()
    while not page["closed"]:
        await process.read(afterSeq=page["nextSeq"] - 1, waitMs=2000)
        page = await process.read()
    return page


@check("session.events", "After a resume new events come to the new connection.")
async def events_after_resume(kit: Kit) -> None:
    _needs_sessions(kit)
    wire, session_id = await _opened(kit)
    process = await start(wire, ["cat"], pipeStdin=True)
    await process.write(b"before\n", "1")
    await process.output_until(b"before")
    _cut(wire)
    again = KitProcess(await _resumed(kit, session_id), process.id)
    expect("a repeated write", await again.write(b"before\n", "1"), "accepted")
    await again.write(b"after\n", "2")
    event = await again.event("process/output")
    expect("the new output", base64.b64decode(event["chunk"]), b"after\n")
    expect("its number", event["seq"], 2)
    await again.wire.call("process/terminate", {"processId": process.id})


@check("session.attached", "A session that a connection holds is refused with -32010.")
async def attached(kit: Kit) -> None:
    _needs_sessions(kit)
    holder, session_id = await _opened(kit)
    other = await kit.connect()
    asked = {"clientName": "conformance", "resumeSessionId": session_id}
    await wants_error(other, _ATTACHED, "initialize", asked)
    expect("the holder", await holder.call("environment/status"), {"status": "ready"})


@check("session.unknown", "An unknown session is refused with -32600.")
async def unknown(kit: Kit) -> None:
    for session_id in ("", "00000000-0000-4000-8000-000000000000"):
        asked = {"clientName": "conformance", "resumeSessionId": session_id}
        await wants_error(await kit.connect(), _REFUSED, "initialize", asked)


@check("session.private", "Processes of one session are unknown to another.")
async def private(kit: Kit) -> None:
    _needs_sessions(kit)
    mine = await kit.ready()
    process = await start(mine, ["sleep", "60"])
    other = await kit.ready()
    await wants_error(other, _REFUSED, "process/read", {"processId": process.id})
    answer = await other.call("process/terminate", {"processId": process.id})
    expect("the answer to another session", answer, {"running": False})
    answer = await mine.call("process/terminate", {"processId": process.id})
    expect("the answer to its own session", answer, {"running": True})


@check("session.retained", "The newest MiB of output of each process is retained.")
async def retained(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["/bin/sh", "-c", "head -c 1500000 /dev/zero; echo end"])
    await process.finished()
    page = await process.read()
    data = b"".join(base64.b64decode(chunk["chunk"]) for chunk in page["chunks"])
    expect_that(data.endswith(b"end\n"), "the end of the output")
    most = 1024 * 1024
    expect_that(most - 65536 <= len(data) <= most, f"at most {most} bytes", len(data))


@check("session.flood", "A client that reads slowly loses nothing.")
async def flood(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["/bin/sh", "-c", "head -c 8000000 /dev/zero | tr '\\0' x"])
    await asyncio.sleep(0.5)
    found = await process.finished()
    found.check_numbers()
    expect("the number of bytes", len(found.output("stdout")), 8_000_000)

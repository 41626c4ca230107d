"""Frames, resets, sessions and lost sockets."""

from __future__ import annotations

import asyncio
import base64

from exec_server.conformance.check import CheckFailed, Kit, check, expect, expect_that
from exec_server.conformance.kit_process import KitProcess, start, wants_error
from exec_server.conformance.kit_wire import ConnectionEnded, KitWire
from exec_server.conformance.remote import kit_frames
from exec_server.conformance.remote.kit_frames import field, frame
from exec_server.conformance.remote.kit_noise import KitKeyPair
from exec_server.conformance.remote.kit_relay import KitRelay, KitStream
from exec_server.conformance.remote.remote_support import (
    opened,
    request,
    wants_answer,
    wants_reset,
    wire_of,
    works,
)

_ATTACHED = -32010


async def _ready(kit: Kit) -> KitStream:
    stream = await opened(kit)
    await works(stream)
    return stream


@check(
    "frame.ignored",
    "Resume, heartbeat and ack frames on an open stream change nothing.",
    suite="remote",
)
async def ignored(kit: Kit) -> None:
    stream = await _ready(kit)
    for made in (
        frame(stream.id, "resume"),
        frame(stream.id, "resume", field(1, 77)),
        frame(stream.id, "heartbeat"),
        frame(stream.id, "ack_frame"),
    ):
        await stream.relay.send(made)
    await works(stream, is_first=False)


@check("frame.invalid", "A frame that is not valid is dropped without an answer.", suite="remote")
async def invalid(kit: Kit) -> None:
    stream = await _ready(kit)
    record = b"x" * 40
    head = field(1, 1) + field(2, stream.id.encode())
    for made in (
        head,
        kit_frames.data_frame(stream.id, stream.next_seq, record, version=2),
        kit_frames.data_frame(stream.id, stream.next_seq, record, index=1, count=2),
        kit_frames.data_frame(stream.id, stream.next_seq, record, count=2),
        kit_frames.data_frame(stream.id, stream.next_seq, b""),
        kit_frames.reset_frame(stream.id, ""),
        kit_frames.handshake_frame(stream.id, b""),
    ):
        await stream.relay.send(made)
    await works(stream, is_first=False)


@check(
    "frame.extra-fields",
    "Acknowledgements, traces and unknown fields of a frame are ignored.",
    suite="remote",
)
async def extra_fields(kit: Kit) -> None:
    stream = await _ready(kit)
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for n, more in enumerate(
        (
            field(kit_frames.ACK, 7) + field(kit_frames.ACK_BITS, 0xFFFFFFFF),
            field(kit_frames.TRACEPARENT, trace),
            field(kit_frames.TRACEPARENT, b"no trace"),
            field(99, b"unknown") + field(98, 3),
        )
    ):
        await stream.relay.send(stream.record(request(f"extra-{n}")) + more)
        await wants_answer(stream, f"extra-{n}")


@check(
    "frame.data-first",
    "Data on a stream without a handshake is answered with a reset.",
    suite="remote",
)
async def data_first(kit: Kit) -> None:
    stream = await _ready(kit)
    unknown = KitStream(stream.relay, patience=kit.patience)
    await stream.relay.send(kit_frames.data_frame(unknown.id, 0, b"x" * 40))
    await wants_reset(unknown)
    await works(stream, is_first=False)


@check(
    "frame.quiet",
    "Resume, heartbeat and reset frames of an unknown stream are not answered.",
    suite="remote",
)
async def quiet(kit: Kit) -> None:
    stream = await _ready(kit)
    unknown = KitStream(stream.relay, patience=kit.patience)
    for body in ("resume", "heartbeat", "ack_frame"):
        await stream.relay.send(frame(unknown.id, body))
    await stream.relay.send(kit_frames.reset_frame(unknown.id, "no such stream"))
    await works(stream, is_first=False)
    try:
        async with asyncio.timeout(0.05):
            found = await stream.relay.frame_of(unknown.id)
    except TimeoutError:
        return
    raise CheckFailed(f"expected no answer, saw a {found.body} frame")


@check("stream.private", "A harness cannot use the stream of another one.", suite="remote")
async def private(kit: Kit) -> None:
    mine = await _ready(kit)
    thief = await kit.relay(KitKeyPair())
    for made in (
        kit_frames.reset_frame(mine.id, "stolen"),
        kit_frames.data_frame(mine.id, mine.next_seq, b"x" * 40),
    ):
        try:
            await thief.send(made)
        except ConnectionEnded:
            break
    other = await kit.relay(KitKeyPair())
    await works(await other.open(patience=kit.patience))
    await works(mine, is_first=False)


@check("stream.many", "Many streams of one socket work side by side.", suite="remote")
async def many(kit: Kit) -> None:
    relay = await kit.relay()
    streams = [await relay.open(patience=kit.patience) for _ in range(8)]
    for stream in streams:
        await works(stream)
    for n, stream in enumerate(streams):
        await stream.send_record(request(f"s{n}"))
    for n, stream in reversed(list(enumerate(streams))):
        await wants_answer(stream, f"s{n}")


async def _running(kit: Kit, relay: KitRelay) -> tuple[KitStream, KitProcess, str]:
    """A stream with a process that has told one line."""
    stream = await relay.open(patience=kit.patience)
    wire = wire_of(stream)
    session_id: str = (await wire.handshake())["sessionId"]
    process = await start(wire, ["cat"], pipeStdin=True)
    await process.write(b"before\n", "1")
    await process.output_until(b"before")
    return stream, process, session_id


async def _wants_resumed(kit: Kit, relay: KitRelay, session_id: str, process_id: str) -> None:
    """Fail unless the session is soon resumed on a new stream, with its process."""
    asked = {"clientName": "conformance", "resumeSessionId": session_id}
    async with asyncio.timeout(kit.patience):
        while True:
            wire = wire_of(await relay.open(patience=kit.patience))
            answer = await wire.answer(await wire.request("initialize", asked))
            if answer.get("error", {}).get("code") != _ATTACHED:
                break
            await asyncio.sleep(0.1)
    expect_that("result" in answer, "the session to be resumed", answer.get("error", ""))
    expect("the session id", answer["result"]["sessionId"], session_id)
    await wire.send({"method": "initialized"})
    await _wants_output(wire, process_id)


async def _wants_output(wire: KitWire, process_id: str) -> None:
    process = KitProcess(wire, process_id)
    page = await process.read(afterSeq=0)
    told = b"".join(base64.b64decode(chunk["chunk"]) for chunk in page["chunks"])
    expect("the output", told, b"before\n")
    await process.write(b"after\n", "2")
    await process.output_until(b"after")
    await wire.call("process/terminate", {"processId": process_id})


@check(
    "stream.reset",
    "A reset of the harness detaches the session, which can be resumed.",
    suite="remote",
)
async def reset(kit: Kit) -> None:
    relay = await kit.relay()
    stream, process, session_id = await _running(kit, relay)
    await relay.send(kit_frames.reset_frame(stream.id, "enough"))
    await _wants_resumed(kit, relay, session_id, process.id)


@check(
    "stream.error",
    "A stream that ends with an error leaves a session that can be resumed.",
    suite="remote",
)
async def error(kit: Kit) -> None:
    relay = await kit.relay()
    stream, process, session_id = await _running(kit, relay)
    await stream.send(b"no json")
    await wants_reset(stream)
    await _wants_resumed(kit, relay, session_id, process.id)


@check(
    "stream.lost", "The relay tells the executor that a harness's socket is lost.", suite="remote"
)
async def lost(kit: Kit) -> None:
    stream, process, session_id = await _running(kit, await kit.relay())
    stream.relay.cut()
    # Another key, as a harness has it that was started anew.
    await _wants_resumed(kit, await kit.relay(KitKeyPair()), session_id, process.id)


@check("stream.attached", "A session that a stream holds is refused with -32010.", suite="remote")
async def attached(kit: Kit) -> None:
    relay = await kit.relay()
    stream, process, session_id = await _running(kit, relay)
    asked = {"clientName": "conformance", "resumeSessionId": session_id}
    second = wire_of(await relay.open(patience=kit.patience))
    await wants_error(second, _ATTACHED, "initialize", asked)
    wire = wire_of(stream)
    expect("the status", await wire.call("environment/status"), {"status": "ready"})
    await wire.call("process/terminate", {"processId": process.id})


@check("relay.ping", "The relay answers pings.", suite="remote")
async def ping(kit: Kit) -> None:
    relay = await kit.relay()
    async with asyncio.timeout(kit.patience):
        await (await relay.socket.ping(b"a payload"))
    await works(await relay.open(patience=kit.patience))


@check("relay.no-frame", "Bytes that are no frame disturb no other harness.", suite="remote")
async def no_frame(kit: Kit) -> None:
    good = await _ready(kit)
    for garbage in (b"\xff" * 30, b"", b"\x12\x7fshort", b"\x08\x01\x12\x01 \x3a\x00"):
        relay = await kit.relay(KitKeyPair())
        try:
            await relay.send(garbage)
            await relay.send(garbage)
        except ConnectionEnded:
            pass
    await works(good, is_first=False)

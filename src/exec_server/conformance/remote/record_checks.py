"""Records on a stream: order, borders, sizes."""

from __future__ import annotations

import base64
import itertools
import json

from exec_server.conformance.check import Kit, check, expect, expect_that
from exec_server.conformance.remote import kit_frames
from exec_server.conformance.remote.kit_relay import MESSAGE_BYTES, RECORD_BYTES, KitStream
from exec_server.conformance.remote.remote_support import (
    opened,
    request,
    wants_answer,
    wants_reset,
    wire_of,
    works,
)

_WINDOW = 64


async def _ready(kit: Kit) -> KitStream:
    stream = await opened(kit)
    await works(stream)
    return stream


@check(
    "record.split", "A message may be cut into any records, also into empty ones.", suite="remote"
)
async def split(kit: Kit) -> None:
    stream = await _ready(kit)
    for piece in request("pieces"):
        await stream.send_record(bytes([piece]))
        await stream.send_record(b"")
    await wants_answer(stream, "pieces")


@check("record.joined", "A record may have several messages.", suite="remote")
async def joined(kit: Kit) -> None:
    stream = await _ready(kit)
    both = request("one") + request("two")
    await stream.send_record(both[:-3])
    await stream.send_record(both[-3:])
    await wants_answer(stream, "one")
    await wants_answer(stream, "two")


@check(
    "record.order",
    "Records that arrive out of order, up to 64 ahead, are put in order.",
    suite="remote",
)
async def order(kit: Kit) -> None:
    stream = await _ready(kit)
    long_id = "order" * 20
    plain = request(long_id)
    pieces = [plain[at : at + 1] for at in range(len(plain))]
    pieces = [*pieces[:_WINDOW], b"".join(pieces[_WINDOW:])]
    for frame in reversed([stream.record(piece) for piece in pieces]):
        await stream.relay.send(frame)
    await wants_answer(stream, long_id)


@check(
    "record.repeated",
    "A record that comes twice counts once, and the first copy counts.",
    suite="remote",
)
async def repeated(kit: Kit) -> None:
    stream = await _ready(kit)
    first, second = stream.record(request("once")), stream.record(request("twice"))
    other = kit_frames.data_frame(stream.id, stream.next_seq - 1, b"another record of this number")
    for frame in (second, other, second, first, first, second, other):
        await stream.relay.send(frame)
    await wants_answer(stream, "once")
    await wants_answer(stream, "twice")
    await stream.send_record(request("after"))
    await wants_answer(stream, "after")


@check("record.window", "A record more than 64 ahead ends its stream.", suite="remote")
async def window(kit: Kit) -> None:
    stream = await _ready(kit)
    stream.next_seq += _WINDOW + 1
    await stream.send_record(request("ahead"))
    await wants_reset(stream)


@check(
    "record.waiting-bytes", "More than 1 MiB of waiting records ends their stream.", suite="remote"
)
async def waiting_bytes(kit: Kit) -> None:
    stream = await _ready(kit)
    stream.next_seq += 1
    for _ in range((1 << 20) // RECORD_BYTES + 1):
        await stream.send_record(bytes(RECORD_BYTES))
    await wants_reset(stream)


@check("record.tag", "A record that was changed ends its stream, and no other one.", suite="remote")
async def tag(kit: Kit) -> None:
    stream = await _ready(kit)
    other = await stream.relay.open(patience=kit.patience)
    await works(other)
    for record in (b"short", bytes(64)):
        frame = kit_frames.data_frame(stream.id, stream.next_seq, record)
        await stream.relay.send(frame)
        await wants_reset(stream)
        await works(other, is_first=False)
        stream = await stream.relay.open(patience=kit.patience)
        await works(stream)


@check(
    "record.full",
    "A record may have 61440 bytes, and one with more ends its stream.",
    suite="remote",
)
async def full(kit: Kit) -> None:
    stream = await _ready(kit)
    text = request("full")[4:].ljust(RECORD_BYTES - 4)
    await stream.send_record(len(text).to_bytes(4, "big") + text)
    await wants_answer(stream, "full")
    await stream.send_record(len(text).to_bytes(4, "big") + text + b" ")
    await wants_reset(stream)


@check(
    "record.length",
    "A length of 0 or beyond 64 MiB ends the stream before the message comes.",
    suite="remote",
)
async def length(kit: Kit) -> None:
    for wrong in (0, MESSAGE_BYTES + 1, 0xFFFFFFFF):
        stream = await _ready(kit)
        await stream.send_record(wrong.to_bytes(4, "big"))
        await wants_reset(stream)


@check("remote.malformed", "A message that is no JSON-RPC object ends its stream.", suite="remote")
async def malformed(kit: Kit) -> None:
    for wrong in (b"{not json", b"[]", b'"text"', b"{}", b"\xef\xbb\xbf{}"):
        stream = await _ready(kit)
        await stream.send(wrong)
        await wants_reset(stream)


@check(
    "remote.white-space",
    "White space around a message and a member `jsonrpc` do no harm.",
    suite="remote",
)
async def white_space(kit: Kit) -> None:
    stream = await _ready(kit)
    await stream.send('{"jsonrpc": "2.0", "id": "w", "method": "environment/status"} \r\n')
    await wants_answer(stream, "w")


@check(
    "record.large-answer",
    "A large answer comes in records of at most 61440 bytes, in order.",
    suite="remote",
)
async def large_answer(kit: Kit) -> None:
    stream = await _ready(kit)
    wire = wire_of(stream)
    before = len(stream.received)
    path = "file:///tmp/exec-server-conformance-large"
    data = bytes(itertools.islice(itertools.cycle(range(256)), 300_000))
    encoded = base64.b64encode(data).decode()
    try:
        await wire.call("fs/writeFile", {"path": path, "dataBase64": encoded, "sandbox": None})
        found = await wire.call("fs/readFile", {"path": path, "sandbox": None})
    finally:
        await wire.call("fs/remove", {"path": path, "recursive": False, "force": True})
    expect_that(found["dataBase64"] == encoded, "the file's own bytes")
    sizes = stream.received[before:]
    expect("the number of full records", sizes.count(RECORD_BYTES), len(encoded) // RECORD_BYTES)


@check("record.large-request", "A request of several MiB arrives.", suite="remote")
async def large_request(kit: Kit) -> None:
    stream = await _ready(kit)
    text = json.dumps({"id": "large", "method": "environment/status", "more": "x" * 3_000_000})
    await stream.send(text)
    await wants_answer(stream, "large")

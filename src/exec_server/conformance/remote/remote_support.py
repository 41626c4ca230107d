"""What several checks of the remote suite do."""

from __future__ import annotations

import json
from typing import Any

from exec_server.conformance.check import CheckFailed, Kit, expect
from exec_server.conformance.kit_wire import KitWire
from exec_server.conformance.remote.kit_relay import PROTOCOL_ERROR, KitStream, StreamReset


async def opened(kit: Kit) -> KitStream:
    """A new socket with an open stream."""
    return await (await kit.relay()).open(patience=kit.patience)


def wire_of(stream: KitStream) -> KitWire:
    return KitWire(stream, patience=stream.patience, has_native_paths=False)


async def works(stream: KitStream, *, is_first: bool = True) -> None:
    """Fail unless a request on the stream is answered."""
    wire = wire_of(stream)
    if is_first:
        await wire.handshake()
    expect("the status", await wire.call("environment/status"), {"status": "ready"})


def request(request_id: str, method: str = "environment/status") -> bytes:
    """A message as it is in the stream, with its length."""
    text = json.dumps({"id": request_id, "method": method}).encode()
    return len(text).to_bytes(4, "big") + text


async def wants_answer(stream: KitStream, request_id: str) -> None:
    """Fail unless the request of this id is answered next."""
    message: Any = json.loads(await stream.receive())
    expect("the id of the answer", message.get("id"), request_id)
    expect("the result", message.get("result"), {"status": "ready"})


async def wants_reset(stream: KitStream) -> None:
    """Fail unless the executor resets the stream, with the one reason that it has."""
    expect("the reason of the reset", await stream.reset_reason(), PROTOCOL_ERROR)


async def wants_refusal(kit: Kit, **changes: Any) -> None:
    """Fail unless a handshake with these changes is reset, while another stream goes on."""
    good = await opened(kit)
    await works(good)
    stream = KitStream(good.relay, patience=kit.patience)
    try:
        await stream.handshake(**changes)
    except StreamReset as exc:
        expect("the reason of the reset", str(exc).rpartition(": ")[2], PROTOCOL_ERROR)
    else:
        raise CheckFailed("expected a reset, saw message 2")
    await works(good, is_first=False)

"""Faults of an executor or a relay: each is one way in which the far side may be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from exec_server.conformance.remote import kit_frames
from exec_server.relay import records
from exec_server.relay.frame import Data, Handshake, RelayFrame, Reset, decode, encode
from tests.remote.conftest import LIMITS


class RemoteFault(NamedTuple):
    found_by: str
    # What becomes of a frame from the executor.
    down: Callable[[bytes], Iterable[bytes]] | None = None
    # What becomes of a frame from the harness.
    up: Callable[[bytes], Iterable[bytes]] | None = None
    limits: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    # Attributes of modules: (module, name, value).
    patches: tuple[tuple[Any, str, Any], ...] = ()


def _swap(data: bytes, kind: type, made: Callable[[RelayFrame], Iterable[bytes]]) -> list[bytes]:
    frame = decode(data, segmented=True)
    return list(made(frame)) if isinstance(frame.body, kind) else [data]


def _without(kind: type) -> Callable[[bytes], Iterable[bytes]]:
    return lambda data: _swap(data, kind, lambda frame: [])


def _twice(kind: type) -> Callable[[bytes], Iterable[bytes]]:
    return lambda data: _swap(data, kind, lambda frame: [data, data])


def _another_reason(data: bytes) -> Iterable[bytes]:
    return _swap(data, Reset, lambda frame: [encode(RelayFrame(frame.stream_id, Reset("no")))])


def _changed_message_2(data: bytes) -> Iterable[bytes]:
    def changed(frame: RelayFrame) -> Iterable[bytes]:
        payload = bytes(frame.body.payload)  # type: ignore[union-attr]
        wrong = payload[:-1] + bytes([payload[-1] ^ 1])
        yield encode(RelayFrame(frame.stream_id, Handshake(wrong)))

    return _swap(data, Handshake, changed)


def _with_data(**changes: int) -> Callable[[bytes], Iterable[bytes]]:
    def changed(frame: RelayFrame) -> Iterable[bytes]:
        found = kit_frames.read_frame(encode(frame))
        values: dict[str, int] = {"seq": found.seq, **changes}
        seq = values.pop("seq") + values.pop("later", 0)
        yield kit_frames.data_frame(frame.stream_id, seq, found.payload, **values)

    return lambda data: _swap(data, Data, changed)


class _Once:
    """Leaves out one full record."""

    def __init__(self) -> None:
        self.is_done = False

    def __call__(self, data: bytes) -> Iterable[bytes]:
        if len(data) < 60_000 or self.is_done:
            return [data]
        self.is_done = True
        return []


def _version_1(data: bytes) -> Iterable[bytes]:
    return [b"\x08\x01" + data[2:]] if data[:2] == b"\x08\x02" else [data]


def _dropped_empty_records(data: bytes) -> Iterable[bytes]:
    try:
        found = kit_frames.read_frame(data)
    except ValueError:
        return [data]
    return [] if found.body == "data" and len(found.payload) == 16 else [data]


REMOTE_FAULTS: dict[str, RemoteFault] = {
    "resets are not sent": RemoteFault("frame.data-first", down=_without(Reset)),
    "a reset has another reason": RemoteFault("frame.data-first", down=_another_reason),
    "message 2 was changed": RemoteFault("noise.handshake", down=_changed_message_2),
    "message 2 comes twice": RemoteFault("noise.handshake", down=_twice(Handshake)),
    "records come twice": RemoteFault("noise.handshake", down=_twice(Data)),
    "records begin at 1": RemoteFault("noise.handshake", down=_with_data(later=1)),
    "records are segments": RemoteFault("noise.handshake", down=_with_data(count=2)),
    "frames have version 2": RemoteFault("noise.handshake", down=_with_data(version=2)),
    "a record is lost": RemoteFault("record.large-answer", down=_Once()),
    "an invalid frame counts": RemoteFault("frame.invalid", up=_version_1),
    "empty records are lost": RemoteFault("record.split", up=_dropped_empty_records),
    "the window is too narrow": RemoteFault("record.order", limits={"relay_reorder_frames": 63}),
    "the window is too wide": RemoteFault("record.window", limits={"relay_reorder_frames": 999}),
    "too many bytes wait": RemoteFault(
        "record.waiting-bytes", limits={"relay_reorder_bytes": 1 << 23}
    ),
    "a message may be longer": RemoteFault("record.length", limits={"message_bytes": 1 << 40}),
    "failures are not counted": RemoteFault("noise.pause", limits={"relay_failures": 10**6}),
    "records may be longer": RemoteFault(
        "record.full",
        patches=((records, "RECORD_BYTES", 65000),),
    ),
    "a harness may use the streams of others": RemoteFault("stream.private"),
}


def limits_of(fault: RemoteFault) -> Any:
    return msgspec.structs.replace(LIMITS, **fault.limits)

"""JSON Schemas of the relay's frames, read from `relay.proto`.

Frames are Protobuf on the wire; the schemas describe the JSON form that Protobuf defines for them.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import msgspec

Schema = dict[str, Any]

FRAME = "RelayMessageFrame"
_MESSAGE = re.compile(r"message (\w+) \{(.*?)^\}", re.DOTALL | re.MULTILINE)
_EMPTY = re.compile(r"message (\w+) \{\}")
_FIELD = re.compile(r"(?:optional )?(\w+) (\w+) = (\d+);")
_UINT32 = {"type": "integer", "minimum": 0, "maximum": 4294967295}
_KINDS: dict[str, Schema] = {
    "uint32": _UINT32,
    "string": {"type": "string"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
}
# Frames of the documents of Codex; the rest is there without a word in them.
_DOCUMENTED = ("data", "ack_frame", "resume", "reset", "heartbeat")
# Beyond what Protobuf can say. Every body has a rule, which an executor checks before all others.
_DESCRIPTIONS = {
    "version": "Always 1.",
    "stream_id": "Not blank. A harness uses a new random UUID for each connection.",
    "ack": "Written by no release of Codex, and ignored.",
    "ack_bits": "Written by no release of Codex, and ignored.",
    "data": "One encrypted record. `segment_index` is 0, `segment_count` is 1, and the payload is "
    "not empty. `seq` counts from 0 for each direction.",
    "ack_frame": "Never sent by Codex, and ignored.",
    "resume": "Announces the stream to the rendezvous; ignored by executors.",
    "reset": "Ends the stream. The reason is not empty; executors give "
    "`noise_relay_protocol_error` alone.",
    "heartbeat": "Never sent by Codex, and ignored; WebSocket pings are used instead.",
    "handshake": "Message 1 of the harness or message 2 of the executor. The payload is not empty.",
    "traceparent": "A copy of the trace of the first request in the record.",
    "tracestate": "As `traceparent`.",
}


def relay_schemas(reference: str) -> dict[str, Schema]:
    """The schema of each message of `relay.proto`, by its name."""
    text = files("exec_server").joinpath("relay/relay.proto").read_text(encoding="utf-8")
    bodies = {name: body for name, body in _MESSAGE.findall(_EMPTY.sub("", text))}
    bodies |= dict.fromkeys(_EMPTY.findall(text), "")
    found = {}
    for name, body in bodies.items():
        properties = {
            field: _described(field, _kind(kind, reference), int(place))
            for kind, field, place in _FIELD.findall(body)
        }
        found[name] = {"title": name, "type": "object", "properties": properties}
    found[FRAME]["required"] = ["version", "stream_id"]
    return found


def relay_frames(reference: str) -> list[dict[str, Any]]:
    """The bodies of frames, each with an example of recorded traffic if there is one."""
    frame = relay_schemas(reference)[FRAME]["properties"]
    examples = msgspec.json.decode(
        files("exec_server.schema").joinpath("relay_examples.json").read_bytes()
    )
    return [
        {
            "name": name,
            "schema": {"$ref": f"{reference}{FRAME}"},
            "description": member["description"],
            "x-dialect": member["x-dialect"],
            "x-recorded": bool(examples.get(name, {}).get("recorded")),
            "example": examples.get(name, {}).get("frame"),
        }
        for name, member in frame.items()
        if name in _DOCUMENTED or name == "handshake"
    ]


def _kind(kind: str, reference: str) -> Schema:
    # Other keywords beside a reference are not read by every program.
    return dict(_KINDS[kind]) if kind in _KINDS else {"allOf": [{"$ref": f"{reference}{kind}"}]}


def _described(field: str, schema: Schema, place: int) -> Schema:
    described = {**schema, "x-number": place}
    if field in _DESCRIPTIONS:
        described["description"] = _DESCRIPTIONS[field]
    is_frame = field in _DESCRIPTIONS
    if is_frame:
        is_documented = field in (*_DOCUMENTED, "version", "stream_id", "ack", "ack_bits")
        described["x-dialect"] = "documented" if is_documented else "undocumented"
    return described

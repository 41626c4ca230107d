"""Arbitrary messages to a live server: documented answers, and a connection that goes on."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.requirements import requirement
from tests.support.raw import BINARY, TEXT
from tests.support.wire import start_params

# Letters that JSON and our paths are made of come often; so does what is not UTF-8.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 1e308, 0.5]),
    st.floats(allow_nan=False, allow_infinity=False),
    text,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=10,
)

# A program that is not there: what is mutated here must not run anything.
START = start_params("fuzz", ["/no/such/program"], env={"A": "1"}, pipeStdin=True)
POLICY = {
    "inherit": "core",
    "ignoreDefaultExcludes": True,
    "exclude": ["A*"],
    "set": {"B": "2"},
    "includeOnly": [],
}
VALID: list[tuple[str, Any]] = [
    ("initialize", {"clientName": "x", "resumeSessionId": None, "concurrentRequests": 2}),
    ("environment/info", None),
    ("environment/status", {}),
    ("process/start", START),
    ("process/start", {**START, "envPolicy": POLICY, "metadata": {"toolCallId": "x"}}),
    ("process/start", {**START, "tty": True, "rows": 10, "cols": 20, "arg0": ""}),
    (
        "process/start",
        {**START, "shellSnapshot": {"scopeId": "s", "shell": {"name": "bash", "path": "/b"}}},
    ),
    ("process/read", {"processId": "fuzz", "afterSeq": 1, "maxBytes": 2, "waitMs": 3}),
    ("process/write", {"processId": "fuzz", "chunk": "eHg=", "writeId": "1"}),
    ("process/signal", {"processId": "fuzz", "signal": "interrupt"}),
    ("process/terminate", {"processId": "fuzz"}),
    ("process/resize", {"processId": "fuzz", "rows": 1, "cols": 2}),
    ("process/watch", {"processId": "fuzz", "watchId": "w", "kind": "person", "window": 1}),
    ("process/unwatch", {"watchId": "w"}),
    ("process/control", {"processId": "fuzz", "action": "take", "epoch": 1}),
    ("process/screen", {"processId": "fuzz", "since": 3, "cells": True, "history": 2}),
    (
        "process/waitFor",
        {"processId": "fuzz", "conditions": [{"kind": "text", "text": "x"}], "timeoutMs": 1},
    ),
    ("process/denials", {"processId": "fuzz"}),
    ("process/grant", {"processId": "fuzz", "grant": "write=/x", "scope": "once"}),
    ("process/closeStdin", {"processId": "fuzz"}),
    ("process/list", None),
    ("process/ports", {"processId": "fuzz", "all": True}),
    ("stream/close", {"ids": ["s"]}),
    ("stream/resume", {"streams": {"s": {"received": 1}}, "listeners": {"l": 2}}),
    ("stream/list", {"all": True}),
]
valid_messages = st.sampled_from(
    [{"id": 7, "method": method, "params": params} for method, params in VALID]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in *value* something stands."""
    found = [path]
    if isinstance(value, dict):
        for name, member in value.items():
            found += places(member, (*path, name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            found += places(member, (*path, index))
    return found


def replaced(message: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    message = copy.deepcopy(message)
    inner = message
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return message


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A valid message of which one or two things are something else, or missing, or more."""
    message = draw(valid_messages)
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(places(message)))
        inner = message
        for step in path:
            inner = inner[step]
        how = draw(st.sampled_from(["replace", "remove", "add"]))
        if how == "add" and isinstance(inner, dict):
            message = replaced(message, path, {**inner, draw(text): draw(values)})
        elif how == "remove" and isinstance(inner, dict) and inner:
            gone = draw(st.sampled_from(sorted(inner)))
            rest = {name: member for name, member in inner.items() if name != gone}
            message = replaced(message, path, rest)
        else:
            message = replaced(message, path, draw(values))
    return message


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid message of which some bytes are lost, doubled or something else."""
    data = bytearray(json.dumps(draw(valid_messages)).encode())
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 8)))
        how = draw(st.sampled_from(["lose", "double", "replace"]))
        piece = b"" if how == "lose" else bytes(data[start:end]) * 2
        data[start:end] = draw(st.binary(max_size=8)) if how == "replace" else piece
    return bytes(data)


@requirement("fuzz:bytes")
@given(st.binary(max_size=200), st.sampled_from([TEXT, BINARY]))
@example(b"", TEXT)
@example(b"\xff", TEXT)
@example(b"\xff", BINARY)
@example(b'{"id":1,"method":"environment/info","params":"\xff"}', BINARY)
def test_any_bytes_are_answered_or_end_the_connection(live, data, opcode):
    live.send(data, opcode=opcode)


@requirement("fuzz:json")
@given(values)
@example({"id": 1, "result": None})
@example({"method": "initialized"})
@example({"method": "process/terminate", "params": {"processId": "x"}})
def test_any_json_is_answered_or_ends_the_connection(live, value):
    live.send(json.dumps(value).encode())


@requirement("fuzz:envelope")
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "id": values,
            "method": st.sampled_from([method for method, _ in VALID]) | values,
            "params": values,
            "result": values,
            "error": st.fixed_dictionaries({}, optional={"code": values, "message": values}),
            "trace": st.fixed_dictionaries({}, optional={"traceparent": values}) | values,
            "jsonrpc": values,
        },
    )
)
def test_any_envelope_is_answered_or_ends_the_connection(live, message):
    live.send(json.dumps(message).encode())


@requirement("fuzz:mutations")
@given(mutated())
def test_a_mutated_request_is_answered(live, message):
    answers = live.send(json.dumps(message).encode())
    is_request = isinstance(message, dict) and "id" in message and "method" in message
    if is_request and answers is not None:
        assert len([answer for answer in answers if "method" not in answer]) == 1


@requirement("fuzz:mutations")
@given(damaged(), st.sampled_from([TEXT, BINARY]))
def test_a_damaged_request_is_answered_or_ends_the_connection(live, data, opcode):
    live.send(data, opcode=opcode)


@requirement("fuzz:depth")
@given(
    st.sampled_from(["[", '{"a":', '[{"a":', '{"id":1,"method":"x","params":[']),
    st.integers(1, 3000),
)
@example("[", 1_000_000)
@example('{"a":', 300_000)
def test_deep_nesting_is_malformed(live, opening, depth):
    answers = live.send((opening * depth).encode())
    assert answers is not None
    assert [answer["id"] for answer in answers] == [-1]

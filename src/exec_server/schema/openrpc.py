"""The OpenRPC document of the protocol."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from exec_server import errors, limits
from exec_server.protocol.method import Method, Nothing
from exec_server.schema.catalog import Declared, declared, error_kinds
from exec_server.schema.comments import comments_of
from exec_server.schema.components import REFERENCE, Schema, name_of, schemas
from exec_server.schema.promises import EVERY, MESSAGE_LIMITS, promises_of
from exec_server.schema.relay_frames import relay_frames, relay_schemas
from exec_server.version import VERSION

_OPENRPC = "1.3.2"
_EXAMPLES = "examples.json"
_DESCRIPTION = (
    "Run and control processes, terminals, files and HTTP on another machine. Messages are JSON, "
    "one in each WebSocket frame or line, and have no member `jsonrpc`. Methods without a result "
    "are notifications. `x-dialect` tells where a method or a member comes from: Codex documents "
    "it, its server has it undocumented, or it is an extension of this project, which a server "
    "announces in the capabilities of `environment/info`. `x-sender` is the side that sends it. "
    "`x-since` is the first release that has it, `x-limits` are the server's limits by default, "
    "and `x-order` says what is promised about the order of messages. `x-relay-frames` are the "
    "frames of remote mode in the JSON form of Protobuf."
)


@cache
def openrpc() -> dict[str, Any]:
    """The document. Do not change it."""
    components = _components()
    return {
        "openrpc": _OPENRPC,
        "info": {"title": "exec-server", "version": VERSION, "description": _DESCRIPTION},
        "methods": [_method(each, components) for each in declared()],
        "components": {
            "schemas": components,
            "errors": {kind.__name__: _error(kind) for kind in error_kinds()},
        },
        "x-errors-of-every-request": [kind.__name__ for kind in EVERY],
        "x-limits": _limits(MESSAGE_LIMITS),
        "x-relay-frames": relay_frames(REFERENCE),
    }


def _components() -> dict[str, Schema]:
    return dict(sorted({**schemas(), **relay_schemas(REFERENCE)}.items()))


@cache
def encoded_openrpc() -> bytes:
    """The document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(openrpc()), indent=2) + b"\n"


@cache
def short_openrpc() -> bytes:
    """The document as JSON without spaces."""
    return msgspec.json.encode(openrpc())


def encoded_json_schemas() -> bytes:
    """All shapes as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(json_schemas()), indent=2) + b"\n"


def json_schemas() -> dict[str, Any]:
    """All shapes as one JSON Schema, whose definitions are named as in the document."""
    text = msgspec.json.encode(_components()).replace(REFERENCE.encode(), b"#/$defs/")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "exec-server",
        "$defs": msgspec.json.decode(text),
    }


@cache
def _examples() -> dict[str, Any]:
    data = files("exec_server.schema").joinpath(_EXAMPLES).read_bytes()
    found: dict[str, Any] = msgspec.json.decode(data)
    return found


def _method(each: Declared, components: dict[str, Schema]) -> dict[str, Any]:
    item = each.item
    described: dict[str, Any] = {
        "name": item.name,
        "summary": each.description,
        "paramStructure": "by-name",
        "params": _params(item.params, item.dialect, components),
        "x-dialect": item.dialect,
        "x-sender": each.sender,
    }
    is_request = isinstance(item, Method)
    promises = promises_of(item.name, is_ours=item.dialect == "ours", is_request=is_request)
    described["x-since"] = promises.since
    if promises.limits:
        described["x-limits"] = _limits(promises.limits)
    if promises.order:
        described["x-order"] = promises.order
    if isinstance(item, Method):
        described["result"] = _result(item.result, components)
        described["errors"] = [
            {"$ref": f"#/components/errors/{kind.__name__}"} for kind in promises.errors
        ]
    example = _examples().get(item.name)
    if example is not None:
        described["examples"] = [_example(item.name, example)]
    return described


def _limits(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Limits of the server, with their defaults."""
    comments = comments_of(limits).texts
    found = []
    for name in names:
        comment = comments.get(("Limits", name), "")
        # A single word is the title of a group.
        description = comment if " " in comment else ""
        default = getattr(limits.DEFAULT_LIMITS, name)
        found.append({"name": name, "default": default, "description": description})
    return found


def _params(kind: type, dialect: str, components: dict[str, Schema]) -> list[dict[str, Any]]:
    if kind is Nothing:
        return []
    schema = components[name_of(kind, components)]
    required = set(schema.get("required", ()))
    return [
        {
            "name": name,
            "required": name in required,
            "schema": member,
            "x-dialect": member.get("x-dialect", dialect),
        }
        for name, member in sorted(
            schema["properties"].items(), key=lambda pair: pair[0] not in required
        )
    ]


def _result(kind: type, components: dict[str, Schema]) -> dict[str, Any]:
    if kind is Nothing:
        return {"name": "nothing", "schema": {"type": "object"}}
    name = name_of(kind, components)
    return {"name": name, "schema": {"$ref": REFERENCE + name}}


def _example(name: str, example: dict[str, Any]) -> dict[str, Any]:
    params = example["params"] or {}
    described: dict[str, Any] = {
        "name": name,
        "params": [{"name": key, "value": value} for key, value in params.items()],
    }
    if "result" in example:
        described["result"] = {"name": "result", "value": example["result"]}
    return described


def _error(kind: type[errors.RpcError]) -> dict[str, Any]:
    found = re.search(rf"\b{kind.__name__} +-\d+ +(.+)", errors.__doc__ or "")
    return {"code": kind.code, "message": found.group(1) if found else kind.__name__}

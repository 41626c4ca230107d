"""Write docs/protocol: the OpenRPC document, the JSON Schemas, and pages for people.

    python scripts/protocol.py [--check]

With ``--check`` nothing is written, and the status is 1 if a file is not as it would be written.
`written()` has all files by their names below docs/protocol, for programs that build a site.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exec_server.schema.openrpc import encoded_json_schemas, encoded_openrpc, openrpc

FOLDER = Path(__file__).parent.parent / "docs" / "protocol"
_DIALECTS = {
    "documented": "documented by Codex",
    "undocumented": "of Codex, undocumented",
    "ours": "ours, announced as a capability",
}
_INTRODUCTION = """\
# The protocol, method by method

These pages are made from the code by `make protocol`; so are [openrpc.json](openrpc.json) and
[json-schema.json](json-schema.json), which `exec-server protocol` prints. How the messages are sent
and what a server promises is in [the specification](../spec/core.md).

## rpc.discover

A server of this project answers [`rpc.discover`](methods/rpc.discover.md) with openrpc.json, and
announces that as the capability `rpcDiscover`.

## Methods and notifications

"Since" is the first release that knows the method. Of Codex these releases were tried: 0.120.0,
0.135.0, 0.150.0, 0.160.0 and 0.166.0.

| name | kind | sender | origin | since |
|---|---|---|---|---|
"""
_ERRORS = """
## Errors

Every request may fail with those that are marked; the page of a method names the others.

| code | name | meaning | every request |
|---|---|---|---|
"""
_LIMITS = """
## Limits of messages

| limit | default | |
|---|---|---|
"""
_RELAY = """
## Frames of the relay

One frame is one binary WebSocket message, in Protobuf. The examples are in the JSON form of
Protobuf; all but those that are marked were recorded. [The specification](../spec/remote.md) has
the handshake, the records and their order.
"""


def written() -> dict[str, bytes]:
    """The files, by their names below docs/protocol."""
    pages = {"README.md": _index()}
    for method in openrpc()["methods"]:
        pages[f"methods/{page_name(method['name'])}"] = _method(method)
    return {
        "openrpc.json": encoded_openrpc(),
        "json-schema.json": encoded_json_schemas(),
        **{name: ("\n".join(lines) + "\n").encode() for name, lines in pages.items()},
    }


def page_name(method: str) -> str:
    """The name of a method's page."""
    return f"{method.replace('/', '-')}.md"


def _index() -> Iterator[str]:
    document = openrpc()
    yield _INTRODUCTION.rstrip("\n")
    for method in document["methods"]:
        name = f"[`{method['name']}`](methods/{page_name(method['name'])})"
        cells = (_kind(method), _sender(method), _DIALECTS[method["x-dialect"]], method["x-since"])
        yield f"| {' | '.join([name, *cells])} |"
    yield _ERRORS.rstrip("\n")
    every = document["x-errors-of-every-request"]
    for name, error in document["components"]["errors"].items():
        mark = "yes" if name in every else ""
        yield f"| {error['code']} | {name} | {error['message']} | {mark} |".replace("|  |", "| |")
    yield _LIMITS.rstrip("\n")
    yield from map(_limit, document["x-limits"])
    yield _RELAY.rstrip("\n")
    yield from _frames(document)


def _frames(document: dict[str, Any]) -> Iterator[str]:
    fields = document["components"]["schemas"]["RelayMessageFrame"]["properties"]
    yield "\n| field | number | type | meaning |\n|---|---|---|---|"
    for name, field in fields.items():
        cells = (f"`{name}`", str(field["x-number"]), _type(field), field.get("description", ""))
        yield f"| {' | '.join(cells)} |"
    for frame in document["x-relay-frames"]:
        note = "" if frame["x-recorded"] else ", made by hand"
        text = json.dumps(frame["example"])
        if len(text) > 400:
            text = f"{text[:300]}..."
        origin = _DIALECTS[frame["x-dialect"]]
        yield f"\n`{frame['name']}` ({origin}{note}):\n\n```text\n{text}\n```"


def _kind(method: dict[str, Any]) -> str:
    return "request" if "result" in method else "notification"


def _sender(method: dict[str, Any]) -> str:
    return {"both": "either side"}.get(method["x-sender"], method["x-sender"])


def _method(method: dict[str, Any]) -> Iterator[str]:
    sender = {"both": "either side"}.get(method["x-sender"], f"the {method['x-sender']}")
    yield f"# {method['name']}\n"
    yield f"{method['summary']}\n"
    origin = _DIALECTS[method["x-dialect"]]
    yield f"{_kind(method).capitalize()} of {sender}; {origin}; since {method['x-since']}."
    if method["params"]:
        yield "\n## Parameters\n\n| parameter | type | meaning |\n|---|---|---|"
        yield from map(_row, method["params"])
    if "result" in method and "$ref" in method["result"]["schema"]:
        yield from _result(method["result"]["schema"])
    if "x-order" in method:
        yield f"\n## Order\n\n{method['x-order']}"
    if "x-limits" in method:
        yield "\n## Limits\n\n| limit | default | |\n|---|---|---|"
        yield from map(_limit, method["x-limits"])
    if "errors" in method:
        yield "\n## Errors\n\n| code | name | meaning |\n|---|---|---|"
        yield from map(_error, method["errors"])
    for example in method.get("examples", ()):
        yield "\n## Example"
        yield from _example(method["name"], example)


def _limit(limit: dict[str, Any]) -> str:
    default = limit["default"]
    shown = f"{default:,}" if isinstance(default, int) else str(default)
    return f"| `{limit['name']}` | {shown} | {limit['description']} |".replace("|  |", "| |")


def _error(reference: dict[str, str]) -> str:
    name = reference["$ref"].rpartition("/")[2]
    error = openrpc()["components"]["errors"][name]
    return f"| {error['code']} | {name} | {error['message']} |"


def _result(schema: dict[str, Any]) -> Iterator[str]:
    name = schema["$ref"].rpartition("/")[2]
    found = openrpc()["components"]["schemas"][name]
    required = found.get("required", ())
    yield "\n## Result\n\n| member | type | meaning |\n|---|---|---|"
    for member, value in found.get("properties", {}).items():
        yield _row({"name": member, "required": member in required, "schema": value})


def _row(member: dict[str, Any]) -> str:
    schema = member["schema"]
    notes = [] if member["required"] else ["optional"]
    notes += ["ours"] if schema.get("x-dialect") == "ours" else []
    text = " ".join(([f"({', '.join(notes)})"] if notes else []) + [schema.get("description", "")])
    return f"| `{member['name']}` | {_type(schema)} | {text.strip()} |".replace("|  |", "| |")


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    for word in ("anyOf", "allOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[word])))
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {})}"
    if "contentEncoding" in schema:
        return str(schema["contentEncoding"])
    return str(schema.get("type", "anything"))


def _example(name: str, example: dict[str, Any]) -> Iterator[str]:
    params = {each["name"]: each["value"] for each in example["params"]}
    message: dict[str, Any] = {"method": name, "params": params}
    if "result" in example:
        message = {"id": 1, **message}
    yield "\n```json"
    yield json.dumps(message, ensure_ascii=False)
    if "result" in example:
        yield json.dumps({"id": 1, "result": example["result"]["value"]}, ensure_ascii=False)
    yield "```"


def main(words: list[str]) -> int:
    made = written()
    stale = [
        name
        for name, data in made.items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_bytes() != data
    ]
    gone = [path for path in FOLDER.glob("methods/*.md") if f"methods/{path.name}" not in made]
    if "--check" in words:
        names = [*stale, *(f"methods/{path.name}" for path in gone)]
        print("\n".join(f"docs/protocol/{name} is stale: run `make protocol`" for name in names))
        return bool(names)
    (FOLDER / "methods").mkdir(parents=True, exist_ok=True)
    for name in stale:
        (FOLDER / name).write_bytes(made[name])
    for path in gone:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

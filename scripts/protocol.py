"""Write docs/protocol: the OpenRPC document, the JSON Schemas, and a page for people.

    python scripts/protocol.py [--check]

With ``--check`` nothing is written, and the status is 1 if a file is not as it would be written.
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

This page is made from the code by `make protocol`; so are [openrpc.json](openrpc.json) and
[json-schema.json](json-schema.json), which `exec-server protocol` prints. `rpc.discover` answers
with the first. How the messages are sent, in which order they come and what a server promises is in
[the specification](../spec/core.md).

Every request may also fail with one of these errors:

"""


def written() -> dict[str, bytes]:
    """The files, by their names."""
    return {
        "openrpc.json": encoded_openrpc(),
        "json-schema.json": encoded_json_schemas(),
        "README.md": ("\n".join(_page()) + "\n").encode(),
    }


def _page() -> Iterator[str]:
    document = openrpc()
    yield _INTRODUCTION + "| code | name | meaning |\n|---|---|---|"
    for name, error in document["components"]["errors"].items():
        yield f"| {error['code']} | {name} | {error['message']} |"
    for method in document["methods"]:
        yield from _method(method)


def _method(method: dict[str, Any]) -> Iterator[str]:
    kind = "Request" if "result" in method else "Notification"
    sender = {"both": "either side"}.get(method["x-sender"], f"the {method['x-sender']}")
    yield f"\n## {method['name']}\n"
    yield f"{method['summary']} {kind} of {sender}; {_DIALECTS[method['x-dialect']]}.\n"
    if method["params"]:
        yield "| parameter | type | meaning |\n|---|---|---|"
        yield from map(_row, method["params"])
    if "result" in method and "$ref" in method["result"]["schema"]:
        yield from _result(method["result"]["schema"])
    for example in method.get("examples", ()):
        yield from _example(method["name"], example)


def _result(schema: dict[str, Any]) -> Iterator[str]:
    name = schema["$ref"].rpartition("/")[2]
    found = openrpc()["components"]["schemas"][name]
    required = found.get("required", ())
    yield "\n| result | type | meaning |\n|---|---|---|"
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
    stale = [
        name
        for name, data in written().items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_bytes() != data
    ]
    if "--check" in words:
        print("\n".join(f"docs/protocol/{name} is stale: run `make protocol`" for name in stale))
        return bool(stale)
    FOLDER.mkdir(exist_ok=True)
    for name in stale:
        (FOLDER / name).write_bytes(written()[name])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Compare recorded traffic with the schemas of the protocol, by a validator of others.

    python scripts/check_recordings.py RECORDING.jsonl...

A recording has one message in each line, as ``{"dir": "c2s" | "s2c", "conn": 1, "msg": {...}}``. A
line with a member ``fault`` was changed on purpose: what differs there is counted and not told.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

from exec_server.protocol.method import Method, Nothing
from exec_server.schema.catalog import declared
from exec_server.schema.components import name_of
from exec_server.schema.openrpc import json_schemas

_ITEMS = {each.item.name: each.item for each in declared()}
_DEFINITIONS: dict[str, Any] = json_schemas()["$defs"]
_OTHER_SIDE = {"c2s": "s2c", "s2c": "c2s"}


def problems(kind: type, value: Any) -> Iterator[str]:
    """How *value* differs from the schema of *kind*."""
    if kind is Nothing:
        return
    reference = f"#/$defs/{name_of(kind, _DEFINITIONS)}"
    validator = jsonschema.Draft202012Validator({"$ref": reference, "$defs": _DEFINITIONS})
    for error in validator.iter_errors(value):
        yield f"{kind.__name__}: {error.message:.200}"


def compare(path: Path, counts: Counter[str]) -> Iterator[str]:
    """What differs in one recording."""
    asked: dict[tuple[Any, str, str], Method[Any, Any]] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        record = json.loads(line)
        message = record.get("msg")
        if not isinstance(message, dict):
            continue
        item = _ITEMS.get(message.get("method", ""))
        found: list[str] = []
        if item is not None:
            if isinstance(item, Method):
                asked[record["conn"], record["dir"], str(message.get("id"))] = item
            found = list(problems(item.params, message.get("params") or {}))
            counts["parameters"] += 1
        elif "result" in message:
            key = (record["conn"], _OTHER_SIDE[record["dir"]], str(message["id"]))
            if key in asked:
                found = list(problems(asked[key].result, message["result"]))
                counts["results"] += 1
        if found and "fault" in record:
            counts["changed on purpose"] += 1
        elif found:
            yield f"{path.name}:{number}: {found[0]}"


def main(paths: list[str]) -> int:
    counts: Counter[str] = Counter()
    found = [each for path in paths for each in compare(Path(path), counts)]
    print("\n".join(found) or "all messages are as the schemas say")
    print(", ".join(f"{count} {name}" for name, count in counts.items()), f"in {len(paths)} files")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

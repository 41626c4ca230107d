"""JSON Schemas of all shapes, with their descriptions and the dialect of each member."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from exec_server.protocol.base64 import Blob, LazyBlob
from exec_server.protocol.method import Nothing
from exec_server.protocol.paths import PathUri
from exec_server.protocol.sandbox import OldSandbox, SandboxContext, SandboxWire
from exec_server.schema.catalog import Declared, declared
from exec_server.schema.comments import comments_of, is_ours, without_owner

REFERENCE = "#/components/schemas/"
_BASE64 = {"type": "string", "contentEncoding": "base64"}
_PATH = {
    "type": "string",
    "description": "A `file:` URI, or in older dialects an absolute path.",
}
_SANDBOX = {"$ref": f"{REFERENCE}SandboxWire"}
_OLD_SANDBOX = {
    "type": "object",
    "description": "The policy of the first revisions, which is `sandboxPolicy` of `SandboxWire`.",
}
_OWN_TYPES: dict[type, dict[str, Any]] = {
    Blob: _BASE64,
    LazyBlob: _BASE64,
    PathUri: _PATH,
    SandboxContext: _SANDBOX,
    OldSandbox: _OLD_SANDBOX,
}

# How msgspec calls a shape whose name is used twice.
_QUALIFIED = re.compile(rb"exec_server\.protocol\.(\w+)\.(\w+)")

Schema = dict[str, Any]


def schemas() -> dict[str, Schema]:
    """The schema of every shape, by its name."""
    shapes = [*_shapes(declared()), SandboxWire]
    _, found = msgspec.json.schema_components(
        shapes, schema_hook=_own_type, ref_template=REFERENCE + "{name}"
    )
    text = msgspec.json.encode(found)
    components: dict[str, Schema] = msgspec.json.decode(_QUALIFIED.sub(_short_name, text))
    for kind in _all_structs(shapes):
        name = name_of(kind, components)
        components[name]["title"] = name
        if "description" in components[name]:
            # Python 3.13 takes the indentation out of docstrings by itself.
            components[name]["description"] = inspect.cleandoc(components[name]["description"])
        _describe(kind, components[name])
    return dict(sorted(components.items()))


def name_of(kind: type, components: dict[str, Schema]) -> str:
    """The name of a shape. A name that two modules use begins with the module's."""
    if kind.__name__ in components:
        return kind.__name__
    return kind.__module__.rpartition(".")[2].capitalize() + kind.__name__


def _short_name(match: re.Match[bytes]) -> bytes:
    return match.group(1).capitalize() + match.group(2)


def _shapes(items: tuple[Declared, ...]) -> Iterator[type]:
    for each in items:
        for kind in (each.item.params, getattr(each.item, "result", Nothing)):
            if kind is not Nothing:
                yield kind


def _own_type(kind: type) -> Schema:
    try:
        return dict(_OWN_TYPES[kind])
    except KeyError:
        raise NotImplementedError(f"no schema for {kind}") from None


def _all_structs(shapes: list[type]) -> set[type]:
    """The Structs that *shapes* consist of, with themselves."""
    found: set[type] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(shape) for shape in shapes]
    while waiting:
        info = waiting.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in found:
                continue
            found.add(info.cls)
            waiting += [field.type for field in info.fields]
        elif isinstance(info, msgspec.inspect.UnionType):
            waiting += info.types
        else:
            waiting += [_ for _ in _inner(info)]
    return found


def _inner(info: Any) -> Iterator[Any]:
    """The types inside of a container."""
    for name in ("item_type", "key_type", "value_type", "type"):
        inner = getattr(info, name, None)
        if isinstance(inner, msgspec.inspect.Type):
            yield inner
    yield from getattr(info, "item_types", ())


def _describe(kind: type, schema: Schema) -> None:
    """Add the comments of the members, and say which of them are ours."""
    for field in msgspec.structs.fields(kind):
        member = schema["properties"].get(field.encode_name)
        comment = _comment(kind, field.name)
        if member is None or not comment:
            continue
        if "$ref" in member:
            # Other keywords beside a reference are not read by every program.
            schema["properties"][field.encode_name] = member = {"allOf": [member]}
        member["description"] = without_owner(comment)
        if is_ours(comment):
            member["x-dialect"] = "ours"


def _comment(kind: type, field: str) -> str:
    for base in kind.__mro__:
        module = sys.modules.get(base.__module__)
        if module is None or not base.__module__.startswith("exec_server.protocol."):
            continue
        text = comments_of(module).texts.get((base.__name__, field))
        if text:
            return text
    return ""

"""Messages compared with the schemas that the project publishes, by a validator of others."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema

from exec_server.protocol.method import Method, Nothing
from exec_server.schema.catalog import Declared, declared
from exec_server.schema.components import name_of
from exec_server.schema.openrpc import json_schemas


@cache
def _definitions() -> dict[str, Any]:
    found: dict[str, Any] = json_schemas()["$defs"]
    return found


@cache
def _by_name() -> dict[str, Declared]:
    return {each.item.name: each for each in declared()}


@cache
def _validator(kind: type) -> jsonschema.Draft202012Validator:
    name = name_of(kind, _definitions())
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/$defs/{name}", "$defs": _definitions()},
    )


def problems(kind: type, value: Any) -> list[str]:
    """How *value* differs from the schema of *kind*."""
    if kind is Nothing:
        return []
    return [
        f"{kind.__name__}: {error.message:.300}" for error in _validator(kind).iter_errors(value)
    ]


def problems_of_params(method: str, params: Any) -> list[str]:
    return problems(_by_name()[method].item.params, params)


def problems_of_result(method: str, result: Any) -> list[str]:
    item = _by_name()[method].item
    assert isinstance(item, Method)
    return problems(item.result, result)


class SchemaCheck:
    """Fails if a server says something on a connection that the schemas do not describe."""

    def __init__(self) -> None:
        self._asked: dict[Any, str] = {}

    def sent(self, message: Any) -> None:
        if isinstance(message, dict) and "id" in message and isinstance(message.get("method"), str):
            self._asked[str(message["id"])] = message["method"]

    def received(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        method = message.get("method")
        if method in _by_name():
            found = problems_of_params(method, message.get("params"))
        elif "result" in message and self._asked.get(str(message.get("id"))) in _by_name():
            found = problems_of_result(self._asked.pop(str(message["id"])), message["result"])
        else:
            return
        assert not found, f"{message!r:.300} is not as the schemas say: {found}"

"""Writes tables as TOML, which the standard library can only read; no I/O."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator
from typing import Any

Table = dict[str, Any]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def dumps(table: Table) -> str:
    """*table* as TOML: its keys in order, plain values before tables, tables as sections."""
    return "\n\n".join(_sections(table, ())) + "\n"


def _sections(table: Table, path: tuple[str, ...], *, header: str = "[{}]") -> Iterator[str]:
    values = [f"{_key(k)} = {_inline(v)}" for k, v in table.items() if not _is_section(v)]
    sections = {key: value for key, value in table.items() if _is_section(value)}
    # A table that contains only tables needs no header: their headers name it.
    if path and (values or not sections or header != "[{}]"):
        values.insert(0, header.format(".".join(map(_key, path))))
    if values:
        yield "\n".join(values)
    for key, value in sections.items():
        if isinstance(value, dict):
            yield from _sections(value, (*path, key))
        else:
            for element in value:
                yield from _sections(element, (*path, key), header="[[{}]]")


def _is_section(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(element, dict) for element in value)
    return isinstance(value, dict)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{_key(key)} = {_inline(inner)}" for key, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)


def _string(text: str) -> str:
    # TOML has the same escapes as JSON, but also wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

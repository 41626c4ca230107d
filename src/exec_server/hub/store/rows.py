"""Rows of the database, and the records that they stand for."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from exec_server.hub.store.entities import AccessToken, Environment, Pairing

_S = TypeVar("_S", bound=msgspec.Struct)
Row = dict[str, Any]

# Columns of pairings that hold 0 or 1.
PAIRING_FLAGS = ("is_open", "serves")


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def record_of(kind: type[_S], row: Row) -> _S:
    return msgspec.convert({name: row[name] for name in kind.__struct_fields__}, kind)


def token_of(row: Row) -> AccessToken:
    decoded = {name: msgspec.json.decode(row[name]) for name in ("rights", "patterns")}
    return record_of(AccessToken, {**row, **decoded, "is_once": bool(row["is_once"])})


def pairing_of(row: Row) -> Pairing:
    return record_of(Pairing, {**row, **{name: bool(row[name]) for name in PAIRING_FLAGS}})


def environment_of(row: Row) -> Environment:
    return record_of(Environment, {**row, "facts": msgspec.json.decode(row["facts"])})

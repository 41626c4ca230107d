"""Principals as columns for people, and as JSON for programs."""

from __future__ import annotations

import time
from typing import Any

from msgspec import to_builtins

from exec_server.access.principal import in_order
from exec_server.access.principal_record import LastUse, PrincipalRecord

HEADINGS = ["NAME", "MAY", "PROVED BY", "EXPIRES", "LAST USE", "STATE"]


def row(record: PrincipalRecord, use: LastUse | None) -> list[str]:
    """One line of `token list`."""
    return [
        record.name,
        ",".join(in_order(record.may)) or "nothing",
        ", ".join(_proofs(record)) or "nothing",
        "never" if record.expires_at is None else _moment(record.expires_at),
        _shown_use(use),
        _state(record),
    ]


def facts(record: PrincipalRecord, use: LastUse | None) -> dict[str, Any]:
    """One principal for `-o json`, without its digest."""
    return {
        "name": record.name,
        "may": in_order(record.may),
        "kind": record.kind,
        "hasToken": record.digest is not None,
        "certificates": record.certificates,
        "unixUsers": record.unix_users,
        "subjects": record.subjects,
        "floors": to_builtins(record.floors),
        "quotas": to_builtins(record.quotas),
        "createdAt": record.created_at,
        "rotatedAt": record.rotated_at,
        "expiresAt": record.expires_at,
        "revokedAt": record.revoked_at,
        "lastUsedAt": None if use is None else use.at,
        "lastUsedFrom": None if use is None else use.source,
        "state": _state(record),
    }


def lines(record: PrincipalRecord, use: LastUse | None) -> list[str]:
    """The answer of `token show`."""
    shown = {
        "name": record.name,
        "may": ",".join(in_order(record.may)) or "nothing",
        "kind": record.kind or "",
        "proved by": ", ".join(_proofs(record)) or "nothing",
        **shown_restrictions(to_builtins(record.floors)),
        **shown_restrictions(to_builtins(record.quotas)),
        "created": _moment(record.created_at),
        "token made": _optional(record.rotated_at),
        "expires": "never" if record.expires_at is None else _moment(record.expires_at),
        "last use": _shown_use(use),
        "state": _state(record),
    }
    width = max(map(len, shown))
    return [f"{name.ljust(width)}  {value}" for name, value in shown.items() if value]


def shown_restrictions(values: dict[str, Any]) -> dict[str, str]:
    """Floors or quotas, each as one line."""
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{name}={_text(part)}" for name, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _proofs(record: PrincipalRecord) -> list[str]:
    return [
        *(["token"] if record.digest is not None else []),
        *(f"certificate {name}" for name in record.certificates),
        *(f"user {name}" for name in record.unix_users),
        *(f"subject {name}" for name in record.subjects),
    ]


def _shown_use(use: LastUse | None) -> str:
    return "never" if use is None else f"{_moment(use.at)} from {use.source}"


def _state(record: PrincipalRecord) -> str:
    if record.revoked_at is not None:
        return "revoked"
    return "good" if record.is_good(time.time()) else "expired"


def _optional(at: float | None) -> str:
    return "" if at is None else _moment(at)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))

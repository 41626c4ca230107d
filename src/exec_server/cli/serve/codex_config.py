"""Codex's `config.toml`, which `--strict-config` checks. No setting of it has an effect here."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from exec_server.cli.serve.codex_fields import (
    BOOLEAN,
    EACH,
    FEATURES,
    FIELDS,
    INTEGER,
    LIST,
    OPEN,
    REMOVED,
    STRING,
    Field,
)
from exec_server.errors import ConfigurationError

_TYPES: dict[type, str] = {bool: BOOLEAN, int: INTEGER, str: STRING, list: LIST, dict: OPEN}
_ARTICLES = {INTEGER: "an integer"}


class _RefusedSetting(NamedTuple):
    """A setting that Codex refuses. It reports wrong types before unknown names."""

    is_unknown: bool
    field: str
    text: str


def check_features(names: Sequence[str]) -> None:
    """Raise ConfigurationError for a feature flag that Codex does not know."""
    for name in names:
        if name not in FEATURES:
            raise ConfigurationError(f"Unknown feature flag: {name}")


def check_config(environ: Mapping[str, str], overrides: Sequence[str] = ()) -> None:
    """Raise ConfigurationError if Codex would refuse the file, or one of *overrides*.

    The file may be missing. The known names are those of one version of Codex.
    """
    given = [_override(each) for each in overrides]
    home = environ.get("CODEX_HOME")
    path = (
        Path(home) if home else Path(environ.get("HOME") or Path.home()) / ".codex"
    ) / "config.toml"
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        settings = {}
    except (OSError, ValueError) as exc:
        raise ConfigurationError(f"{path}: {exc}") from exc
    for finding in _first(settings):
        raise ConfigurationError(f"{path}: {finding.text}")
    for override in given:
        for finding in _first(override):
            where = " in -c/--config override" if finding.is_unknown else ""
            raise ConfigurationError(f"{finding.text}{where}")


def _override(words: str) -> dict[str, Any]:
    """The settings of `-c KEY=VALUE`; a value that is not TOML is a string."""
    name, equals, value = words.partition("=")
    if not equals:
        raise ConfigurationError(f"Invalid override (missing '='): {words}")
    if not name.strip():
        raise ConfigurationError(f"Empty key in override: {words}")
    try:
        setting = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        setting = value.strip()
    for part in reversed(name.strip().split(".")):
        setting = {part: setting}
    settings: dict[str, Any] = setting
    return settings


def _first(settings: Mapping[str, Any]) -> list[_RefusedSetting]:
    """The finding that Codex reports, if there is any."""
    return sorted(_findings(settings, FIELDS, ""), key=lambda found: found.is_unknown)[:1]


def _findings(
    settings: Mapping[str, Any], fields: Mapping[str, Any], prefix: str
) -> Iterator[_RefusedSetting]:
    for name, value in settings.items():
        field, shown = fields.get(name, fields.get(EACH)), f"{prefix}{name}"
        if field is None:
            yield _RefusedSetting(True, shown, f"unknown configuration field `{shown}`")
        elif isinstance(field, Mapping) and isinstance(value, dict):
            yield from _findings(value, field, f"{shown}.")
        elif refusal := _refusal(value, field):
            yield _RefusedSetting(False, shown, f"{refusal} in `{shown}`")


def _refusal(value: Any, field: Field) -> str | None:
    """Why *value* cannot be the value of *field*."""
    kind = _TYPES.get(type(value), type(value).__name__)
    if field == REMOVED:
        return "no longer supported"
    if isinstance(field, tuple):
        # A word with settings of its own is the only key of a table.
        is_table = kind == OPEN and len(value) == 1
        if kind != STRING and not is_table:
            return _wrong_type(kind, value, [STRING])
        value = next(iter(value)) if is_table else value
        if value in field:
            return None
        known = ", ".join(f"`{each}`" for each in field)
        return f"unknown variant `{value}`, expected one of {known}"
    if isinstance(field, Mapping):
        kinds = [OPEN]
    else:
        kinds = [field] if isinstance(field, str) else sorted(field)
    # A date is text to Codex.
    is_known = kind in kinds or (kind not in _TYPES.values() and kind != "float")
    return None if is_known else _wrong_type(kind, value, kinds)


def _wrong_type(kind: str, value: Any, kinds: Sequence[str]) -> str:
    shown = {
        STRING: lambda: f"string {json.dumps(value, ensure_ascii=False)}",
        BOOLEAN: lambda: f"boolean `{str(value).lower()}`",
        INTEGER: lambda: f"integer `{value}`",
        "float": lambda: f"floating point `{value}`",
    }.get(kind, lambda: kind)()
    expected = " or ".join(_ARTICLES.get(each, f"a {each}") for each in kinds)
    return f"invalid type: {shown}, expected {expected}"

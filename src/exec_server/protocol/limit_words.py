"""Limits as people write them: `memory=2G`, `wall=30s`, `require`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec

from exec_server.protocol.resources import GrantedLimit, LimitName, ResourceLimits

LIMIT_NAMES: tuple[LimitName, ...] = get_args(LimitName)
REQUIRE = "require"
# What callers may write for limits.
Limited = ResourceLimits | Mapping[str, Any] | None

_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TIMES = {"": 1, "S": 1, "M": 60, "H": 3600, "D": 86400}
_PLAIN = {"": 1}
# The units of each limit, and an example.
_KINDS: dict[str, tuple[dict[str, int], str]] = {
    "memory": (_SIZES, "a size such as 500M or 2G"),
    "outputBytes": (_SIZES, "a size such as 64K or 10M"),
    "disk": (_SIZES, "a size such as 500M or 2G"),
    "pids": (_PLAIN, "a number of processes such as 200"),
    "openFiles": (_PLAIN, "a number of files such as 256"),
    "cpuRate": (_PLAIN, "a number of cores such as 0.5 or 2"),
    "cpuSeconds": (_TIMES, "a time such as 90s or 10m"),
    "wall": (_TIMES, "a time such as 30s, 10m or 2h"),
}
_FRACTIONS = ("cpuRate", "cpuSeconds", "wall")
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,9})?|\.[0-9]{1,9})([A-Za-z]?)(?:i?[bB])?"
_NAMES = {name.lower(): name for name in LIMIT_NAMES}


class WrongLimit(ValueError):
    """A text is not a limit; the message says what is expected."""


class UnknownLimit(WrongLimit):
    """A text names no limit."""


def parse_limits(texts: Iterable[str]) -> ResourceLimits:
    """The limits in *texts*, such as ``memory=2G,pids=200`` and ``require``.

    Of two values for one limit the last one counts. Raises WrongLimit.
    """
    found: dict[str, Any] = {}
    for text in texts:
        for word in text.split(","):
            name, value = _parsed(word.strip())
            found[name] = value
    return msgspec.convert(found, ResourceLimits)


def _parsed(word: str) -> tuple[str, Any]:
    if word == REQUIRE:
        return REQUIRE, True
    name, equals, text = word.partition("=")
    known = _NAMES.get(name.strip().lower().replace("-", "").replace("_", ""))
    if known is None and name == REQUIRE:
        raise WrongLimit(f"'{word}' is not a limit: `{REQUIRE}` takes no value")
    if known is None:
        valid = ", ".join(LIMIT_NAMES)
        raise UnknownLimit(
            f"unknown limit '{name}': the limits are {valid}, and the word {REQUIRE}"
        )
    units, example = _KINDS[known]
    match = re.fullmatch(_NUMBER, text.strip()) if equals else None
    unit = "" if match is None else match[2].upper()
    if match is None or unit not in units:
        raise WrongLimit(f"'{word}' is not a limit: expected `{known}=` with {example}")
    value = float(match[1]) * units[unit]
    if known not in _FRACTIONS:
        if units is _PLAIN and value != int(value):
            raise WrongLimit(f"'{word}' is not a limit: `{known}` has to be a whole number")
        value = int(value)
    if value <= 0:
        raise WrongLimit(f"'{word}' is not a limit: `{known}` has to be more than 0")
    return known, value


def as_limits(value: Limited) -> ResourceLimits | None:
    """Limits as callers write them: numbers, or texts such as "2G". Raises WrongLimit."""
    if value is None or isinstance(value, ResourceLimits):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"limits must be ResourceLimits or a mapping, not {type(value).__name__}")
    found: dict[str, Any] = {}
    for key, each in value.items():
        if key == REQUIRE:
            found[REQUIRE] = bool(each)
            continue
        name, parsed = _parsed(f"{key}={each}" if isinstance(each, str) else f"{key}=1")
        if isinstance(each, float) and not math.isfinite(each):
            # JSON would make it null, which is no limit at all.
            raise WrongLimit(f"limits: `{name}` has to be a finite number")
        found[name] = parsed if isinstance(each, str) else each
    try:
        return msgspec.convert(found, ResourceLimits)
    except msgspec.ValidationError as exc:
        raise WrongLimit(f"limits: {exc}") from None


def shown_limit(name: str, value: float) -> str:
    """A value with its unit, as `parse_limits` reads it."""
    units, _ = _KINDS[name]
    if units is _SIZES:
        for unit in "TGMK":
            if value >= _SIZES[unit] and not value % _SIZES[unit]:
                return f"{int(value) // _SIZES[unit]}{unit}"
        return str(int(value))
    return f"{value:.15g}s" if units is _TIMES else f"{value:.15g}"


def not_held(asked: ResourceLimits) -> dict[str, GrantedLimit]:
    """What became of limits that a server does not know."""
    limits = limits_in(asked)
    return {name: GrantedLimit(value, "none", "tree", "not held") for name, value in limits.items()}


def limits_in(limits: ResourceLimits) -> dict[str, float]:
    """The limits that are set, by their names on the wire."""
    found: dict[str, Any] = msgspec.to_builtins(limits)
    found.pop(REQUIRE, None)
    return found

"""Durations, rates, sizes and limits, as people write them. Each raises ValueError."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from exec_server.protocol.resources import ResourceLimits

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_NUMBER = re.compile(r"([0-9]{1,15}\.?[0-9]{0,9}|\.[0-9]{1,9})([a-zA-Z]*)")
_DURATION = "expected a number of seconds, or a number with s, m, h or d"
_RATE = "expected a rate such as 20/s or 90/m"
_SIZE = "expected a number of bytes, or a number with K, M, G or T"


def read_duration(text: str) -> float:
    """Seconds: `90`, or a number with `s`, `m`, `h` or `d`."""
    number, unit = _split(text, _DURATION)
    if unit not in _SECONDS:
        raise ValueError(_DURATION)
    return number * _SECONDS[unit]


def read_rate(text: str) -> float:
    """Times a second: `20/s`, `90/m`, or a number alone, which is per second."""
    number, per = text.split("/") if text.count("/") == 1 else (text, "s")
    found, unit = _split(number, _RATE)
    if unit or per not in ("s", "m", "h") or not found:
        raise ValueError(_RATE)
    return found / _SECONDS[per]


def read_size(text: str) -> int:
    """Bytes: `4096`, or a number with K, M, G or T, which are powers of 1024."""
    number, unit = _split(text, _SIZE)
    unit = unit.lower().removesuffix("ib").removesuffix("b")
    if unit not in _BYTES:
        raise ValueError(_SIZE)
    return int(number * _BYTES[unit])


def _split(text: str, expected: str) -> tuple[float, str]:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError(expected)
    return float(found[1]), found[2]


def _read_number(text: str) -> float:
    number, unit = _split(text, "expected a number")
    if unit:
        raise ValueError("expected a number")
    return number


def _read_count(text: str) -> int:
    number = _read_number(text)
    if number != int(number):
        raise ValueError("expected a whole number")
    return int(number)


# The limits of a command by their names at the prompt, and how a value of each is written.
_LIMITS = {
    "memory": read_size,
    "pids": _read_count,
    "cpu-rate": _read_number,
    "cpu-seconds": read_duration,
    "wall": read_duration,
    "output-bytes": read_size,
    "disk": read_size,
    "open-files": _read_count,
}


def read_limit(text: str) -> tuple[str, float]:
    """One limit, such as `memory=2G`: its field in `ResourceLimits`, and its value."""
    name, _, value = text.partition("=")
    if name not in _LIMITS:
        raise ValueError(f"expected NAME=VALUE, where NAME is one of {', '.join(_LIMITS)}")
    read = _LIMITS[name](value)
    if read <= 0:
        raise ValueError(f"{name} has to be more than 0")
    return name.replace("-", "_"), read


def limits_of(found: Iterable[tuple[str, float]]) -> ResourceLimits | None:
    """The limits that `read_limit` has read; None if there are none."""
    given = {_camel(name): value for name, value in found}
    return msgspec.convert(given, ResourceLimits) if given else None


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))

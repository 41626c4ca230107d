"""Durations and rates, as people write them. Each raises ValueError."""

from __future__ import annotations

import re

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_NUMBER = r"([0-9]{1,15}\.?[0-9]{0,9}|\.[0-9]{1,9})([a-zA-Z]*)"
_DURATION = "expected a number of seconds, or a number with s, m, h or d"
_RATE = "expected a rate such as 20/s or 90/m"


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


def _split(text: str, expected: str) -> tuple[float, str]:
    found = re.fullmatch(_NUMBER, text)
    if found is None:
        raise ValueError(expected)
    return float(found[1]), found[2]

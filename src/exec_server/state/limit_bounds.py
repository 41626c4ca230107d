"""What a process may use: the request between the defaults and the maximum of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# Beyond these a limit limits nothing, and the kernel's own numbers end.
_LARGEST = float(1 << 62)
_LONGEST_SECONDS = 1e9
_SECONDS = ("wall", "cpuSeconds")
_FRACTIONS = ("cpuRate", *_SECONDS)


class BoundedLimits(NamedTuple):
    """The limits that hold, by their names on the wire."""

    values: dict[str, float]
    # The limits that were asked for and lowered.
    lowered: tuple[str, ...]


def bounded(
    asked: Mapping[str, float], *, default: Mapping[str, float], maximum: Mapping[str, float]
) -> BoundedLimits:
    """*asked*, completed by *default* and lowered to *maximum*.

    A limit that only *maximum* has holds as well, so that no request is beyond it.
    """
    wanted = {**default, **asked}
    values = {
        name: _storable(name, min(wanted.get(name, most), most))
        for name in (*wanted, *(name for name in maximum if name not in wanted))
        for most in (maximum.get(name, _LARGEST),)
    }
    lowered = tuple(name for name in asked if name in maximum and asked[name] > maximum[name])
    return BoundedLimits(values, lowered)


def _storable(name: str, value: float) -> float:
    if name in _FRACTIONS:
        return float(min(value, _LONGEST_SECONDS))
    return int(min(value, _LARGEST))

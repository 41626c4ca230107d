"""The ranges of names that patterns can match, in the order of all names."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_FIXED = re.compile(r"[^*?]*")
# This character sorts after all characters of names.
_LAST = "~"


class Span(msgspec.Struct, frozen=True):
    """All names that match these patterns are from *first* to *last*, both included."""

    first: str
    last: str
    patterns: tuple[str, ...]


def spans(patterns: Iterable[str]) -> list[Span]:
    """The ranges of patterns with `*` and `?`, in order and without overlap."""
    found: list[Span] = []
    for span in sorted(map(_span, set(patterns)), key=lambda span: span.first):
        if found and span.first <= found[-1].last:
            span = _joined(found.pop(), span)
        found.append(span)
    return found


def _span(pattern: str) -> Span:
    fixed = _FIXED.match(pattern)
    first = fixed[0] if fixed else ""
    return Span(first, first if first == pattern else first + _LAST, (pattern,))


def _joined(one: Span, other: Span) -> Span:
    return Span(one.first, max(one.last, other.last), one.patterns + other.patterns)

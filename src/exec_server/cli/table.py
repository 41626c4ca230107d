"""Facts on standard output: columns for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need to be; the last one is not filled up."""
    lines = [list(headings), *([readable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(cells).rstrip())


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def readable(text: str) -> str:
    """What others have written, without anything that would act on a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)

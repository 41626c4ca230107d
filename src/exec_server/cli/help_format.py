"""The layout of help texts: one width for options and prose."""

from __future__ import annotations

import argparse
import os
import sys
from itertools import groupby

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

# The prose of the help texts is written in lines of this length.
_MOST_COLUMNS = 100
_FEWEST_COLUMNS = 40


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Options and prose have the width of the terminal, up to that of the source."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=max(_FEWEST_COLUMNS, min(_columns(), _MOST_COLUMNS)))

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        # Lines that begin with a space are columns and examples, which stay as they are.
        filled: list[str] = []
        for is_prose, lines in groupby(text.splitlines(), lambda line: line[:1].strip() != ""):
            block = list(lines)
            filled += textwrap.wrap(" ".join(block), width) if is_prose else block
        return "\n".join(indent + line for line in filled)


def _columns() -> int:
    """The width of the terminal, as `shutil.get_terminal_size` finds it.

    `shutil` also loads what compresses archives, which takes longer than the rest of a help text.
    """
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and int(named) > 0:
        return int(named)
    if sys.__stdout__ is None:
        return _MOST_COLUMNS
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _MOST_COLUMNS
    except (ValueError, OSError):
        return _MOST_COLUMNS

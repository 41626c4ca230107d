"""The layout of help texts: one width for options and prose."""

from __future__ import annotations

import argparse
from itertools import groupby
from typing import Any

# The prose of the help texts is written in lines of this length.
_MOST_COLUMNS = 100
_FEWEST_COLUMNS = 40


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Options and prose have the width of the terminal, up to that of the source."""

    def __init__(self, prog: str) -> None:
        import shutil

        columns = shutil.get_terminal_size((_MOST_COLUMNS, 24)).columns
        super().__init__(prog, width=max(_FEWEST_COLUMNS, min(columns, _MOST_COLUMNS)))

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

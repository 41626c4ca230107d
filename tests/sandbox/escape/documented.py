"""Writes the tables of docs/sandbox-attempts.md: `python -m tests.sandbox.escape.documented`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.children.escapes.__main__ import ALL
from tests.children.escapes.attempt import ATTEMPTS, group, sentence
from tests.sandbox.escape.expected import read

PAGE = Path(__file__).parents[3] / "docs" / "sandbox-attempts.md"
_BEGIN, _END = "<!-- attempts -->\n", "<!-- end of attempts -->\n"


def table() -> str:
    """The tables: every attempt and its result on each backend."""
    rows = read()
    lines = []
    for module in ALL:
        title = (module.__doc__ or "").strip().rstrip(".")
        lines += [f"\n| {title} | bubblewrap | Landlock |", "|---|---|---|"]
        for name in ATTEMPTS:
            if group(name) == module.__name__.rpartition(".")[2]:
                row = rows[name]
                shown = f"{row.shown('bubblewrap')} | {row.shown('landlock')}"
                lines.append(f"| {sentence(name)} | {shown} |")
    return "\n".join(lines) + "\n\n"


def written() -> str:
    """The tables as they are on the page."""
    return PAGE.read_text().partition(_BEGIN)[2].partition(_END)[0]


def main() -> None:
    page = re.compile(f"(?<={_BEGIN}).*(?={_END})", re.DOTALL)
    PAGE.write_text(page.sub(lambda _: table(), PAGE.read_text()))


if __name__ == "__main__":
    main()

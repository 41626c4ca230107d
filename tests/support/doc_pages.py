"""The documents as text: their headings, links and blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.source_tree import REPOSITORY

_FENCE = re.compile(
    r"(?:^(?P<pad> *)<!-- not run: (?P<reason>.*?) -->\n)?"
    r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
_LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_NAMED = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
# Blocks of these are programs; others are data or drawings.
SHELLS = frozenset({"sh", "bash", "console"})
PROGRAMS = SHELLS | {"python"}


class Block(NamedTuple):
    """One block of code of a document."""

    page: Path
    line: int
    language: str
    text: str
    # Why it is not run, if the comment above it says so.
    reason: str | None

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def pages() -> list[Path]:
    """All documents for people, in order."""
    return sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of code of *page*."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        lines = [line[indent:] for line in match["text"].splitlines()]
        yield Block(
            page,
            text.count("\n", 0, match.start("fence")) + 1,
            match["info"].strip().split(" ")[0],
            "\n".join(lines) + "\n",
            match["reason"],
        )


def prose(page: Path) -> str:
    """The text of *page* without its blocks of code and its quoted words."""
    text = _FENCE.sub(lambda block: "\n" * block.group().count("\n"), page.read_text("utf-8"))
    return re.sub(r"(`+)(?!`)(?:(?!\1).)+?\1(?!`)", _same_lines, text, flags=re.DOTALL)


def links(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the links of *page* to files and headings of the repository, with their lines."""
    text = prose(page)
    for match in _LINK.finditer(text):
        if not re.match(r"[a-z][a-z0-9+.-]*:", match[1]):
            yield text.count("\n", 0, match.start()) + 1, match[1]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of the headings of *page*, as GitHub and the site make them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    seen: dict[str, int] = {}
    found = set(_NAMED.findall(text))
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{count}" if count else slug)
    return frozenset(found)


def _same_lines(match: re.Match[str]) -> str:
    return "x" + "\n" * match.group().count("\n")

"""The chapters of the site. A page that none of them names is listed under its folder's chapter."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Chapter(NamedTuple):
    """A part of the navigation; its pages are paths below docs/, without their suffix."""

    title: str
    pages: tuple[str, ...]
    # Pages in these folders that no chapter names come at the end.
    folders: tuple[str, ...] = ()


CHAPTERS = (
    Chapter(
        "Tutorials",
        (
            "tutorials/agent-builder",
            "guides/codex",
            "tutorials/laptop-and-big-machine",
            "guides/team",
            "tutorials/cluster-without-root",
        ),
        ("tutorials",),
    ),
    Chapter(
        "How to",
        (
            "guides/agents",
            "integrations/README",
            "guides/share-a-terminal",
            "guides/vscode-behind-nat",
            "guides/ansible",
            "operating",
            "registry",
            "scaling",
            "upgrading",
        ),
        ("guides", "integrations"),
    ),
    Chapter(
        "Using it",
        (
            "cli",
            "client",
            "files",
            "ports",
            "http",
            "screen",
            "sharing",
            "recordings",
            "web",
            "ssh",
            "durable",
            "limits",
            "ends",
            "sandbox",
            "denials",
            "network",
            "remote",
            "audit",
        ),
    ),
    Chapter(
        "Reference",
        ("reference/cli/index", "reference/client/index", "protocol/README", "wire", "conformance"),
        ("protocol", "reference/cli", "reference/client"),
    ),
    Chapter(
        "Explanations",
        (
            "concepts",
            "architecture",
            "security",
            "relay",
            "compatibility",
            "performance",
            "decisions",
            "sandbox-attempts",
            "style",
            "releasing",
        ),
        (".", "spec"),
    ),
)
# Pages beside docs/, which are in the site as well.
PROJECT = ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")


def tables(docs: Path) -> str:
    """The navigation as toctrees, for all pages below *docs* that exist."""
    there = {path.relative_to(docs).with_suffix("").as_posix() for path in docs.rglob("*.md")}
    there -= {"index"}
    named = {page for chapter in CHAPTERS for page in chapter.pages}
    parts = []
    for title, pages, folders in CHAPTERS:
        rest = sorted(
            page
            for page in there - named
            if Path(page).parent.as_posix() in folders or _is_below(page, folders)
        )
        listed = [page for page in pages if page in there] + rest
        named |= set(rest)
        parts.append(_toctree(title, [f"docs/{page}" for page in listed]))
    parts.append(_toctree("The project", list(PROJECT)))
    if left := there - named:
        raise ValueError(f"no chapter of scripts/site/pages.py has {', '.join(sorted(left))}")
    return "\n".join(parts)


def _is_below(page: str, folders: tuple[str, ...]) -> bool:
    return any(page.startswith(f"{folder}/") for folder in folders if folder != ".")


def _toctree(title: str, pages: list[str]) -> str:
    lines = ["```{toctree}", ":hidden:", ":maxdepth: 1", f":caption: {title}", "", *pages, "```"]
    return "\n".join(lines) + "\n"

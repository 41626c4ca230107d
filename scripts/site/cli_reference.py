"""A page for each command: what its parser prints for ``--help``."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

from exec_server.cli.commands import GROUPS, CommandEntry
from exec_server.cli.main import main

_COMMANDS = re.compile(r"^commands, each with a --help:\n((?:  \S.*\n)+)", re.MULTILINE)


def help_of(*words: str) -> str:
    """What ``exec-server WORDS --help`` prints; empty if it is not a command."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            status = main([*words, "--help"])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    return printed.getvalue().rstrip() + "\n" if not status else ""


def nested(text: str) -> list[str]:
    """The commands of a command, as its help lists them."""
    listed = _COMMANDS.search(text)
    return [line.split()[0] for line in listed[1].splitlines()] if listed else []


def page(entry: CommandEntry) -> str:
    """The page of one command, with the commands that it has itself."""
    parts = [f"# exec-server {entry.name}\n", f"{entry.summary[0].upper()}{entry.summary[1:]}.\n"]
    text = help_of(entry.name)
    parts.append(_block(text))
    for name in nested(text):
        inner = help_of(entry.name, name)
        if inner and inner != text:
            parts += [f"## exec-server {entry.name} {name}\n", _block(inner)]
    return "\n".join(parts)


def write(folder: Path) -> None:
    """Write all pages to *folder*."""
    os.environ.update(COLUMNS="100", NO_COLOR="1", HOME="/home/you")
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    folder.mkdir(parents=True)
    lines = [
        "# The command line\n",
        "These pages are what the commands print for `--help`, made from their parsers. The guide",
        "to the command line is [cli.md](../../cli.md).\n",
        "Without a command, `exec-server` [serves](serve.md).\n",
    ]
    (folder / "serve.md").write_text(f"# exec-server (serve)\n\n{_block(help_of())}")
    for group in GROUPS:
        lines += [f"\n## {group.title[0].upper()}{group.title[1:]}\n"]
        for entry in group.entries:
            (folder / f"{entry.name}.md").write_text(page(entry))
            lines.append(f"* [`{entry.name} {entry.words}`]({entry.name}.md): {entry.summary}")
    (folder / "index.md").write_text("\n".join(lines) + "\n")


def _block(text: str) -> str:
    return f"```text\n{text}```\n"

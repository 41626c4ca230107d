"""The marks that shells with integration put around prompts and commands (OSC 133, OSC 7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_MARK = re.compile(rb"\x1b\](133|7);([^\x07\x1b]*)(?:\x07|\x1b\\)")
# A sequence that is longer than this is no mark.
_LONGEST = 16 * 1024


class Mark(NamedTuple):
    """One mark; *kind* is A, B, C or D of OSC 133, or "cwd"."""

    kind: str
    value: str = ""


class MarkScanner:
    """Finds marks in output, however it is split."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def has_begun(self) -> bool:
        """True if the beginning of a mark may have come."""
        return bool(self._rest)

    def split(self, data: bytes) -> Iterator[tuple[bytes, Mark | None]]:
        """*data* in pieces; each but the last ends with the mark that it is given with."""
        if not self._rest and b"\x1b" not in data:
            yield data, None
            return
        known = len(self._rest)
        text = self._rest + data
        done = end = 0
        for found in _MARK.finditer(text):
            end = found.end()
            yield data[done : end - known], _mark_of(found)
            done = end - known
        self._rest = _beginning(text[end:])
        if done < len(data):
            yield data[done:], None


def _beginning(text: bytes) -> bytes:
    """The end of *text*, if a mark may have begun there."""
    start = text.rfind(b"\x1b]")
    if start < 0:
        return b"\x1b" if text.endswith(b"\x1b") else b""
    tail = text[start:]
    return tail if len(tail) <= _LONGEST and b"\x07" not in tail else b""


def _mark_of(found: re.Match[bytes]) -> Mark | None:
    value = found[2].decode("utf-8", "replace")
    if found[1] == b"7":
        return Mark("cwd", _path_of(value))
    kind, _, rest = value.partition(";")
    return Mark(kind, rest) if kind in ("A", "B", "C", "D") else None


def _path_of(url: str) -> str:
    """The path of a `file://host/path`, as OSC 7 has it; other values are paths themselves."""
    if not url.startswith(("file:", "kitty-shell-cwd:")):
        return url
    try:
        return unquote(urlsplit(url).path)
    except ValueError:
        return ""


def command_of(value: str) -> str | None:
    """The command line that a C mark may carry."""
    for part in value.split(";"):
        name, _, text = part.partition("=")
        if name == "cmdline_url":
            return unquote(text)
    return None


def exit_code_of(value: str) -> int | None:
    """The exit status that a D mark may carry."""
    first = value.split(";")[0]
    return int(first) if first.isascii() and first.lstrip("-").isdigit() else None


def is_continuation(value: str) -> bool:
    """True for the prompt of a further line of the same command."""
    return "k=s" in value.split(";") or "k=c" in value.split(";")

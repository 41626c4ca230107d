"""Patterns as in .gitignore: which names are left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple


class _IgnoreRule(NamedTuple):
    matches: re.Pattern[str]
    # True for a pattern that begins with `!`, and takes names back.
    is_negated: bool
    only_directories: bool


class IgnoreRules:
    """Patterns in their order, of which the last one that matches decides.

    A pattern with a slash at its beginning or in its middle is about the path below the directory
    of the patterns; any other one is about names, at any depth. `*` and `?` do not match a slash,
    and `**` stands for any number of directories. A slash at the end matches directories only.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._rules = [rule for rule in map(_parse, patterns) if rule is not None]

    def __bool__(self) -> bool:
        return bool(self._rules)

    @property
    def has_plain(self) -> bool:
        """True if there is a pattern without `!`."""
        return any(not rule.is_negated for rule in self._rules)

    def verdict(self, path: str, *, is_directory: bool) -> bool | None:
        """True if *path* matches, False if `!` takes it back, None if no pattern is about it."""
        for rule in reversed(self._rules):
            if rule.only_directories and not is_directory:
                continue
            if rule.matches.fullmatch(path):
                return not rule.is_negated
        return None

    def excludes(self, path: str, *, is_directory: bool) -> bool:
        """True if *path* itself matches. What is below an excluded directory is not asked about."""
        return bool(self.verdict(path, is_directory=is_directory))


@lru_cache(maxsize=4096)
def _parse(line: str) -> _IgnoreRule | None:
    pattern = line.rstrip("\r\n")
    while pattern.endswith(" ") and not pattern.endswith("\\ "):
        pattern = pattern[:-1]
    if not pattern or pattern.startswith("#"):
        return None
    is_negated = pattern.startswith("!")
    pattern = pattern[is_negated:]
    only_directories = pattern.endswith("/")
    pattern = pattern.rstrip("/") if only_directories else pattern
    if not pattern:
        return None
    is_anchored = "/" in pattern
    names = pattern.lstrip("/").split("/")
    if not is_anchored:
        names.insert(0, "**")
    return _IgnoreRule(re.compile(_translated(names), re.DOTALL), is_negated, only_directories)


def _translated(names: list[str]) -> str:
    text = ""
    for index, name in enumerate(names):
        is_last = index == len(names) - 1
        if name == "**":
            text += ".+" if is_last else "(?:.*/)?"
        else:
            text += _name(name) + ("" if is_last else "/")
    return text


def _name(name: str) -> str:
    """One part of a path as a regular expression, without the backtracking of many stars."""
    first, *others = _pieces(name)
    if not others:
        return first
    # The leftmost place is as good as any other, because a piece has a fixed length.
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1])
    return f"{first}{middle}[^/]*{others[-1]}"


def _pieces(name: str) -> list[str]:
    """The parts between stars, as regular expressions of a fixed length."""
    found, index = [""], 0
    while index < len(name):
        char = name[index]
        index += 1
        if char == "*":
            if len(found) == 1 or found[-1]:
                found.append("")
        elif char == "?":
            found[-1] += "[^/]"
        elif char == "\\" and index < len(name):
            found[-1] += re.escape(name[index])
            index += 1
        elif char == "[" and (end := _class_end(name, index)) is not None:
            found[-1] += _class(name[index:end])
            index = end + 1
        else:
            found[-1] += re.escape(char)
    return found


def _class_end(name: str, start: int) -> int | None:
    """The place of the bracket that closes a class; None if there is none."""
    index = start + (name[start : start + 1] in ("!", "^"))
    end = name.find("]", index + 1)
    return None if end < 0 else end


def _class(inner: str) -> str:
    negation = "^/" if inner[0] in "!^" else ""
    members = inner[1:] if negation else inner
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", members)
    text = f"[{negation}{escaped}]"
    try:
        re.compile(text)
    except re.error:
        # A range that runs backwards matches nothing.
        return "(?!)"
    return text

"""Files to deny by a pattern: found when a plan is made, among the files that exist by then.

``*`` and ``?`` stop at slashes, and only a whole component ``**`` crosses them; ``[abc]``,
``[!a-c]`` and ``{a,b}`` work as usual, and a backslash makes the next character an ordinary one. A
leading dot is an ordinary character. Directories never match, and links to them are not entered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from exec_server.sandbox.file_system_facts import FileSystemFacts, join
from exec_server.sandbox.model import Glob, Unenforceable

# This is the reference's limit; each match is a mount.
_MAX_MATCHES = 8192
# A larger tree is not searched: this many entries take seconds.
_MAX_VISITED = 1_000_000
_MAX_ALTERNATIVES = 1024
_MAX_GROUPS = 64

_WILDCARD = re.compile(r"[*?\[]")
_SPECIAL = re.compile(r"[*?\[{}\\]")
_BRACKETS = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")

# One component of a pattern: an expression for its name, or None for `**`, which stands for any
# number of directories.
_Component = re.Pattern[str] | None
_Alternative = tuple[_Component, ...]


class Match(NamedTuple):
    path: bytes
    is_symlink: bool


def fixed_prefix(glob: Glob) -> bytes:
    """The directory that contains everything *glob* can match. Raises Unenforceable."""
    kept = _fixed_parts(glob)
    if not kept or not _WILDCARD.search(glob.pattern[glob.anchor :]):
        raise Unenforceable(
            f"unreadable glob `{_shown(glob)}` cannot be safely expanded; "
            "use a pattern with a non-root directory prefix"
        )
    return ("/" + "/".join(kept)).encode("utf-8", "surrogateescape")


def scan(
    glob: Glob, directory: bytes, depth: int | None, facts: FileSystemFacts
) -> Iterator[Match]:
    """The files that *glob* matches in *directory*, which is where its fixed prefix leads.

    Only *depth* levels are searched; 1 is the directory itself. Raises Unenforceable for too many
    matches, for a tree that is too large or cannot be read, and for an invalid pattern.
    """
    try:
        found = 0
        for match in _walk(directory, compiled(glob), depth, facts):
            found += 1
            if found > _MAX_MATCHES:
                text = f"unreadable glob `{_shown(glob)}` matches more than {_MAX_MATCHES} files"
                raise Unenforceable(text)
            yield match
    except (OSError, ValueError) as exc:
        raise Unenforceable(f"unreadable glob `{_shown(glob)}` scan failed: {exc}") from exc


def compiled(glob: Glob) -> list[_Alternative]:
    """The part of *glob* after its fixed prefix. Raises ValueError for an invalid pattern."""
    anchor, rest = glob.pattern[: glob.anchor], glob.pattern[glob.anchor :]
    kept = len(_fixed_parts(glob)) - len(_parts(anchor))
    text = "/".join(_parts(rest)[kept:])
    if text.count("{") > _MAX_GROUPS:
        raise ValueError(f"more than {_MAX_GROUPS} alternate groups")
    return [_components(alternative) for alternative in _alternatives(text)]


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _fixed_parts(glob: Glob) -> list[str]:
    kept = _parts(glob.pattern[: glob.anchor])
    rest = _parts(glob.pattern[glob.anchor :])
    # The last component is a file's name, not a directory's.
    for part in rest[:-1]:
        if _SPECIAL.search(part):
            break
        kept.append(part)
    return kept


def _shown(glob: Glob) -> str:
    return glob.pattern.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _walk(
    directory: bytes, alternatives: list[_Alternative], depth: int | None, facts: FileSystemFacts
) -> Iterator[Match]:
    # The positions, in each alternative, to which the names so far have led.
    start = frozenset((alternative, 0) for alternative in alternatives)
    waiting = [(directory, start, 1)]
    visited = 0
    while waiting:
        path, states, level = waiting.pop()
        for entry in facts.entries(path):
            visited += 1
            if visited > _MAX_VISITED:
                raise ValueError(f"more than {_MAX_VISITED} files to look at")
            reached = _advanced(states, entry.name.decode("utf-8", "surrogateescape"))
            if entry.is_directory:
                if reached and (depth is None or level < depth):
                    waiting.append((join(path, entry.name), reached, level + 1))
            elif any(position == len(alternative) for alternative, position in reached):
                yield Match(join(path, entry.name), entry.is_symlink)


_States = frozenset[tuple[_Alternative, int]]


def _advanced(states: _States, name: str) -> _States:
    reached: set[tuple[_Alternative, int]] = set()
    for alternative, position in states:
        while position < len(alternative):
            component = alternative[position]
            if component is not None:
                if component.fullmatch(name):
                    reached.add((alternative, position + 1))
                break
            reached.add((alternative, position))
            position += 1
    return frozenset(reached)


def _alternatives(text: str) -> list[str]:
    """Return *text* once for each choice of its braces. Raises ValueError."""
    opening = _position_of(text, "{", 0)
    if opening is None:
        if _position_of(text, "}", 0) is not None:
            raise ValueError("unopened alternate group; missing '{'")
        return [text]
    choices, end = _choices(text, opening + 1)
    found: list[str] = []
    for choice in choices:
        found += _alternatives(text[:opening] + choice + text[end:])
        if len(found) > _MAX_ALTERNATIVES:
            raise ValueError(f"more than {_MAX_ALTERNATIVES} alternatives")
    return found


def _choices(text: str, start: int) -> tuple[list[str], int]:
    """The texts between commas up to the closing brace, and the position after it."""
    choices, level, begin, position = [], 1, start, start
    while position < len(text):
        sign = text[position]
        if sign == "{":
            level += 1
        elif sign == "}":
            level -= 1
        if (sign == "," and level == 1) or level == 0:
            choices.append(text[begin:position])
            begin = position + 1
        if level == 0:
            return choices, begin
        position = _after(text, position)
    raise ValueError("unclosed alternate group; missing '}'")


def _position_of(text: str, sign: str, start: int) -> int | None:
    """The position of *sign* where it stands for itself, neither escaped nor in brackets."""
    position = start
    while position < len(text):
        if text[position] == sign:
            return position
        position = _after(text, position)
    return None


def _after(text: str, position: int) -> int:
    """The position after one character, an escaped one, or a whole bracket expression."""
    if text[position] == "\\":
        return position + 2
    brackets = _BRACKETS.match(text, position) if text[position] == "[" else None
    return brackets.end() if brackets is not None else position + 1


def _components(text: str) -> _Alternative:
    components: list[_Component] = []
    begin = 0
    while begin <= len(text):
        end = _position_of(text, "/", begin)
        part = text[begin : len(text) if end is None else end]
        if part:
            components.append(None if len(part) > 1 and not part.strip("*") else _regex(part))
        begin = len(text) + 1 if end is None else end + 1
    if components and components[-1] is None:
        # `a/**` stands for all files below a.
        components.append(_regex("*"))
    return tuple(components)


def _regex(part: str) -> re.Pattern[str]:
    chunks, position = [""], 0
    while position < len(part):
        sign, end = part[position], _after(part, position)
        if sign == "*":
            chunks.append("")
        elif sign == "?":
            chunks[-1] += "."
        elif sign == "[" and end > position + 1:
            chunks[-1] += _bracketed(part[position:end])
        else:
            chunks[-1] += re.escape(part[position:end].removeprefix("\\") or "\\")
        position = end
    if len(chunks) == 1:
        return re.compile(chunks[0], re.DOTALL)
    # Between two stars the first match is as good as any other, so no name takes long to refuse.
    middle = "".join(f"(?>.*?{chunk})" for chunk in chunks[1:-1] if chunk)
    return re.compile(f"{chunks[0]}{middle}.*{chunks[-1]}", re.DOTALL)


def _bracketed(text: str) -> str:
    """A class of characters. Raises ValueError for a range that runs backwards."""
    brackets = _BRACKETS.fullmatch(text)
    assert brackets is not None
    negation, signs = brackets.groups()
    inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", signs)
    try:
        return re.compile(f"[{'^' if negation else ''}{inner}]").pattern
    except re.error as exc:
        raise ValueError(f"invalid range in {text}: {exc}") from exc

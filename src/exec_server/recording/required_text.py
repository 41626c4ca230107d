"""A text that every match of a regular expression contains; such a text is found quickly."""

from __future__ import annotations

import re

# A shorter one is in too many lines.
_SHORTEST = 2
_SPECIAL = frozenset(".^$*+?{}[]\\|()")


def required_text(pattern: re.Pattern[str]) -> str | None:
    """The longest such text, as far as it can be seen; None if none is seen.

    Only expressions without groups, alternatives and flags are looked at.
    """
    text = pattern.pattern
    if pattern.flags & (re.IGNORECASE | re.VERBOSE) or any(each in text for each in "|()"):
        return None
    runs, run = [], ""
    place = 0
    while place < len(text):
        character, length = _literal(text, place)
        place += length
        following = text[place : place + 1]
        if character is None or following in ("*", "?", "{"):
            # It may be absent, or it is no literal.
            runs.append(run)
            run = ""
        else:
            run += character
            if following == "+":
                runs.append(run)
                run = ""
        place += _quantifier(text, place)
    longest = max([*runs, run], key=len)
    return longest if len(longest) >= _SHORTEST else None


def _literal(text: str, place: int) -> tuple[str | None, int]:
    """The character that is meant at *place*, None if it is not one; and how long it is."""
    character = text[place]
    if character == "\\":
        escaped = text[place + 1]
        # Letters and digits have meanings, such as \\d, \\x41 and \\1.
        return (None, _escape_length(text, place)) if escaped.isalnum() else (escaped, 2)
    if character == "[":
        return None, _set_length(text, place)
    return (None if character in _SPECIAL else character), 1


def _escape_length(text: str, place: int) -> int:
    lengths = {"x": 4, "u": 6, "U": 10}
    if text[place + 1] in lengths:
        return lengths[text[place + 1]]
    end = text.find("}", place) if text[place + 1] == "N" else -1
    digits = re.match(r"\\[0-9]{1,3}", text[place:])
    return end + 1 - place if end >= 0 else digits.end() if digits else 2


def _set_length(text: str, place: int) -> int:
    end = place + 1
    end += text[end : end + 1] == "^"
    end += text[end : end + 1] == "]"
    while text[end] != "]":
        end += 2 if text[end] == "\\" else 1
    return end + 1 - place


def _quantifier(text: str, place: int) -> int:
    found = re.match(r"(?:[*+?]|\{[0-9,]*\})[?+]?", text[place:])
    return found.end() if found else 0

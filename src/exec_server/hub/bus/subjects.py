"""What may be said on a bus, the same for every kind of it; all else is a ValueError.

Names come from what clients say. One that a bus reads as a pattern would hear, or fence, what
belongs to others.
"""

from __future__ import annotations

import re

# The longest value behind a fence: who owns something, not the thing itself.
HELD_BYTES = 64 * 1024
# With room for what a bus adds; NATS drops who sends a line of more than 4 KiB.
_NAME_CHARACTERS = 1024

_WORD = r"[A-Za-z0-9_-]+"
_is_word = re.compile(_WORD).fullmatch
_is_subject = re.compile(rf"{_WORD}(?:\.{_WORD})*").fullmatch


def check_word(word: str) -> str:
    if not _is_word(word) or len(word) > _NAME_CHARACTERS:
        raise ValueError(f"{word!r} is not a word of letters, digits, - and _")
    return word


def check_subject(subject: str) -> str:
    if not _is_subject(subject) or len(subject) > _NAME_CHARACTERS:
        raise ValueError(f"{subject!r} is not a subject")
    return subject


def check_length(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise ValueError(f"a message of {len(data)} bytes is longer than {limit}")
    return data

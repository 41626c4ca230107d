"""Which subjects, keys and lengths every bus accepts; all others are a ValueError.

Names come from clients. A name that a bus would read as a pattern could reach the messages or
values of others.
"""

from __future__ import annotations

import re

# The longest value. A value names the owner of a thing; it is not the thing itself.
VALUE_BYTES = 64 * 1024
# NATS disconnects a client that sends a line of more than 4 KiB, and the bus adds a prefix.
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

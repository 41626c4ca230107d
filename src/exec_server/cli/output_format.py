"""The format that a command line asks for, even if the command line is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any


def asks_for_json(words: Sequence[str]) -> bool:
    """True if a command line asks for JSON; it need not be right in other ways."""
    words = list(words)
    own = words[: words.index("--")] if "--" in words else words
    if any(word in ("-ojson", "-o=json", "--output=json") for word in own):
        return True
    return any(name in ("-o", "--output") and value == "json" for name, value in pairwise(own))


def printable_json(facts: dict[str, Any]) -> str:
    """An object on one line; surrogates, which names of files may contain, are escaped."""
    import msgspec

    sound = {name: _sound(value) for name, value in facts.items()}
    return msgspec.json.encode(sound).decode()


def _sound(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value

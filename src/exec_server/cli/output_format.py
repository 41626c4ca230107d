"""The format that a command line asks for, even if the command line is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

# DEL, and the controls of one character, such as U+009B for ESC [.
_CONTROLS = {number: f"\\u{number:04x}" for number in range(0x7F, 0xA0)}

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
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

    return without_controls(msgspec.json.encode(without_surrogates(facts)).decode())


def without_controls(text: str) -> str:
    """JSON with escapes for the controls that JSON lets through; some terminals obey them."""
    return text if text.isascii() and "\x7f" not in text else text.translate(_CONTROLS)


def without_surrogates(value: Any) -> Any:
    """*value* with escapes in place of bytes of names that are not text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {without_surrogates(name): without_surrogates(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(each) for each in value]
    return value

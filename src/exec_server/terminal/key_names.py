"""Names of keys, and the bytes that a terminal sends for them in the modes in force."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_MODIFIERS = {
    "shift": 1,
    "alt": 2,
    "meta": 2,
    "option": 2,
    "ctrl": 4,
    "control": 4,
    "super": 8,
    "cmd": 8,
}
# Keys whose sequence ends with a letter; arrows, home and end change with DECCKM.
_LETTERS = {
    "up": b"A",
    "down": b"B",
    "right": b"C",
    "left": b"D",
    "home": b"H",
    "end": b"F",
    "f1": b"P",
    "f2": b"Q",
    "f3": b"R",
    "f4": b"S",
}
_NUMBERS = {
    "insert": 2,
    "delete": 3,
    "pageup": 5,
    "pagedown": 6,
    "f5": 15,
    "f6": 17,
    "f7": 18,
    "f8": 19,
    "f9": 20,
    "f10": 21,
    "f11": 23,
    "f12": 24,
}
_CODES = {"enter": 13, "tab": 9, "escape": 27, "backspace": 127, "space": 32}
_ALIASES = {
    "return": "enter",
    "esc": "escape",
    "ins": "insert",
    "del": "delete",
    "pgup": "pageup",
    "page-up": "pageup",
    "pgdn": "pagedown",
    "page-down": "pagedown",
    "bs": "backspace",
}
# Control characters of keys other than letters, as terminals send them.
_CONTROL = {
    "@": 0,
    " ": 0,
    "2": 0,
    "[": 27,
    "3": 27,
    "\\": 28,
    "4": 28,
    "]": 29,
    "5": 29,
    "^": 30,
    "6": 30,
    "_": 31,
    "7": 31,
    "/": 31,
    "?": 127,
    "8": 127,
}
_DISAMBIGUATE, _ALL_AS_ESCAPES = 1, 8


@dataclass(frozen=True, slots=True)
class KeyModes:
    """The modes of a terminal that change what its keys send."""

    is_cursor_application: bool = False
    # DECBKM: backspace sends BS instead of DEL.
    is_backarrow: bool = False
    kitty_flags: int = 0


@dataclass(frozen=True, slots=True)
class Key:
    """One key with its modifiers."""

    name: str
    modifiers: int = 0


def parse_key(text: str) -> Key | None:
    """The key that *text* names, such as `ctrl-c`, `shift-tab`, `up` or `f5`; None if it is text.

    A single character without a modifier is text.
    """
    *words, name = _split(text)
    modifiers = 0
    for word in words:
        if word.lower() not in _MODIFIERS:
            return None
        modifiers |= _MODIFIERS[word.lower()]
    lowered = _ALIASES.get(name.lower(), name.lower())
    if lowered in _LETTERS or lowered in _NUMBERS or lowered in _CODES:
        return Key(lowered, modifiers)
    if modifiers and len(name) == 1:
        return Key(name, modifiers)
    return None


def _split(text: str) -> list[str]:
    """The modifiers and the name; `ctrl--` and `ctrl-+` name the last character."""
    if text.lower() in _ALIASES:
        return [text]
    separator = "+" if "+" in text[:-1] and "-" not in text[:-1] else "-"
    head, tail = text[:-1], text[-1:]
    *words, rest = head.split(separator)
    return [*words, rest + tail]


def encode_keys(keys: Iterable[str], modes: KeyModes) -> bytes:
    """The bytes for *keys* in order; what is not the name of a key is typed as it is.

    Raises ValueError for `ctrl-` and modifiers before a key that does not exist: no text begins
    like this, and a program would see words instead of the key.
    """
    return b"".join(_encode(text, modes) for text in keys)


def _encode(text: str, modes: KeyModes) -> bytes:
    key = parse_key(text)
    if key is not None:
        return _encode_key(key, modes)
    *words, name = [word.lower() for word in _split(text)]
    # The other modifiers begin English words, such as "control-plane" and "meta-data".
    if name and "ctrl" in words and _MODIFIERS.keys() >= set(words):
        raise ValueError(f"{text!r} is not the name of a key; `write` types it as it is")
    return text.encode()


def _encode_key(key: Key, modes: KeyModes) -> bytes:
    if key.name in _LETTERS:
        letter = _LETTERS[key.name]
        if key.modifiers:
            return b"\x1b[1;%d%s" % (key.modifiers + 1, letter)
        is_application = key.name.startswith("f") or modes.is_cursor_application
        return (b"\x1bO" if is_application else b"\x1b[") + letter
    if key.name in _NUMBERS:
        number = _NUMBERS[key.name]
        if key.modifiers:
            return b"\x1b[%d;%d~" % (number, key.modifiers + 1)
        return b"\x1b[%d~" % number
    if modes.kitty_flags & (_DISAMBIGUATE | _ALL_AS_ESCAPES):
        return _encode_kitty(key, modes)
    return _encode_legacy(key, modes)


def _encode_kitty(key: Key, modes: KeyModes) -> bytes:
    """As the kitty keyboard protocol sends keys that are ambiguous otherwise."""
    code = _CODES.get(key.name) or ord(key.name.lower())
    is_plain = key.name in ("enter", "tab", "backspace", "space") and not key.modifiers
    if is_plain and not modes.kitty_flags & _ALL_AS_ESCAPES:
        return _encode_legacy(key, modes)
    if len(key.name) == 1 and key.modifiers == _MODIFIERS["shift"]:
        return key.name.upper().encode()
    if key.modifiers:
        return b"\x1b[%d;%du" % (code, key.modifiers + 1)
    return b"\x1b[%du" % code


def _encode_legacy(key: Key, modes: KeyModes) -> bytes:
    prefix = b"\x1b" if key.modifiers & _MODIFIERS["alt"] else b""
    is_shift = bool(key.modifiers & _MODIFIERS["shift"])
    is_control = bool(key.modifiers & _MODIFIERS["ctrl"])
    if key.name == "tab" and is_shift:
        return prefix + b"\x1b[Z"
    if key.name == "backspace":
        return prefix + (b"\x08" if is_control != modes.is_backarrow else b"\x7f")
    if key.name in _CODES and key.name != "space":
        return prefix + bytes([_CODES[key.name]])
    character = " " if key.name == "space" else key.name
    if is_control:
        return prefix + _control(character)
    return prefix + (character.upper() if is_shift else character).encode()


def _control(character: str) -> bytes:
    if "a" <= character.lower() <= "z":
        return bytes([ord(character.lower()) - 96])
    if character in _CONTROL:
        return bytes([_CONTROL[character]])
    return character.encode()

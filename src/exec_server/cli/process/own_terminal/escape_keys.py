"""Escape keys: a `~` at the start of a line and the key after it are commands, as in ssh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

Key = Literal["leave", "detach", "help", "take", "give back", "who"]

HELP = """\
Escape keys, at the start of a line:
  ~.  leave{leave}
  ~d  detach: leave, and let the process run on
  ~t  take the keyboard      ~g  give it back      ~w  show who looks on
  ~?  show this text
  ~~  type a single ~
"""

_KEYS: dict[bytes, Key] = {
    b".": "leave",
    b"d": "detach",
    b"?": "help",
    b"t": "take",
    b"g": "give back",
    b"w": "who",
}
# What is typed if a key has no meaning, because the server cannot share processes.
CONTROL_KEYS: dict[Key, bytes] = {"take": b"~t", "give back": b"~g", "who": b"~w"}
_ESCAPE = b"~"
_LINE_ENDS = b"\r\n"


class EscapeKeys:
    """Finds escape keys in the input, however it is split into pieces."""

    def __init__(self) -> None:
        self._is_line_start = True
        self._is_escaped = False

    def begin_line(self) -> None:
        """What was typed before went nowhere: the next key is the first one of a line."""
        self._is_line_start = True

    def feed(self, data: bytes) -> Iterator[bytes | Key]:
        """The bytes to pass on and the escape keys, in their order."""
        plain = bytearray()
        for byte in (data[i : i + 1] for i in range(len(data))):
            if self._is_escaped:
                self._is_escaped = False
                if (key := _KEYS.get(byte)) is not None:
                    if plain:
                        yield bytes(plain)
                        plain.clear()
                    yield key
                    self._is_line_start = True
                    continue
                # `~~` types one ~; any other key is passed on after its ~.
                plain += _ESCAPE if byte == _ESCAPE else _ESCAPE + byte
                self._is_line_start = byte in _LINE_ENDS
            elif self._is_line_start and byte == _ESCAPE:
                self._is_escaped = True
            else:
                plain += byte
                self._is_line_start = byte in _LINE_ENDS
        if plain:
            yield bytes(plain)

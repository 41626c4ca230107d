"""The keys of the player."""

from __future__ import annotations

import os
import re
import select

_SEQUENCE = re.compile(r"\x1b(?:[\[O][0-9;]*[A-Za-z~])|.", re.DOTALL)
_NAMES = {
    "\x1b[C": "forward",
    "\x1bOC": "forward",
    "\x1b[D": "back",
    "\x1bOD": "back",
    " ": "pause",
    ".": "step",
    "\r": "step",
    "+": "faster",
    "=": "faster",
    "-": "slower",
    "/": "search",
    "n": "next",
    "N": "previous",
    "]": "next mark",
    "[": "previous mark",
    "g": "start",
    "G": "end",
    "?": "help",
    "q": "quit",
    "\x03": "interrupt",
    "\x1c": "interrupt",
}
HELP = "q quit space pause . step ←→ 5s 0-9 tenths gG ends [] marks +- speed /nN find"


class PlayerKeys:
    """Reads keys from a descriptor of a raw terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: list[str] = []
        self.is_ended = False

    def wait(self, seconds: float | None) -> str | None:
        """The next key: a name, a digit or a character; None if none comes in time."""
        if not self._waiting:
            if self.is_ended:
                # Without keys only the time passes.
                select.select([], [], [], seconds if seconds is not None else 0)
                return None
            ready, _, _ = select.select([self._fd], [], [], seconds)
            if not ready:
                return None
            data = os.read(self._fd, 1024)
            self.is_ended = not data
            self._waiting = _SEQUENCE.findall(data.decode("utf-8", "replace"))
        return self._waiting.pop(0) if self._waiting else None

    @staticmethod
    def name(key: str) -> str:
        return _NAMES.get(key, key)

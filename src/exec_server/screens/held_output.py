"""Output that a model need not be fed with at once: text and colours, which move the rest up.

A flood of lines leaves nothing of what was on the screen and above it, and nothing of its own
beginning. So the model is fed with the end of it alone, when something is asked or it pauses.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

# Output begins to be held with this much at once; less is what a person sees.
LEAST_BYTES = 16 * 1024
# It is asked what may be dropped beyond this much, and never holds more than four times as much.
_MUCH_BYTES = 256 * 1024
# ENQ is answered, BEL is heard, SO and SI change the character set.
_CONTROLS = (b"\x05", b"\x07", b"\x0e", b"\x0f")
_COLOR = re.compile(rb"\x1b\[[0-9;:]*m")
_COLOR_PARAMETERS = b"0123456789;:"
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9;:]*)?\Z")
_RESETS = (b"\x1b[m", b"\x1b[0m")
# Colours that are set one after the other, and never reset, are not looked for beyond so many.
_MOST_COLORS = 256


def only_scrolls(data: bytes) -> bool:
    """True for ASCII text with whole sequences for colours, and nothing else that is remembered."""
    if not data.isascii() or any(control in data for control in _CONTROLS):
        return False
    sequences = data.count(b"\x1b")
    if not sequences:
        return True
    if data.count(b"\x1b[") != sequences:
        return False
    # Each begins with ESC [, so what stands between that and the m are parameters.
    return data.translate(None, _COLOR_PARAMETERS).count(b"\x1b[m") == sequences


class HeldOutput:
    """The end of a flood, as much as leaves nothing of what was before it."""

    def __init__(self, lines_to_keep: Callable[[], int | None]) -> None:
        # Asked when there is much output; the answer holds until it is taken.
        self._lines_to_keep = lines_to_keep
        self._kept_lines: int | None = None
        # What stands for the output that was dropped.
        self._head = b""
        self._parts: deque[bytes] = deque()
        self._newlines: deque[int] = deque()
        self._size = self._lines = 0
        # The beginning of a sequence, at the end of what was offered.
        self.unfinished = b""

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def is_too_much(self) -> bool:
        return self._size > (_MUCH_BYTES if self._kept_lines is None else 4 * _MUCH_BYTES)

    def add(self, data: bytes) -> bool:
        """Hold *data*, which continues what is unfinished; False if it does more than scroll."""
        whole = self.unfinished + data if self.unfinished else data
        start = whole.rfind(b"\x1b")
        cut = None if start < 0 else _UNFINISHED.match(whole, start)
        text = whole[:start] if cut else whole
        if not only_scrolls(text):
            return False
        self.unfinished = cut[0] if cut else b""
        self._parts.append(text)
        self._newlines.append(text.count(b"\n"))
        self._size += len(text)
        self._lines += self._newlines[-1]
        if self._size > _MUCH_BYTES and self._kept_lines is None:
            self._kept_lines = self._lines_to_keep()
        if self._kept_lines is not None:
            self._drop_beginning(self._kept_lines)
        return True

    def take(self) -> bytes:
        """What the model is to be fed with; nothing is held any more."""
        data = b"".join((self._head, *self._parts))
        self._head = b""
        self._parts.clear()
        self._newlines.clear()
        self._size = self._lines = 0
        self._kept_lines = None
        return data

    def _drop_beginning(self, kept: int) -> None:
        while self._lines - self._newlines[0] >= kept:
            dropped = self._parts[0]
            # A line of its own begins here; the rest of it goes on in what is kept.
            end = dropped.rfind(b"\r\n")
            colors = None if end < 0 else _colors_after(self._head + dropped[:end])
            if colors is None:
                return
            self._head = colors + dropped[end:]
            self._size -= len(self._parts.popleft())
            self._lines -= self._newlines.popleft()


def _colors_after(data: bytes) -> bytes | None:
    """The sequences that give text its colours after *data*; None if there are too many."""
    if b"\x1b" not in data:
        return b""
    begin = max(0, *(data.rfind(reset) for reset in _RESETS))
    if data.count(b"\x1b", begin) > _MOST_COLORS:
        return None
    return b"".join(_COLOR.findall(data, begin))

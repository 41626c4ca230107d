"""The modes that a program has switched on in a terminal, so that they can be switched off again.

A full-screen program switches to the alternate screen, hides the cursor and asks for events of the
mouse. When this program leaves it running, or it dies, the terminal here must not keep those modes.
"""

from __future__ import annotations

import re

# The private modes that are tracked: those that disturb a shell. xterm's documentation lists them.
_SCREENS = (47, 1047, 1049)
_MOUSE = (9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016)
# Cursor keys, reverse video, origin, line wrap, cursor, keypad, margins, bracketed paste,
# synchronized output, and notices of colours and sizes.
_OTHERS = (1, 5, 6, 7, 25, 66, 69, 2004, 2026, 2031, 2048)
_ON_BY_DEFAULT = frozenset((7, 25))
_TRACKED = frozenset((*_SCREENS, *_MOUSE, *_OTHERS))
# A soft reset changes these private modes back, too.
_SOFT_RESET = frozenset((1, 6, 7, 25, 66, 69))

_SEQUENCE = rb"\x1b(?:\[([0-?]*)([ -/]*)([@-~])|([=>c])|[()]([0-9A-Za-z])|(\][012];))|(\x0e)"
# A sequence that has begun at the end of the data. A longer one is not one of those we look for.
_BEGINNING = rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,2}|[()]|\][012]?)?\Z"
# A terminal keeps its titles on a stack.
PUSH_TITLE, _POP_TITLE = b"\x1b[22;0t", b"\x1b[23;0t"
_MOST_TITLES = 10
# Kitty's keyboard modes are a stack; a program that pushes more than this is not followed.
_MOST_PUSHED = 16


class TerminalModes:
    """Follows the output of a program, however it is split, and knows the modes that are on."""

    def __init__(self) -> None:
        self._rest = b""
        # How many titles the program has pushed; and whether it has changed the title.
        self._titles = 0
        self.has_title = False
        self._reset()

    def _reset(self) -> None:
        # The private modes that differ from their defaults, in the order of the changes.
        self._changed: dict[int, None] = {}
        self._has_keypad = False
        self._has_insert = False
        self._has_colours = False
        self._has_region = False
        self._has_graphics = False
        self._cursor = b""
        self._other_keys = b""
        self._pushed: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Follow *data*, which the program has written."""
        data, end = self._rest + data, 0
        for match in re.finditer(_SEQUENCE, data):
            end = match.end()
            if match[3] is not None:
                self._control(match[1], match[2] + match[3])
            elif match[4] == b"c":
                self._reset()
            elif match[4] is not None:
                self._has_keypad = match[4] == b"="
            elif match[6] is not None:
                self.has_title = True
            else:
                self._has_graphics = match[5] not in (None, b"B")
        beginning = re.compile(_BEGINNING).search(data, end)
        self._rest = beginning[0] if beginning else b""

    def enter(self, *, has_keyboard: bool = False) -> bytes:
        """The sequences that switch the same modes on in another terminal.

        Colours and regions are left out: the program sets them when it draws. A terminal that
        *has_keyboard* modes on its stack gets them only once.
        """
        screens = [mode for mode in self._changed if mode in _SCREENS]
        others = [mode for mode in self._changed if mode not in _SCREENS]
        written = b"".join(_private(mode, mode not in _ON_BY_DEFAULT) for mode in screens + others)
        written += b"\x1b=" if self._has_keypad else b""
        written += self._other_keys + self._cursor
        pushed = [] if has_keyboard else self._pushed
        return written + b"".join(b"\x1b[>%bu" % flags for flags in pushed)

    @property
    def is_alternate(self) -> bool:
        """True if the alternate screen is shown."""
        return any(mode in _SCREENS for mode in self._changed)

    def leave(self) -> bytes:
        """The sequences that switch all modes off; nothing if none is on."""
        screens = [mode for mode in self._changed if mode in _SCREENS]
        others = [mode for mode in self._changed if mode not in _SCREENS]
        written = b"\x1b[<%du" % len(self._pushed) if self._pushed else b""
        written += b"\x1b[>4m" if self._other_keys else b""
        written += b"".join(_private(mode, mode in _ON_BY_DEFAULT) for mode in others)
        written += b"\x1b>" if self._has_keypad else b""
        written += b"\x1b[4l" if self._has_insert else b""
        written += b"\x1b(B\x0f" if self._has_graphics else b""
        written += b"\x1b[m" if self._has_colours else b""
        written += b"\x1b[0 q" if self._cursor else b""
        # A new region moves the cursor; the end of the alternate screen restores its place.
        if self._has_region:
            written += b"\x1b[r" if screens else b"\x1b7\x1b[r\x1b8"
        return written + b"".join(_private(mode, False) for mode in screens)

    def leave_title(self) -> bytes:
        """The sequences that bring back the title that was pushed before the program's first."""
        return _POP_TITLE * (self._titles + 1 if self.has_title else 0)

    def _control(self, params: bytes, final: bytes) -> None:
        if params[:1] == b"?" and final in (b"h", b"l"):
            self._private_modes(params[1:], is_on=final == b"h")
        elif final in (b"h", b"l") and b"4" in params.split(b";"):
            self._has_insert = final == b"h"
        elif final == b"m" and params[:3] == b">4;":
            self._other_keys = b"\x1b[%bm" % params if params != b">4;0" else b""
        elif final == b"m" and params in (b">4", b">"):
            self._other_keys = b""
        elif final == b"m" and params[:1].isdigit():
            self._has_colours = params.strip(b"0;") != b""
        elif final == b"m" and not params:
            self._has_colours = False
        elif final == b"r" and not params.startswith(b"?"):
            self._has_region = params != b""
        elif final == b" q":
            self._cursor = b"\x1b[%b q" % params if params not in (b"", b"0") else b""
        elif final == b"u":
            self._keyboard(params)
        elif final == b"t":
            self._title_stack(params.split(b";")[0])
        elif final == b"!p":
            self._soft_reset()

    def _private_modes(self, params: bytes, *, is_on: bool) -> None:
        for text in params.split(b";"):
            mode = int(text) if text.isdigit() and len(text) < 6 else -1
            if mode not in _TRACKED:
                continue
            self._changed.pop(mode, None)
            if is_on != (mode in _ON_BY_DEFAULT):
                self._changed[mode] = None
            if mode in _SCREENS and not is_on:
                # Each of them leaves the alternate screen.
                self._changed = {each: None for each in self._changed if each not in _SCREENS}

    def _keyboard(self, params: bytes) -> None:
        kind, number = params[:1], params[1:]
        if kind == b">" and number.isdigit() and len(self._pushed) < _MOST_PUSHED:
            self._pushed.append(number)
        elif kind == b"<":
            count = int(number) if number.isdigit() and len(number) < 3 else 1
            del self._pushed[max(0, len(self._pushed) - count) :]

    def _title_stack(self, action: bytes) -> None:
        if action == b"22":
            self.has_title = True
            self._titles = min(self._titles + 1, _MOST_TITLES)
        elif action == b"23":
            self._titles = max(0, self._titles - 1)

    def _soft_reset(self) -> None:
        self._changed = {each: None for each in self._changed if each not in _SOFT_RESET}
        self._has_keypad = self._has_insert = self._has_colours = self._has_region = False
        self._has_graphics = False


def _private(mode: int, is_on: bool) -> bytes:
    return b"\x1b[?%d%b" % (mode, b"h" if is_on else b"l")

"""Output of a recording as this terminal may get it: it changes the screen, and nothing else.

A recording may come from anywhere. Its output could set the clipboard, let a key type a command,
print, resize the window, or have the terminal read a file. Those sequences are left out.
"""

from __future__ import annotations

import re

from exec_server.cli.process.own_terminal.sequence_form import controls_first, without_broken

# Titles, links, colours and the marks of shells. All others are dropped: the clipboard (52), files
# and notices (9, 99, 777, 1337), fonts (50).
_KEPT_COMMANDS = frozenset(
    b"%d" % number for number in (0, 1, 2, 4, 5, 8, *range(10, 20), 104, 105, *range(110, 120), 133)
)
# A picture in sixels. Others define keys, pass sequences on to the terminal around tmux, or ask.
_PICTURE = re.compile(rb"[0-9;]*q")
# Of the operations on a window these keep and restore its title.
_TITLES = (b"22", b"23")

# CAN and SUB break a string off.
_BODY = rb"[^\x07\x18\x1a\x1b]*"
_SEQUENCE = re.compile(
    rb"\x1b(?:\[(?P<params>[0-?]*)[ -/]*(?P<final>[@-~])"
    rb"|(?P<kind>[]P_^X])(?P<body>" + _BODY + rb")(?P<end>\x07|\x1b\\|(?=[\x18\x1a])))"
)
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[]P_^X]" + _BODY + rb"\x1b?)?\Z")
# The same controls in one character, which few programs use.
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
# A longer string is dropped up to its end, whatever it is.
_LONGEST = 64 * 1024
_DROPPED = b"\x1bX"


class HarmlessOutput:
    """Leaves sequences out that reach beyond the screen, however the output is split."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown of the output so far."""
        data = without_broken(controls_first(self._rest + _C1.sub(b"", data)))
        data = _SEQUENCE.sub(_judged, data)
        begun = _UNFINISHED.search(data)
        self._rest = begun[0] if begun else b""
        shown = data[: len(data) - len(self._rest)]
        if len(self._rest) > _LONGEST:
            self._rest = _DROPPED + (b"\x1b" if self._rest.endswith(b"\x1b") else b"")
        return shown


def _judged(found: re.Match[bytes]) -> bytes:
    if found["final"] == b"t":
        is_kept = found["params"].split(b";")[0] in _TITLES
    elif found["final"] is not None:
        # Media copy prints the screen, or what follows.
        is_kept = found["final"] != b"i"
    elif not found["end"]:
        is_kept = False
    elif found["kind"] == b"]":
        is_kept = found["body"].partition(b";")[0] in _KEPT_COMMANDS
    else:
        is_kept = found["kind"] == b"P" and _PICTURE.match(found["body"]) is not None
    return found[0] if is_kept else b""

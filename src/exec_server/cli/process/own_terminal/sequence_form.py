"""The form in which sequences of control characters are looked for.

A terminal obeys a line end inside of a sequence, and goes on with the sequence; another sequence
breaks the first one off. So output could hide a sequence from a search, or have parts of two that
become a third one when what is between them is removed.
"""

from __future__ import annotations

import re

# The expressions are compiled when a terminal needs them: together they take half a millisecond.
# ESC, CAN and SUB end a sequence; all other controls are obeyed at once.
_CONTROLS = rb"\x00-\x17\x19\x1c-\x1f\x7f"
_CONTROL = rb"[" + _CONTROLS + rb"]+"
# A sequence up to its last character, if a control is inside.
_INTERRUPTED = (
    rb"\x1b(?=(?:\[?[ -?]*)[" + _CONTROLS + rb"])"
    rb"[" + _CONTROLS + rb"]*(?:\[[ -?" + _CONTROLS + rb"]*|[ -/" + _CONTROLS + rb"]*)"
)
_BROKEN = rb"\x1b(?:(?:\[[ -?]*|[ -/]*)(?=\x1b)|[]P_^X][^\x07\x18\x1a\x1b]*(?=\x1b[^\\]))"
# Some sequences, of which another one breaks each off.
BROKEN_OFF = rb"(?:" + _BROKEN + rb")++"


def controls_first(data: bytes) -> bytes:
    """*data* with the controls that are inside of sequences before them."""
    return re.sub(_INTERRUPTED, _reordered, data) if b"\x1b" in data else data


def without_broken(data: bytes) -> bytes:
    """*data* without sequences that another one breaks off."""
    return re.sub(BROKEN_OFF, b"", data) if b"\x1b" in data else data


def broken_before(data: bytes, place: int) -> int:
    """Where the sequences begin that the one at *place* breaks off; *place* if there are none."""
    one_broken = re.compile(_BROKEN)
    while (start := data.rfind(b"\x1b", 0, place)) >= 0:
        found = one_broken.match(data, start)
        if found is None or found.end() < place:
            break
        place = start
    return place


def _reordered(found: re.Match[bytes]) -> bytes:
    return b"".join(re.findall(_CONTROL, found[0])) + re.sub(_CONTROL, b"", found[0])

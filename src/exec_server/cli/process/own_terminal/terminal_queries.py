"""Queries to a terminal, which old output must not repeat.

A program asks its terminal for the place of the cursor, for colours and the like, and the terminal
answers as if the answer were typed. When old output is shown again, the program has its answer.
A second one would be typed into the program that runs now, or into the shell of this machine.
"""

from __future__ import annotations

import re

from exec_server.cli.process.own_terminal.sequence_form import (
    BROKEN_OFF,
    broken_before,
    controls_first,
)

# The queries of xterm's documentation, and those of kitty for its keyboard and its graphics.
_QUERY = (
    rb"\x05|\x1b(?:Z|\[(?:"
    rb"[>=]?[0-9;]*c"  # device attributes
    rb"|\??[0-9;]*n"  # status, and the place of the cursor
    rb"|[0-9;]*x"  # parameters of the terminal
    rb"|\??[0-9;]*\$p"  # modes
    rb"|[0-9;]*\$w"  # presentation state
    rb"|>[0-9]*q"  # the name and version of the terminal
    rb"|\?u|\?[0-9;]*m"  # modes of the keyboard
    rb"|\?[0-9;]*S"  # graphics
    rb"|1[1345689][0-9;]*t|2[01]t)"  # the window
    rb"|\][0-9]+;(?:[^\x07\x1b]*;)?\?(?:\x07|\x1b\\)"  # colours, the clipboard
    rb"|P[$+]q[^\x1b]*\x1b\\"  # settings and capabilities
    rb"|_G[^\x1b;]*a=q[^\x1b]*\x1b\\)"  # graphics of kitty
)
# What a query breaks off goes with it: the rest of the output could complete it. Without a query it
# is shown.
_BROKEN_AND_QUERY = rb"(?P<broken>" + BROKEN_OFF + rb")(?P<query>" + _QUERY + rb")?|" + _QUERY
# A sequence that may have begun at the end of the data. A longer one is shown as it is.
_LONGEST = 4096
_BEGINNING = rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,2}|[]P_][^\x07\x1b]{0,%d}\x1b?)?\Z" % _LONGEST


class TerminalQueries:
    """Leaves queries out of output, however it is split."""

    def __init__(self) -> None:
        self._rest = b""

    def remove(self, data: bytes) -> bytes:
        """What can be shown of the output so far."""
        data = re.sub(_BROKEN_AND_QUERY, _without_query, controls_first(self._rest + data))
        beginning = re.search(_BEGINNING, data)
        start = broken_before(data, beginning.start()) if beginning else len(data)
        self._rest = data[start:]
        if beginning and len(self._rest) > 2 * _LONGEST:
            # What is broken off shows nothing.
            self._rest = beginning[0]
        return data[:start]

    def rest(self) -> bytes:
        """A sequence that has begun and did not end."""
        rest, self._rest = self._rest, b""
        return rest


def _without_query(found: re.Match[bytes]) -> bytes:
    return b"" if found["query"] is not None else found["broken"] or b""

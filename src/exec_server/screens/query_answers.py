"""Answers that terminals of clients give to queries which the model has answered already.

While a process has a model, its queries are answered by that. A client that shows the output on a
real terminal sends the answers of this one as if they were typed; they are left out of the input.
"""

from __future__ import annotations

import re

# No key sends one of these.
_CERTAIN = (
    rb"\x1b\[[?>=][0-9;]*c"  # device attributes
    rb"|\x1b\[\??0n|\x1b\[\?(?:1[013]|2[0-9]|5[03]|997)[0-9;]*n"  # status
    rb"|\x1b\[\?\d+;\d+(?:;\d+)?R"  # the extended place of the cursor
    rb"|\x1b\[\??[0-9;]+\$y"  # modes
    rb"|\x1b\[\?\d+u"  # flags of the keyboard
    rb"|\x1b\[(?:[34689]|48);\d+;\d+(?:;\d+)*t"  # sizes
    rb"|\x1b\](?:4;\d+|1\d);rgba?:[0-9a-fA-F/]+(?:\x07|\x1b\\)"  # colours
    rb"|\x1bP(?:[01][$+]r|>\||!\|)[^\x1b]*\x1b\\"  # settings, version, unit
    rb"|\x1b_G[^\x1b]*\x1b\\"  # graphics
)
# The place of the cursor. F3 with a modifier looks the same in row 1 up to column 16.
_PLACE = rb"\x1b\[(?!1;(?:[2-9]|1[0-6])R)\d+;\d+R"
_ANSWER = re.compile(_CERTAIN + rb"|" + _PLACE)


def without_answers(data: bytes) -> bytes:
    """Input without what a terminal answers to queries."""
    return _ANSWER.sub(b"", data) if b"\x1b" in data else data

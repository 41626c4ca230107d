"""Which answers of an engine may reach a program's input."""

from __future__ import annotations

import re

# Reports of CSI, colours of OSC, and DCS reports of settings and versions. A program must not be
# able to choose what is typed into it, so titles, pasted text and printed screens are not here.
_ANSWER = re.compile(
    rb"\x1b\[[?>=]?[0-9;:]*[$ ]?[a-zA-Z]"
    rb"|\x1b\](?:4;\d+|1\d);rgba?:[0-9a-fA-F/]+(?:\x07|\x1b\\)"
    rb"|\x1bP[01][$+]r[0-9a-zA-Z;:\"'$ =]*\x1b\\"
    rb"|\x1bP>\|[ -~]{0,64}\x1b\\"
    rb"|\x1bP!\|[0-9a-fA-F]{8}\x1b\\"
    rb"|\x1b_G[ -~]{0,128}\x1b\\"
)


def safe_answers(data: bytes) -> bytes:
    """The answers in *data* without those whose text a program could have chosen."""
    return b"".join(found.group() for found in _ANSWER.finditer(data))

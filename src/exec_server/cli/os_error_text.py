"""`(os error N)` at the end of a server's message.

The protocol has no code of its own for errors of the operating system: a failed start, for
example, is always -32603. The number is part of the text, in the form that the reference writes,
so the text is the only place to find it.
"""

from __future__ import annotations

import re

_OS_ERROR = r" ?\(os error (\d{1,9})\)\Z"


def os_error_number(text: str) -> int | None:
    """The number of the operating system's error that ends *text*, if one does."""
    found = re.search(_OS_ERROR, text)
    return int(found[1]) if found else None


def without_os_error(text: str) -> str:
    """*text* for people, without the number."""
    return re.sub(_OS_ERROR, "", text)

"""This interpreter, for processes of our own: isolated, and with the path of this one.

The interpreter runs without the `site` module, so nothing of the user is loaded, and it starts
sooner. It is given its path.
"""

from __future__ import annotations

import os
import sys
from functools import cache

_START = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"
_PR_SET_DUMPABLE = 4


@cache
def command_of(module: str) -> tuple[bytes, ...]:
    """The command line that runs `main()` of *module*."""
    start = _START.format(path=import_path(), module=module)
    words = (os.path.realpath(sys.executable), "-I", "-S", "-c", start)
    return tuple(map(os.fsencode, words))


def import_path() -> list[str]:
    """Where modules are found: this package first."""
    package = os.path.dirname(os.path.dirname(__file__))
    found = (os.path.abspath(entry) for entry in (package, *sys.path) if entry)
    return [entry for entry in dict.fromkeys(found) if os.path.exists(entry)]


def hide() -> None:
    """Keep other processes of this user from tracing this one, and from its descriptors."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

"""This interpreter, for processes of our own: isolated, and with the path of this one.

The interpreter runs without the `site` module, so nothing of the user is loaded, and it starts
sooner. It is given its path.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache

_START = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"
_PR_SET_DUMPABLE = 4
# A third of the share that others have: see `nice`(1).
_NICER = 5


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


def give_way() -> None:
    """Let this process take less of a busy processor than those that others wait for.

    It still gets its share, so that work cannot pile up without end.
    """
    with contextlib.suppress(OSError):
        os.nice(_NICER)
        # A task that computes in the background does not interrupt others when it wakes.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    # Where the kernel shares the processors among sessions first, this is what counts.
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as file:
        file.write(str(_NICER))

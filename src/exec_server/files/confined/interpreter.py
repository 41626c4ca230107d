"""How a helper is run: by this interpreter, with as little of this process as it needs."""

from __future__ import annotations

import os
import sys
from functools import cache

from exec_server.sandbox.model import Plan, Policy
from exec_server.sandbox.plan import plan
from exec_server.sandbox.policy import MINIMAL_READS

# The environment that a helper gets of the server's.
PASSED_ON = ("PATH", "TMPDIR", "TMP", "TEMP")
# Isolated, and without the start-up of a virtual environment: its path is given.
_START = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"
_MODULE = "exec_server.files.confined.helper_main"


@cache
def arguments() -> tuple[str, ...]:
    """The command line of a helper, whose stdin is its socket."""
    start = _START.format(path=_path(), module=_MODULE)
    return (os.path.realpath(sys.executable), "-I", "-S", "-c", start)


def helper_plan(policy: Policy) -> Plan:
    """*policy* as it can be enforced now on a process that is this interpreter.

    Raises Unenforceable.
    """
    return plan(policy, extra_reads=_needed_reads())


@cache
def _needed_reads() -> tuple[bytes, ...]:
    folders = (sys.base_prefix, sys.base_exec_prefix, *_path())
    return tuple(dict.fromkeys((*MINIMAL_READS, *map(os.fsencode, folders))))


def _path() -> list[str]:
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    found = (os.path.abspath(entry) for entry in (package, *sys.path) if entry)
    return [entry for entry in dict.fromkeys(found) if os.path.exists(entry)]

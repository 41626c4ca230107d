"""Confine programs as the keeper does, without a keeper."""

from __future__ import annotations

import errno
import os
import signal
import sys

from exec_server.sandbox import in_keeper, landlock, seccomp
from exec_server.sandbox.model import Plan

_PREFIX = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
try:
    exec(sys.argv[1], globals())
except OSError as exc:
    sys.exit(exc.errno)
"""


def attempt(
    code: str, kind: seccomp.Kind, plan: Plan | None = None, program: str = sys.executable
) -> str:
    """Run Python *code*; return "done", the name of its error, or of the signal that ended it."""
    argv = [program, "-I", "-S", "-c", _PREFIX, code]
    ruleset = None if plan is None else landlock.ruleset(plan)
    try:
        pid = in_keeper.start(
            lambda: os.posix_spawn(argv[0], argv, {"PATH": "/usr/bin:/bin"}, setsid=True),
            drops_capabilities=plan is not None,
            ruleset=ruleset,
            filter_=seccomp.program(kind),
        )
    finally:
        if ruleset is not None:
            os.close(ruleset)
    code_ = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code_ < 0:
        return signal.Signals(-code_).name
    return errno.errorcode[code_] if code_ else "done"

"""Guess if a process ended because the sandbox refused something; clients retry on this guess."""

from __future__ import annotations

# Clients know exactly these texts.
_SIGNS = (
    b"operation not permitted",
    b"permission denied",
    b"read-only file system",
    b"seccomp",
    b"sandbox",
    b"landlock",
    b"failed to write file",
)
# The exit codes of shells for wrong usage, a program that cannot run, and a missing program.
_ORDINARY_CODES = frozenset({2, 126, 127})
_KILLED_BY_SIGSYS = 128 + 31


def is_denied(exit_code: int, stdout: bytes, stderr: bytes, combined: bytes) -> bool:
    """True if a sandboxed process that ended with *exit_code* was probably refused something.

    *combined* is all output in the order of its arrival; a text that is split between the two
    streams may be whole there. The texts are looked for in all three, in upper and lower case.
    """
    if exit_code == 0:
        return False
    if any(_has_sign(output) for output in (stderr, stdout, combined)):
        return True
    return exit_code == _KILLED_BY_SIGSYS and exit_code not in _ORDINARY_CODES


def _has_sign(output: bytes) -> bool:
    # One regular expression for all of them takes ten times as long.
    lowered = output.lower()
    return any(sign in lowered for sign in _SIGNS)

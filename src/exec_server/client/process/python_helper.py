"""Helpers in Python that the server's machine runs, for what a server cannot do by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from exec_server.client.process.remote_process import RemoteProcess

# The environment of a command may have a PATH that leads to no Python, or none at all.
INTERPRETERS = ("python3", "/usr/bin/python3", "/usr/local/bin/python3")
# Isolated: else a `select.py` in the directory of the command would run in place of Python's own.
_OPTIONS = ("-I", "-S", "-c")


def helper_words(
    program: str, argv: Sequence[str], interpreter: str = INTERPRETERS[0]
) -> list[str]:
    """The words that run *program* with the arguments *argv*."""
    return [interpreter, *_OPTIONS, program, *argv]


async def start_helper(
    start: Callable[..., Awaitable[RemoteProcess]],
    program: str,
    argv: Sequence[str],
    **words: Any,
) -> RemoteProcess:
    """Start *program* with input; *words* are those of `Processes.start`.

    Raises FileNotFoundError or PermissionError if the machine has no Python that can be run.
    """
    for interpreter in INTERPRETERS[:-1]:
        try:
            return await start(helper_words(program, argv, interpreter), stdin=True, **words)
        except (FileNotFoundError, PermissionError):
            continue
    return await start(helper_words(program, argv, INTERPRETERS[-1]), stdin=True, **words)

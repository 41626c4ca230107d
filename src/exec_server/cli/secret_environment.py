"""Keeps the secrets of a server from the commands that it runs, which have the same user.

The kernel shows the variables with which a program was started in `/proc/PID/environ` for as long
as it runs, whatever the program does to its environment later. So a server that got a secret in a
variable starts itself again without it, and gets the secret through a pipe.
"""

from __future__ import annotations

import contextlib
import os
import sys

from exec_server.cli.options import TOKEN_VARIABLE
from exec_server.protocol.registry import REGISTRY_TOKEN_VARIABLE

# The descriptor of the pipe, in decimal digits.
_PIPE_VARIABLE = "EXEC_SERVER_SECRETS_FD"
_OWN_VARIABLES = (TOKEN_VARIABLE, REGISTRY_TOKEN_VARIABLE)
# Codex's own variables. Without a registry a server has no use for them, and its commands may.
_REGISTRY_VARIABLES = ("CODEX_ACCESS_TOKEN", "CODEX_API_KEY")
# A pipe takes this much without a reader.
_PIPE_BYTES = 64 * 1024
_PR_SET_DUMPABLE = 4

# The secrets of this process, which are in no environment any more.
_secrets: dict[str, str] = {}


def hide(words: list[str]) -> None:
    """Take the secrets of the server that *words* start out of the environment.

    If there are any, this program is started again, with the same process id.
    """
    _receive()
    uses_registry = any(word == "forward" or word.startswith("--remote") for word in words)
    names = (*_OWN_VARIABLES, *(_REGISTRY_VARIABLES if uses_registry else ()))
    found = {name: os.environ.pop(name) for name in names if name in os.environ}
    if not found:
        return
    import json

    _secrets.update(found)
    # If it cannot be started again, the secrets are at least not inherited by commands.
    with contextlib.suppress(OSError):
        _start_again(json.dumps(found).encode())


def environment() -> dict[str, str]:
    """The environment of this process with the secrets that were taken out of it."""
    return {**os.environ, **_secrets}


def hide_memory() -> None:
    """Let no other process of this user read our memory, descriptors or variables.

    Root can read them all the same.
    """
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _start_again(secrets: bytes) -> None:
    if not sys.executable or len(secrets) > _PIPE_BYTES:
        return
    reader, writer = os.pipe()
    try:
        os.write(writer, secrets)
        os.set_inheritable(reader, True)
        env = {**os.environ, _PIPE_VARIABLE: str(reader)}
        os.execve(sys.executable, [sys.executable, *_isolation(), *sys.orig_argv[1:]], env)
    finally:
        os.close(reader)
        os.close(writer)


def _isolation() -> list[str]:
    """The option that keeps the current directory off Python's path, if we are found without it."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    return ["-P"] if package in sys.path and not sys.flags.safe_path else []


def _receive() -> None:
    named = os.environ.pop(_PIPE_VARIABLE, None)
    if named is None:
        return
    import json

    # The memory is hidden before there is a secret in it.
    hide_memory()
    with open(int(named), "rb") as pipe:
        _secrets.update(json.loads(pipe.read(_PIPE_BYTES)))

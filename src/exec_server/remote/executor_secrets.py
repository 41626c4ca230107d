"""Keeps the secrets of an executor out of reach of the commands that it runs as the same user.

Linux shows the environment with which a program was started to all programs of the same user, for
as long as it runs. Removing a variable later does not change that. So the program is started once
more without the variable, and gets the secret through a file in memory.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import msgspec

from exec_server.errors import ConfigurationError
from exec_server.protocol.registry import REGISTRY_TOKEN_VARIABLE

_VARIABLES = (REGISTRY_TOKEN_VARIABLE,)
_DESCRIPTOR_VARIABLE = "EXEC_SERVER_SECRETS_FD"
_MOST_BYTES = 64 << 10
_PR_SET_DUMPABLE = 4


def hide_from_proc() -> None:
    """Start this program again, unless its secrets are already out of /proc/PID/environ.

    Call this before anything else is done. The second time it returns, with the secrets in
    `os.environ`. Nothing happens if this is not the program `exec-server` on Linux.
    """
    if _DESCRIPTOR_VARIABLE in os.environ:
        os.environ.update(_received(os.environ.pop(_DESCRIPTOR_VARIABLE)))
    elif secrets := _visible():
        _start_again(secrets)


def refuse_inspection() -> None:
    """Hide memory, descriptors and environment of this process from others of the same user."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _visible() -> dict[str, str]:
    """The secrets that others of the same user can read."""
    program = Path(sys.argv[0])
    if sys.platform != "linux" or "exec_server" not in (program.parent.name, _module(program)):
        return {}
    try:
        shown = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    names = {line.partition(b"=")[0].decode("utf-8", "replace") for line in shown}
    return {name: os.environ[name] for name in _VARIABLES if name in names & os.environ.keys()}


def _module(program: Path) -> str:
    return program.name.replace("-", "_")


def _start_again(secrets: dict[str, str]) -> None:
    fd = os.memfd_create("exec-server secrets")
    os.write(fd, msgspec.json.encode(secrets))
    os.set_inheritable(fd, True)
    kept = {name: value for name, value in os.environ.items() if name not in secrets}
    words = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, words, {**kept, _DESCRIPTOR_VARIABLE: str(fd)})


def _received(number: str) -> dict[str, str]:
    try:
        fd = int(number)
        try:
            return msgspec.json.decode(os.pread(fd, _MOST_BYTES, 0), type=dict[str, str])
        finally:
            os.close(fd)
    except (ValueError, OSError, msgspec.DecodeError):
        raise ConfigurationError(f"{_DESCRIPTOR_VARIABLE} is set by exec-server itself") from None

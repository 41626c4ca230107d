"""Doors that stay open for a while: how the next ProxyCommand finds one. This imports little."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from exec_server.version import VERSION

# The first byte of a door: it serves this connection, or it has enough of them.
WELCOME, BUSY = b"\0", b"\1"

# A door that does not answer within so many seconds is of no use.
_ANSWER_SECONDS = 5.0
# Variables that decide which server is meant and how it is reached.
_PREFIXES = ("EXEC_SERVER_", "CODEX_", "XDG_", "SSL_", "HTTP", "http", "NO_PROXY", "no_proxy")
_NAMES = ("HOME", "PATH", "PYTHONPATH", "USER")


def door_path(directory: Path, words: Sequence[str], environ: Mapping[str, str]) -> Path:
    """The socket of a door for exactly these words, variables and this release."""
    told = {
        name: value
        for name, value in environ.items()
        if name in _NAMES or name.startswith(_PREFIXES)
    }
    facts = (VERSION, sys.prefix, os.uname().nodename, list(words), sorted(told.items()))
    return directory / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.door"


def find_door(path: Path) -> socket.socket | None:
    """A connection to a door that is open, if there is one."""
    door = socket.socket(socket.AF_UNIX)
    try:
        door.settimeout(_ANSWER_SECONDS)
        door.connect(str(path))
        if door.recv(1) == WELCOME:
            door.settimeout(None)
            return door
    except OSError:
        # No socket, no listener, or one that was just about to leave.
        pass
    door.close()
    return None

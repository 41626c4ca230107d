"""Doors that stay open for a while: how the next ProxyCommand finds one. This imports little."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from exec_server.ssh_door.descriptor_passing import pass_descriptor, takes_descriptors
from exec_server.version import VERSION

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from hashlib import blake2b
else:
    # The parts in C: `hashlib` loads OpenSSL, and `socket` makes enumerations.
    try:
        import _socket as socket
        from _blake2 import blake2b
    except ImportError:
        import socket
        from hashlib import blake2b

# The first byte of a door: it serves this connection, or it has enough of them.
WELCOME, BUSY = b"\0", b"\1"

# A door that does not answer within so many seconds is of no use.
_ANSWER_SECONDS = 5.0
# Variables that decide which server is meant and how it is reached.
_PREFIXES = ("EXEC_SERVER_", "CODEX_", "XDG_", "SSL_", "HTTP", "http", "NO_PROXY", "no_proxy")
_NAMES = ("HOME", "PATH", "PYTHONPATH", "USER")


def door_path(
    directory: str | os.PathLike[str], words: Sequence[str], environ: Mapping[str, str]
) -> str:
    """The socket of a door for exactly these words, variables and this release."""
    told = {
        name: value
        for name, value in environ.items()
        if name in _NAMES or name.startswith(_PREFIXES)
    }
    facts = (VERSION, sys.prefix, os.uname().nodename, list(words), sorted(told.items()))
    name = blake2b(repr(facts).encode(), digest_size=8).hexdigest()
    return os.path.join(directory, f"{name}.door")


def use_open_door(path: str) -> bool:
    """True if OpenSSH has got a connection to a door that is open already."""
    if not takes_descriptors() or (door := find_door(path)) is None:
        return False
    pass_descriptor(door)
    door.close()
    return True


def _is_own(door: socket.socket) -> bool:
    """True if the listener is a program of this user, as far as the system tells."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    # Three numbers: of the process, the user and the group.
    found = door.getsockopt(socket.SOL_SOCKET, option, 12)
    return int.from_bytes(found[4:8], sys.byteorder) == os.geteuid()


def find_door(path: str | os.PathLike[str]) -> socket.socket | None:
    """A connection to a door that is open, if there is one."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.settimeout(_ANSWER_SECONDS)
        door.connect(os.fspath(path))
        if _is_own(door) and door.recv(1) == WELCOME:
            door.settimeout(None)
            return door
    except OSError:
        # No socket, no listener, or one that was just about to leave.
        pass
    door.close()
    return None

"""How OpenSSH takes a socket from its ProxyCommand. This imports little."""

from __future__ import annotations

import os
import stat
import sys

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:
    # The rest of `socket` turns numbers into enumerations, which takes longer than this connection.
    try:
        import _socket as socket
    except ImportError:
        import socket

# What OpenSSH may have sent before the door has read it. The kernel allows less if it has to.
_SOCKET_BYTES = 1 << 20


def takes_descriptors() -> bool:
    """True if standard input and output are the same socket, as only OpenSSH has it."""
    try:
        stdin, stdout = os.fstat(0), os.fstat(1)
    except OSError:
        return False
    is_same = (stdin.st_dev, stdin.st_ino) == (stdout.st_dev, stdout.st_ino)
    return stat.S_ISSOCK(stdout.st_mode) and is_same


def pass_descriptor(end: socket.socket) -> None:
    """Give *end* to OpenSSH, which takes it instead of its two pipes."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
    parent = socket.socket(fileno=os.dup(1))
    try:
        passed = end.fileno().to_bytes(4, sys.byteorder)
        parent.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
    finally:
        parent.close()

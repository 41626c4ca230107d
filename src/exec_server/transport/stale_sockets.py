"""Files of Unix sockets that a program has left behind, because it was killed for example."""

from __future__ import annotations

import os
import socket
import stat


def remove_stale_socket(path: str) -> None:
    """Remove a socket at *path* if no program listens on it. Raises OSError."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A program that accepts nothing would let it wait for ever.
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except OSError:
            # It is in use, or of another kind; binding tells.
            return

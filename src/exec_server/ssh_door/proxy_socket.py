"""The socket between OpenSSH and the door.

With `ProxyUseFdpass` OpenSSH gives a socket as standard input and output, takes a descriptor from
it, and waits until the ProxyCommand has ended: so the door goes on in the background. Other clients
give two pipes, which threads copy to a socket and back.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import stat
import threading
from typing import NamedTuple

_COPY_BYTES = 1 << 20
# How many seconds a client has to take the end of the connection.
_LAST_WORDS = 5.0


class ProxySocket(NamedTuple):
    """The door's end of the connection."""

    sock: socket.socket
    # The thread that copies what the door says, if there is one.
    copying: threading.Thread | None = None

    def finish(self) -> None:
        """Wait until everything was copied; the socket is closed already."""
        if self.copying is not None:
            self.copying.join(_LAST_WORDS)


def take_socket() -> ProxySocket:
    """The socket to serve on. If it was passed to OpenSSH, this is a new process from here on."""
    ours, theirs = socket.socketpair()
    if _takes_descriptors():
        with socket.socket(fileno=os.dup(1)) as parent:
            passed = array.array("i", [theirs.fileno()])
            parent.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
        theirs.close()
        _go_on_in_background()
        return ProxySocket(ours)
    threading.Thread(target=_copy_in, args=(theirs,), daemon=True).start()
    copying = threading.Thread(target=_copy_out, args=(theirs,), daemon=True)
    copying.start()
    return ProxySocket(ours, copying)


def _takes_descriptors() -> bool:
    """True if standard input and output are the same socket, as only OpenSSH has it."""
    try:
        stdin, stdout = os.fstat(0), os.fstat(1)
    except OSError:
        return False
    is_same = (stdin.st_dev, stdin.st_ino) == (stdout.st_dev, stdout.st_ino)
    return stat.S_ISSOCK(stdout.st_mode) and is_same


def _go_on_in_background() -> None:
    if os.fork():
        # The descriptor was passed; OpenSSH waits for this.
        os._exit(0)
    # Ctrl-C in the terminal is for ssh, which decides what it means.
    os.setsid()
    with open(os.devnull, "rb+", buffering=0) as null:
        os.dup2(null.fileno(), 0)
        os.dup2(null.fileno(), 1)


def _copy_in(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, _COPY_BYTES):
            sock.sendall(data)
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)


def _copy_out(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := sock.recv(_COPY_BYTES):
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]
    # OpenSSH sees the end of the connection.
    with contextlib.suppress(OSError):
        os.close(1)

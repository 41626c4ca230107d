"""The socket between OpenSSH and the door.

With `ProxyUseFdpass` OpenSSH gives a socket as standard input and output, takes a descriptor from
it, and waits until the ProxyCommand has ended: so the door goes on in the background. Other clients
give two pipes, which threads copy to a socket and back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from typing import NamedTuple

from exec_server.ssh_door.descriptor_passing import pass_descriptor, takes_descriptors

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


def hand_over(door: socket.socket) -> None:
    """Connect the client to a door that is open already, and return when there is nothing to do."""
    if takes_descriptors():
        pass_descriptor(door)
    else:
        threading.Thread(target=_copy_in, args=(door,), daemon=True).start()
        _copy_out(door)
    door.close()


def take_socket() -> ProxySocket:
    """The socket to serve on. If it was passed to OpenSSH, this is a new process from here on."""
    ours, theirs = socket.socketpair()
    if takes_descriptors():
        pass_descriptor(theirs)
        theirs.close()
        _go_on_in_background()
        return ProxySocket(ours)
    # OpenSSH sends it to its ProxyCommand when it leaves. The end of the input says the same, and
    # leaves time for an orderly end.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_copy_in, args=(theirs,), daemon=True).start()
    copying = threading.Thread(target=_copy_out, args=(theirs,), daemon=True)
    copying.start()
    return ProxySocket(ours, copying)


def _go_on_in_background() -> None:
    if os.fork():
        # The descriptor was passed; OpenSSH waits for this.
        os._exit(0)
    # Ctrl-C in the terminal is for ssh, which decides what it means.
    os.setsid()
    _close_standard(0, 1)


def let_go_of_errors() -> None:
    """Close standard error, which the program that has started ssh may read to its end."""
    _close_standard(2)


def _close_standard(*descriptors: int) -> None:
    with open(os.devnull, "rb+", buffering=0) as null:
        for descriptor in descriptors:
            os.dup2(null.fileno(), descriptor)


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

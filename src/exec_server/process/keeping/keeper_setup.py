"""What a keeper does before it begins: its signals, its orphans and its socket."""

from __future__ import annotations

import fcntl
import os
import sys

from exec_server.process.keeping.c_parts import signal, socket

PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def take_socket() -> socket.socket:
    """The socket that came as descriptor 0, which becomes /dev/null like 1 and 2.

    So none of our descriptors is taken for a child's.
    """
    sock = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3))
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    if null > 2:
        os.close(null)
    return sock


def leave_signals_to_server() -> None:
    """A signal that asks to end is for the server, which then says stop or vanishes."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())

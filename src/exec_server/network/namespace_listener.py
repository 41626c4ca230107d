"""A program that listens in the network namespace of another process and hands the sockets back.

It runs as `python -I -S namespace_listener.py PID PORT...` with a Unix socket as stdin. There it
sends one message: a socket that listens on 127.0.0.1 for each port, or the text of an error. It
imports the standard library only. It is a program of its own because only a process without threads
may enter a user namespace.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import sys

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
# _IO(0xb7, 1): the user namespace that owns another one.
_NS_GET_USERNS = 0xB701
_IP_FREEBIND = 15
# A burst of connections longer than this waits for a second: TCP tries again after that.
_BACKLOG = 1024


def enter(pid: int) -> None:
    """Enter the network namespace of *pid*; OSError when this user may not."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(network, _NS_GET_USERNS)
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        # The owner of a user namespace may do everything in it, which the next step needs.
        _set_namespace(owner, _CLONE_NEWUSER)
    if os.fstat(network).st_ino == os.stat("/proc/self/ns/net").st_ino:
        raise OSError("the process has no network of its own")
    _set_namespace(network, _CLONE_NEWNET)


def _set_namespace(fd: int, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def listen(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # The loopback of a namespace that was just made may not have its address yet.
    sock.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(_BACKLOG)
    return sock


def main(words: list[str]) -> None:
    with socket.socket(fileno=os.dup(0)) as answers:
        try:
            enter(int(words[0]))
            sockets = [listen(int(word)) for word in words[1:]]
        except OSError as exc:
            answers.sendall(f"error: {exc}".encode())
            return
        socket.send_fds(answers, [b"ok"], [sock.fileno() for sock in sockets])


if __name__ == "__main__":
    main(sys.argv[1:])

"""Which users of this machine may use a port that is open on its loopback: its own user, and root.

Every user of a machine can connect to its loopback. A port that leads to another machine would give
all of them what its own user has there.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys

from exec_server.transport.socket_owner import Endpoints, tcp_owner

_ROOT = 0


def is_on_loopback(sock: socket.socket) -> bool:
    """True if *sock* listens on an address of the loopback."""
    if sock.family == socket.AF_UNIX:
        return False
    address = ipaddress.ip_address(sock.getsockname()[0])
    # An IPv4 address may be written as one of IPv6.
    mapped = address.ipv4_mapped if address.version == 6 else None
    return (mapped or address).is_loopback


def user_refusal(sock: socket.socket) -> str | None:
    """Why the connection *sock*, accepted on the loopback, is refused; None if it is not.

    Systems that do not tell the user behind a connection refuse none.
    """
    if sys.platform != "linux":
        return None
    try:
        ends = Endpoints(sock.getsockname()[:2], sock.getpeername()[:2])
        owner = tcp_owner(ends)
    except OSError:
        owner = None
    if owner is None or owner.is_orphan:
        return "the user behind a connection could not be found, so it is refused"
    if owner.uid not in (os.geteuid(), _ROOT):
        return f"a connection of another user of this machine (uid {owner.uid}) is refused"
    return None

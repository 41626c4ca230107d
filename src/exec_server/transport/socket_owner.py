"""The user behind a local connection: who owns the socket at its other end.

A Unix socket carries its peer's credentials. A TCP socket does not, but both ends of a loopback
connection are sockets of this machine, and the kernel tells the owner of each: by `sock_diag`, or
in `/proc/net/tcp` where that is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import socket
import struct
from typing import NamedTuple

import msgspec

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ALL_STATES = 0xFFFFFFFF
_ANY_INTERFACE = 0
_NO_COOKIE = b"\xff" * 8
# Length, type, flags, sequence number, port.
_MESSAGE = struct.Struct("=IHHII")
# Family, protocol, extensions, padding, states.
_REQUEST = struct.Struct("=BBBBI")
# Source port, destination port, source, destination; then an interface and a cookie.
_SOCKET_ID = struct.Struct("!HH16s16s")
_INTERFACE = struct.Struct("=I")
# Where `idiag_uid` and `idiag_inode` are in `struct inet_diag_msg`.
_OWNER = struct.Struct("=II")
_OWNER_OFFSET = 64
# Where `id` is in it, which begins like the question.
_SOCKET_ID_OFFSET = 4
_ANSWER_SECONDS = 1.0
_SO_PEERPIDFD = 77
# `struct ucred`.
_CREDENTIALS = struct.Struct("=iii")


class TcpOwner(msgspec.Struct, frozen=True):
    """The user that made a socket, and the socket's own number.

    After its last descriptor was closed a socket belongs to no one: its number is 0, and so is its
    user, although data that it has sent may still be on the way.
    """

    uid: int
    inode: int

    @property
    def is_orphan(self) -> bool:
        return self.inode == 0


class UnixOwner(NamedTuple):
    """The process that connected a Unix socket, and its user, as they were at that moment."""

    pid: int
    uid: int


def is_peer_running(fd: int) -> bool:
    """True if the process that connected to the Unix socket *fd* has not ended.

    Its number may belong to another process afterwards. Kernels before 6.5 cannot tell; the answer
    is then True.
    """
    with socket.socket(fileno=os.dup(fd)) as sock:
        try:
            pidfd = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as exc:
            return exc.errno == errno.ENOPROTOOPT
    try:
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        return not ended.poll(0)
    finally:
        os.close(pidfd)


class Endpoints(NamedTuple):
    """The two addresses of a TCP connection, as our end sees them."""

    ours: tuple[str, int]
    theirs: tuple[str, int]

    @property
    def family(self) -> int:
        return socket.AF_INET6 if ":" in self.theirs[0] else socket.AF_INET


def unix_owner(fd: int) -> UnixOwner:
    """The process that connected to the Unix socket *fd*."""
    with socket.socket(fileno=os.dup(fd)) as sock:
        data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return UnixOwner(pid, uid)


def unix_peer(transport: asyncio.BaseTransport) -> UnixOwner | None:
    """The process at the other end of a Unix socket; None if it cannot be found out."""
    try:
        return unix_owner(transport.get_extra_info("socket").fileno())
    except OSError:
        return None


def is_own_address(host: str) -> bool:
    """True if *host*, which is an address, belongs to this machine; no packet is sent."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(socket.getaddrinfo(host, 0, family, flags=socket.AI_NUMERICHOST)[0][4])
        except OSError as exc:
            return exc.errno != errno.EADDRNOTAVAIL
    return True


def tcp_owner(ends: Endpoints) -> TcpOwner | None:
    """The owner of the other end of a connection; None if that end is not on this machine."""
    with contextlib.suppress(OSError):
        return _ask_kernel(ends, _ANY_INTERFACE)
    # A socket that is bound to an interface is found by the number of that interface alone. Few
    # are, and a list of the interfaces takes longer than the question.
    for interface, _ in socket.if_nameindex():
        with contextlib.suppress(OSError):
            return _ask_kernel(ends, interface)
    # The table has a line for each connection of the machine. Strangers can make it so long that
    # reading it takes a second.
    return None if _answers(ends) else _read_table(ends)


def _answers(ends: Endpoints) -> bool:
    """True if the kernel has `tcp_diag`: it must know our own end, or at least our listener."""
    try:
        _exchange(_question(Endpoints(ends.theirs, ends.ours), _ANY_INTERFACE))
    except OSError:
        return False
    return True


def _ask_kernel(ends: Endpoints, interface: int) -> TcpOwner:
    answer = _exchange(_question(ends, interface))
    # If the connection is gone, the kernel tells of a listener at the same address instead.
    found = _SOCKET_ID.unpack_from(answer, _MESSAGE.size + _SOCKET_ID_OFFSET)
    if found[:2] != (ends.theirs[1], ends.ours[1]):
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    return TcpOwner(*_OWNER.unpack_from(answer, _MESSAGE.size + _OWNER_OFFSET))


def _exchange(question: bytes) -> bytes:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as sock:
        sock.sendto(question, (0, 0))
        try:
            # The kernel answers before `sendto` returns.
            answer = sock.recv(4096, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sock.settimeout(_ANSWER_SECONDS)
            answer = sock.recv(4096)
    kind = _MESSAGE.unpack_from(answer)[1]
    if kind != _SOCK_DIAG_BY_FAMILY:
        number = -struct.unpack_from("=i", answer, _MESSAGE.size)[0]
        # "No such entry" also means that this kernel has no `tcp_diag`.
        raise OSError(number, os.strerror(number))
    return answer


def _question(ends: Endpoints, interface: int) -> bytes:
    (our_host, our_port), (their_host, their_port) = ends
    body = (
        _REQUEST.pack(ends.family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
        + _SOCKET_ID.pack(
            their_port, our_port, _packed(ends.family, their_host), _packed(ends.family, our_host)
        )
        + _INTERFACE.pack(interface)
        + _NO_COOKIE
    )
    size = _MESSAGE.size + len(body)
    return _MESSAGE.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body


def _packed(family: int, host: str) -> bytes:
    return socket.inet_pton(family, host.partition("%")[0]).ljust(16, b"\0")


def _read_table(ends: Endpoints) -> TcpOwner | None:
    if ends.family == socket.AF_INET6:
        return _find_in("tcp6", ends)
    # A socket for IPv6 can speak IPv4.
    mapped = Endpoints(*((f"::ffff:{host}", port) for host, port in ends))
    return _find_in("tcp", ends) or _find_in("tcp6", mapped)


def _find_in(table: str, ends: Endpoints) -> TcpOwner | None:
    wanted = (_spelled(ends.family, ends.theirs), _spelled(ends.family, ends.ours))
    with open(f"/proc/net/{table}", encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if tuple(words[1:3]) == wanted:
                return TcpOwner(int(words[7]), int(words[9]))
    return None


def _spelled(family: int, address: tuple[str, int]) -> str:
    """An address as `/proc/net/tcp` writes it: words of four bytes in the machine's own order."""
    packed = socket.inet_pton(family, address[0].partition("%")[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"

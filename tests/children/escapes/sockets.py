"""Sockets of every family, and messages to those outside."""

from __future__ import annotations

import ctypes
import socket

from .attempt import NoGain, Stage, attempt, call, plain

_FAMILIES = {
    "inet": socket.AF_INET,
    "inet6": socket.AF_INET6,
    "netlink": socket.AF_NETLINK,
    "packet": socket.AF_PACKET,
    "vsock": 40,
    "alg": 38,
    "bluetooth": 31,
    "can": 29,
    "xdp": 44,
    "tipc": 30,
    "rds": 21,
    "smc": 43,
    "qrtr": 42,
    "key": 15,
    "ppp": 24,
}
_KINDS = {
    "netlink": socket.SOCK_RAW,
    "packet": socket.SOCK_RAW,
    "alg": socket.SOCK_SEQPACKET,
    "can": socket.SOCK_RAW,
    "bluetooth": socket.SOCK_RAW,
    "xdp": socket.SOCK_RAW,
    "key": socket.SOCK_RAW,
    "qrtr": socket.SOCK_DGRAM,
}
_UNIX = socket.AF_UNIX


def _register(name: str) -> None:
    def tried(stage: Stage) -> None:
        call("socket", _FAMILIES[name], _KINDS.get(name, socket.SOCK_STREAM), 0)

    tried.__name__ = f"socket_{name}"
    tried.__doc__ = f"make a socket of the family {name}"
    (plain if name in ("inet", "inet6", "netlink") else attempt)(tried)


for _name in _FAMILIES:
    _register(_name)


@attempt
def socket_of_any_other_family(stage: Stage) -> None:
    """make a socket of any family but AF_UNIX"""
    refused: OSError | None = None
    for family in range(64):
        for kind in (1, 2, 3, 5):
            try:
                if family != _UNIX:
                    call("socket", family, kind, 0)
                    return
            except OSError as exc:
                refused = exc
    assert refused is not None
    raise refused


@attempt
def socket_with_a_larger_register(stage: Stage) -> None:
    """make an internet socket, with something in the upper half of the register"""
    call("socket", socket.AF_INET | 1 << 32, socket.SOCK_STREAM, 0)


@plain
def socket_raw_unix(stage: Stage) -> None:
    """make a unix socket of the kind raw, which is a datagram one"""
    call("socket", _UNIX, socket.SOCK_RAW, 0)


@plain
def socket_udp(stage: Stage) -> None:
    """send a datagram to loopback"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"escaped", ("127.0.0.1", stage.udp))


@plain
def socket_tcp(stage: Stage) -> None:
    """connect to loopback"""
    socket.create_connection(("127.0.0.1", stage.tcp), timeout=5)


@attempt
def socket_icmp(stage: Stage) -> None:
    """make a socket for pings"""
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)


@attempt
def socket_raw_inet(stage: Stage) -> None:
    """make a raw internet socket"""
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)


@attempt
def socket_mptcp(stage: Stage) -> None:
    """make a socket for multipath TCP"""
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)


@plain
def unix_connect(stage: Stage) -> None:
    """connect to a unix socket outside"""
    socket.socket(_UNIX).connect(f"{stage.outside}/stream.socket")


@plain
def unix_connect_through_a_link(stage: Stage) -> None:
    """connect to a unix socket outside through a link in the workspace"""
    socket.socket(_UNIX).connect("directory-link/stream.socket")


@plain
def unix_connect_abstract(stage: Stage) -> None:
    """connect to an abstract unix socket"""
    socket.socket(_UNIX).connect("\0" + stage.abstract)


@plain
def unix_connect_packets(stage: Stage) -> None:
    """connect to a unix socket outside that keeps packets apart"""
    sock = socket.socket(_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(f"{stage.outside}/packets.socket")


@plain
def unix_datagram(stage: Stage) -> None:
    """send to a unix datagram socket outside with sendto"""
    sock = socket.socket(_UNIX, socket.SOCK_DGRAM)
    sock.sendto(b"escaped", f"{stage.outside}/datagram.socket")


@plain
def unix_datagram_message(stage: Stage) -> None:
    """send to a unix datagram socket outside with sendmsg and its address"""
    sock = socket.socket(_UNIX, socket.SOCK_DGRAM)
    sock.sendmsg([b"escaped"], [], 0, f"{stage.outside}/datagram.socket")


@plain
def unix_datagram_abstract(stage: Stage) -> None:
    """send to an abstract unix datagram socket with sendmsg"""
    sock = socket.socket(_UNIX, socket.SOCK_DGRAM)
    sock.sendmsg([b"escaped"], [], 0, "\0" + stage.abstract + "-datagram")


@plain
def unix_pair_of_datagrams(stage: Stage) -> None:
    """send to a socket outside from one of a pair of datagram sockets"""
    sock, _ = socket.socketpair(_UNIX, socket.SOCK_DGRAM)
    sock.sendmsg([b"escaped"], [], 0, f"{stage.outside}/datagram.socket")


@attempt
def unix_stream_message(stage: Stage) -> None:
    """send to a unix socket outside from an unconnected stream with sendmsg"""
    socket.socket(_UNIX).sendmsg([b"escaped"], [], 0, f"{stage.outside}/stream.socket")


@attempt
def unix_packets_message(stage: Stage) -> None:
    """send to a unix socket outside from an unconnected packet socket with sendmsg"""
    sock = socket.socket(_UNIX, socket.SOCK_SEQPACKET)
    sock.sendmsg([b"escaped"], [], 0, f"{stage.outside}/packets.socket")


@attempt
def unix_pair_of_streams(stage: Stage) -> None:
    """send to a socket outside from one of a pair of streams"""
    sock, other = socket.socketpair(_UNIX)
    sock.sendmsg([b"escaped"], [], 0, f"{stage.outside}/stream.socket")
    other.recv(100)
    # It went to the other end, address or not.
    raise NoGain


@attempt
def unix_many_messages(stage: Stage) -> None:
    """send with sendmmsg"""
    sock, _ = socket.socketpair(_UNIX)
    call("sendmmsg", sock.fileno(), ctypes.create_string_buffer(64), 1, 0)


@plain
def unix_bind(stage: Stage) -> None:
    """bind a unix socket in the workspace, for others to connect to"""
    socket.socket(_UNIX).bind(f"{stage.workspace}/bound.socket")


@plain
def unix_bind_abstract(stage: Stage) -> None:
    """bind an abstract unix socket"""
    socket.socket(_UNIX).bind("\0" + stage.abstract + "-new")


@attempt
def unix_listen(stage: Stage) -> None:
    """listen on a unix socket"""
    sock = socket.socket(_UNIX)
    sock.listen()


@plain
def pair_of_raw_sockets(stage: Stage) -> None:
    """make a pair of unix sockets of the kind raw"""
    socket.socketpair(_UNIX, socket.SOCK_RAW)


@plain
def descriptor_to_the_outside(stage: Stage) -> None:
    """pass an own descriptor to a process outside over a datagram"""
    sock = socket.socket(_UNIX, socket.SOCK_DGRAM)
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, (0).to_bytes(4, "little"))
    sock.sendmsg([b"escaped"], [rights], 0, f"{stage.outside}/datagram.socket")

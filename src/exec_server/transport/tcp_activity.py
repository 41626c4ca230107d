"""What the kernel knows about the traffic of a TCP connection."""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any

import msgspec

# Of Linux's `struct tcp_info`: the size of a segment and the number of segments that the peer has
# not acknowledged (both 32 bits), then the bytes that it has acknowledged and the bytes that have
# come (both 64 bits).
_INFO = struct.Struct("=16xI4xI92xQQ")
# More than this on its way to the peer is a backlog. Less is acknowledged by a proxy in between.
_BACKLOG_BYTES = 64 * 1024


class TcpActivity(msgspec.Struct, frozen=True):
    """The bytes that have come, and those of a backlog that the peer has acknowledged."""

    arrived: int = 0
    departed: int = 0


def tcp_activity(raw: Any) -> TcpActivity:
    """What socket *raw* has carried; zeros if it is not TCP, or the system is not Linux.

    A message of many megabytes takes its time in either direction, and until it has arrived there
    is nothing else to hear.
    """
    if sys.platform != "linux" or getattr(raw, "family", None) not in (
        socket.AF_INET,
        socket.AF_INET6,
    ):
        return TcpActivity()
    try:
        info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    except OSError:
        return TcpActivity()
    if len(info) < _INFO.size:
        return TcpActivity()
    segment_bytes, unacked, acked, received = _INFO.unpack(info)
    return TcpActivity(received, acked if unacked * segment_bytes > _BACKLOG_BYTES else 0)

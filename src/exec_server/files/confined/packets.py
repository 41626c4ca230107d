"""The packets between the server and a helper: one for each call and one for each answer.

A packet is a MessagePack array with at most one descriptor. Content that would not fit into a
packet travels in an anonymous file. Only sendmsg(2) and recvmsg(2) are used, because the sandbox's
filter refuses the other calls.
"""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Iterator
from typing import Any

import msgspec

from exec_server.files.operations.content import Content, write_content

# This fits a packet with the kernel's default buffers, and saves a copy to a file.
INLINE_BYTES = 64 * 1024
# The receiver refuses longer packets, for example one with a very long path.
PACKET_BYTES = INLINE_BYTES + 32 * 1024
_ANCILLARY = socket.CMSG_SPACE(array.array("i").itemsize)
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_PIECE_BYTES = 1 << 20


class HelperCall(msgspec.Struct, array_like=True):
    """A task of `work`; the content that it takes, if any, may be in the packet's descriptor."""

    id: int
    task: str
    args: tuple[Any, ...]
    # False if the task must not follow symbolic links.
    follows: bool = True
    content: bytes | None = None


class HelperAnswer(msgspec.Struct, array_like=True):
    """A result as JSON, or an error's text with its code.

    A descriptor is the opened file if `is_opened` is true; otherwise it contains the result.
    """

    id: int
    payload: bytes
    code: int | None = None
    is_opened: bool = False
    # What else there is to say of an error; see `RpcError.details`.
    details: dict[str, Any] | None = None


class FileContent:
    """The content of an anonymous file, which can be written to another file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pieces(self) -> Iterator[bytes]:
        offset = 0
        while piece := os.pread(self._fd, _PIECE_BYTES, offset):
            yield piece
            offset += len(piece)

    def decode(self) -> bytes:
        return b"".join(self.pieces())


def anonymous_file(content: Content | FileContent) -> int:
    """Return the descriptor of a new anonymous file with *content*."""
    fd = os.memfd_create("content", os.MFD_CLOEXEC)
    try:
        write_content(fd, content)  # type: ignore[arg-type]
    except BaseException:
        os.close(fd)
        raise
    return fd


def send(sock: socket.socket, packet: bytes, fd: int | None = None) -> None:
    """Send one packet. Raises OSError, and BlockingIOError if the buffer is full."""
    ancillary = []
    if fd is not None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    sock.sendmsg([packet], ancillary)


def receive(sock: socket.socket) -> tuple[bytes, int | None]:
    """Receive a packet and its descriptor. It is empty if the peer is gone. Raises OSError."""
    packet, ancillary, flags, _ = sock.recvmsg(PACKET_BYTES, _ANCILLARY, _CLOEXEC)
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(fds) > 1:
        for fd in fds:
            os.close(fd)
        raise OSError("the packet is too long, or its descriptor was lost")
    return packet, fds[0] if fds else None

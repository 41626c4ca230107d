"""Several buffers at once, to a peer that does not read."""

from __future__ import annotations

import asyncio
import socket

import pytest

from exec_server.transport.gathered_writes import writelines_of

_MIB = 1 << 20


class _Writer(asyncio.Protocol):
    def __init__(self) -> None:
        self.is_paused = False

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False


@pytest.mark.parametrize("count", [1, 3])
async def test_a_writer_is_paused_and_resumed_and_nothing_is_lost(count):
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport, writer = await loop.create_connection(_Writer, sock=ours)
    with theirs:
        writelines = writelines_of(transport)
        wanted = [bytes([number]) * _MIB for number in range(8 * count)]
        for start in range(0, len(wanted), count):
            piece = memoryview(wanted[start])
            writelines([piece[:5], piece[5:], *wanted[start + 1 : start + count]])
        assert writer.is_paused
        expected, received = b"".join(wanted), bytearray()
        while len(received) < len(expected):
            received += await asyncio.wait_for(loop.sock_recv(theirs, _MIB), 30)
        assert received == expected
        assert not writer.is_paused
        transport.close()

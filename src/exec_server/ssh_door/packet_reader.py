"""Reads the packets of ssh: large ones of data go to their channels, all others to asyncssh.

asyncssh keeps what was received in one value, and copies the rest of it twice for each packet. Here
packets are opened where they were received.
"""

from __future__ import annotations

import asyncio

from asyncssh import SSHServerConnection
from asyncssh.channel import SSHChannel
from asyncssh.constants import MSG_CHANNEL_DATA
from asyncssh.crypto.cipher import GCMCipher
from asyncssh.encryption import GCMEncryption
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# OpenSSH sends packets of up to 128 KiB here.
_BUFFER_BYTES = 512 << 10
# Smaller packets are rarely data, and it would not matter.
_LARGE = 4 << 10
# The length before a packet; the length of the padding, the type, the channel and the length of the
# data at its beginning; and the tag behind it.
_LENGTH_BYTES, _HEAD_BYTES, _TAG_BYTES = 4, 10, 16

# What is used of asyncssh, and may have another name in another release.
_PRIVATE = (
    "_auth_complete _channels _decompressor _finish_recv_packet _inpbuf _pktlen _recv_blocksize "
    "_recv_encryption _recv_handler _recv_macsize _recv_packet _recv_pkthdr _recv_seq _transport"
).split()
_PRIVATE_OF_CIPHERS = ("_iv", "_key", "_update_iv")
_PRIVATE_OF_CHANNELS = ("_accept_data", "_recv_state", "_recv_window")


class PacketReader(asyncio.BufferedProtocol):
    """The protocol of the transport; it passes everything on to asyncssh's connection."""

    def __init__(self, connection: SSHServerConnection) -> None:
        self._connection = connection
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._opened: tuple[GCMCipher, AESGCM] | None = None

    def eof_received(self) -> None:
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        end = self._filled + nbytes
        start = self._parse(0, end)
        self._filled = end - start
        if start:
            self._buffer[: self._filled] = bytes(self._buffer[start:end])

    def _parse(self, start: int, end: int) -> int:
        """Pass on what is between *start* and *end*; return where an incomplete packet begins.

        asyncssh gets no more than it asks for, so that it has nothing to copy.
        """
        connection = self._connection
        while start < end and connection._transport is not None:
            if self._may_be_data(start, end):
                size = self._packet_size(start)
                if start + size > end:
                    return start
                if self._take_data(start, start + size):
                    start += size
                    continue
            taken = self._wanted_bytes() - len(connection._inpbuf)
            if not 0 < taken <= end - start:
                taken = end - start
            connection.data_received(bytes(self._buffer[start : start + taken]))
            start += taken
        return end

    def _may_be_data(self, start: int, end: int) -> bool:
        """True if a large packet begins at *start*, which can be opened here."""
        connection = self._connection
        return (
            end - start >= _LENGTH_BYTES
            and not connection._inpbuf
            and type(connection._recv_encryption) is GCMEncryption
            and connection._recv_handler == connection._recv_pkthdr
            and connection._auth_complete
            and not connection._decompressor
            and _LARGE <= self._packet_size(start) <= _BUFFER_BYTES
        )

    def _packet_size(self, start: int) -> int:
        inner = int.from_bytes(self._buffer[start : start + _LENGTH_BYTES], "big")
        return _LENGTH_BYTES + inner + _TAG_BYTES

    def _wanted_bytes(self) -> int:
        """How many bytes asyncssh waits for; 0 if it does not say."""
        connection = self._connection
        if connection._recv_handler == connection._recv_packet:
            overhead = _LENGTH_BYTES + connection._recv_macsize - connection._recv_blocksize
            return connection._pktlen + overhead
        is_between = connection._recv_handler == connection._recv_pkthdr
        return connection._recv_blocksize if is_between else 0

    def _take_data(self, start: int, end: int) -> bool:
        """Pass a packet on if it is data for a channel.

        False is returned for all others, also wrong ones, and nothing has changed then: asyncssh
        opens them once more, and decides.
        """
        connection = self._connection
        assert isinstance(connection._recv_encryption, GCMEncryption)
        cipher = connection._recv_encryption._cipher
        if self._opened is None or self._opened[0] is not cipher:
            if not all(hasattr(cipher, name) for name in _PRIVATE_OF_CIPHERS):
                return False
            self._opened = cipher, AESGCM(cipher._key)
        begin = start + _LENGTH_BYTES
        try:
            packet = self._opened[1].decrypt(
                cipher._iv, self._buffer[begin:end], self._buffer[start:begin]
            )
        except InvalidTag:
            return False
        if not self._deliver(packet):
            return False
        cipher._update_iv()
        connection._finish_recv_packet(MSG_CHANNEL_DATA, connection._recv_seq)
        return True

    def _deliver(self, packet: bytes) -> bool:
        if packet[1] != MSG_CHANNEL_DATA:
            return False
        channel = self._connection._channels.get(int.from_bytes(packet[2:6], "big"))
        size = int.from_bytes(packet[6:_HEAD_BYTES], "big")
        if (
            not isinstance(channel, SSHChannel)
            or not all(hasattr(channel, name) for name in _PRIVATE_OF_CHANNELS)
            or channel._recv_state != "open"
            or size > channel._recv_window
            or _HEAD_BYTES + size + packet[0] != len(packet)
        ):
            return False
        channel._accept_data(packet[_HEAD_BYTES : _HEAD_BYTES + size])
        return True


def read_quickly(connection: SSHServerConnection) -> None:
    """Let a reader stand before *connection*, unless this asyncssh has other parts inside."""
    if all(hasattr(connection, name) for name in _PRIVATE):
        assert connection._transport is not None
        connection._transport.set_protocol(PacketReader(connection))

"""What asyncssh's connection need not do here; private methods are used here and in the reader."""

from __future__ import annotations

from asyncssh import SSHServerConnection
from asyncssh.constants import MSG_IGNORE
from asyncssh.packet import SSHPacket, SSHPacketLogger

from exec_server.ssh_door.packet_reader import read_quickly


def log_nothing(
    self: SSHPacketLogger,
    pkttype: int,
    pktid: int | None,
    packet: bytes | SSHPacket,
    note: str = "",
) -> None:
    """Instead of a line of a log, which asyncssh prepares whatever the level of the log is."""


class DoorConnection(SSHServerConnection):
    """A connection that does less for each packet."""

    log_sent_packet = log_received_packet = log_nothing

    def send_packet(
        self, pkttype: int, *args: bytes, handler: SSHPacketLogger | None = None
    ) -> None:
        """Send no empty packet before each packet.

        They are against an attack on CBC ciphers, which this door does not offer, and half of the
        work.
        """
        if pkttype != MSG_IGNORE:
            super().send_packet(pkttype, *args, handler=handler)


def quicken(connection: SSHServerConnection) -> None:
    """Make it a DoorConnection: asyncssh takes no class for it."""
    connection.__class__ = DoorConnection
    read_quickly(connection)

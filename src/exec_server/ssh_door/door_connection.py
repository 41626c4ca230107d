"""What asyncssh's connection need not do here; its private methods are used only here."""

from __future__ import annotations

from asyncssh import SSHServerConnection
from asyncssh.constants import MSG_IGNORE
from asyncssh.packet import SSHPacketLogger


class DoorConnection(SSHServerConnection):
    """A connection that sends no empty packet before each packet.

    They are against an attack on CBC ciphers, which this door does not offer, and half of the work.
    """

    def send_packet(
        self, pkttype: int, *args: bytes, handler: SSHPacketLogger | None = None
    ) -> None:
        if pkttype != MSG_IGNORE:
            super().send_packet(pkttype, *args, handler=handler)


def quicken(connection: SSHServerConnection) -> None:
    """Make it a DoorConnection: asyncssh takes no class for it."""
    connection.__class__ = DoorConnection

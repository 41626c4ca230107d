"""What asyncssh's session channel does not do; its private methods are used only here."""

from __future__ import annotations

from typing import Protocol

from asyncssh import SSHServerConnection
from asyncssh.channel import SSHServerChannel
from asyncssh.packet import SSHPacket

from exec_server.ssh_door.door_connection import log_nothing


class HearsOutputEnd(Protocol):
    """A session that wants to know that its client takes no more output."""

    def output_refused(self) -> None: ...


class DoorChannel(SSHServerChannel[bytes]):
    """A session channel that knows `eow@openssh.com`, and commands that are not UTF-8."""

    log_sent_packet = log_received_packet = log_nothing

    def _process_eow_at_openssh_dot_com_request(self, packet: SSHPacket) -> bool:
        """The reader of the client's output has gone, as after `| head`."""
        packet.check_end()
        session: HearsOutputEnd = self._session  # type: ignore[assignment]
        session.output_refused()
        return True

    def _process_exec_request(self, packet: SSHPacket) -> bool:
        """Other bytes become surrogates, as in `os.fsdecode`; they may be the name of a file."""
        command = packet.get_string().decode("utf-8", "surrogateescape")
        packet.check_end()
        return self._start_session(command=command)


def make_channel(connection: SSHServerConnection) -> DoorChannel:
    """A channel with the options of the connection."""
    channel = connection.create_server_channel()
    # The connection knows the many arguments, and takes no class.
    channel.__class__ = DoorChannel
    assert isinstance(channel, DoorChannel)
    return channel

"""One executor's socket on this node, with the registration that it serves."""

from __future__ import annotations

import os

import msgspec

from exec_server.hub.bus import Unsubscribe
from exec_server.hub.cluster.node_messages import Takeover
from exec_server.hub.relay.relay_socket import RelaySocket
from exec_server.hub.relay.routing import GOING_AWAY, Exchange


class LiveRegistration(msgspec.Struct, eq=False, kw_only=True):
    """A registration whose executor is connected to this node.

    An executor may open several sockets for one registration, one after the other. *socket_id*
    names this socket, *registration_id* the registration.
    """

    environment_id: str
    registration_id: str
    generation: int
    socket: RelaySocket
    exchange: Exchange
    address: str
    since: float
    socket_id: str = msgspec.field(default_factory=lambda: os.urandom(8).hex())
    # The revision of the OwnerRecord that names this socket; 0 until that is written.
    revision: int = 0
    # The socket on another node that this one replaces.
    replaced_socket_id: str = ""
    # True while it serves its environment.
    is_serving: bool = False
    # True once it must not serve any more.
    is_over: bool = False
    unsubscribe: Unsubscribe | None = None

    def dismiss(self, reason: str) -> None:
        """End the socket and the streams of its harnesses."""
        self.is_over = True
        self.exchange.end(reason)
        self.socket.cut(GOING_AWAY, reason)

    def takeover(self) -> Takeover:
        """The message that tells other nodes of this socket."""
        return Takeover(
            environment_id=self.environment_id,
            generation=self.generation,
            socket_id=self.socket_id,
            revision=self.revision,
            since=self.since,
            replaced_socket_id=self.replaced_socket_id,
        )

    def is_older_than(self, other: Takeover) -> bool:
        """True if this one came first. Clocks decide only where revisions cannot."""
        if self.generation != other.generation:
            return self.generation < other.generation
        if self.revision and other.revision:
            return self.revision < other.revision
        return self.since < other.since

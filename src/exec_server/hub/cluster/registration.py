"""An executor's place at a node."""

from __future__ import annotations

import os

import msgspec

from exec_server.hub.bus import Unsubscribe
from exec_server.hub.cluster.node_messages import Taken
from exec_server.hub.relay.relay_socket import Link
from exec_server.hub.relay.routing import GOING_AWAY, Exchange


class Seat(msgspec.Struct, eq=False, kw_only=True):
    """An executor's socket on this node."""

    environment_id: str
    registration_id: str
    generation: int
    link: Link
    exchange: Exchange
    address: str
    since: float
    id: str = msgspec.field(default_factory=lambda: os.urandom(8).hex())
    # Of the fence, once it has let this one in.
    revision: int = 0
    # Of another node, which this one replaces.
    before: str = ""
    # Whether it serves its environment, and whether it has done so for the last time.
    is_taken: bool = False
    is_over: bool = False
    unsubscribe: Unsubscribe | None = None

    def dismiss(self, reason: str) -> None:
        self.is_over = True
        self.exchange.end(reason)
        self.link.cut(GOING_AWAY, reason)

    def taken(self) -> Taken:
        """What the others have to know."""
        return Taken(
            environment_id=self.environment_id,
            generation=self.generation,
            seat=self.id,
            revision=self.revision,
            since=self.since,
            before=self.before,
        )

    def is_older_than(self, other: Taken) -> bool:
        """Which came first; clocks of nodes are asked only where the fence cannot tell."""
        if self.generation != other.generation:
            return self.generation < other.generation
        if self.revision and other.revision:
            return self.revision < other.revision
        return self.since < other.since

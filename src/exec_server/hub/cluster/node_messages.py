"""The messages between the nodes of a registry, apart from relayed frames.

Nodes of different releases talk to each other while a registry is updated. So the names on the
wire, those in `tag` and `field(name=...)`, stay as the first release had them.
"""

from __future__ import annotations

import hashlib

import msgspec


class OwnerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The value that the bus keeps by compare-and-set: the socket that serves an environment."""

    node: str
    # The id of a `LiveRegistration`; empty after the socket has left.
    socket_id: str = msgspec.field(name="seat")
    registration_id: str
    generation: int
    # The time at which the socket was opened, by the clock of its node.
    since: float = 0.0


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """An executor that is connected to some node."""

    environment_id: str
    registration_id: str
    node: str
    since: float
    streams: int
    bytes: int
    # True if another harness may join, with the token of the request if it names one.
    has_room: bool
    # The public URL of its node, if that node has one of its own.
    url: str | None = None


# Requests on the subject of an environment. The node that holds the executor's socket answers.


class PresenceRequest(msgspec.Struct, frozen=True, tag="Ask", omit_defaults=True):
    """Asks whether the executor is there. The answer is a Presence or RegistrationGone."""

    # The token of a harness that would join.
    token_id: str = ""


class JoinRequest(msgspec.Struct, frozen=True, tag="Join", omit_defaults=True):
    """Asks to join a harness whose socket is on another node, behind that node's *channel*.

    The answer is JoinAccepted, JoinRefused or RegistrationGone.
    """

    registration_id: str
    node: str
    channel: bytes
    # The token of the harness; nodes of earlier releases do not tell it.
    token_id: str = ""


class JoinAccepted(msgspec.Struct, frozen=True, tag="Joined"):
    """The harness has joined. *channel* is the address of the executor's side."""

    channel: bytes
    socket_id: str = msgspec.field(name="seat")


class JoinRefused(msgspec.Struct, frozen=True, tag="Full"):
    """No further harness may join, or none with that registration id."""


class RegistrationGone(msgspec.Struct, frozen=True, tag="Gone"):
    """This socket does not serve the environment any more, but a newer one may."""


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """Told to all nodes: an executor has come, and older sockets of its environment must end.

    *socket_id* is empty when an executor has registered and its socket is not open yet.
    """

    environment_id: str
    generation: int
    socket_id: str = msgspec.field(default="", name="seat")
    revision: int = 0
    since: float = 0.0
    # The socket that is replaced. Its node may be dead and unable to say so.
    replaced_socket_id: str = msgspec.field(default="", name="before")


class Census(msgspec.Struct, frozen=True):
    """Asks a node for its executors with a name after *after*, up to *until*, that fit a pattern.

    The answer is a CensusPage.
    """

    after: str
    until: str
    patterns: tuple[str, ...]


class CensusPage(msgspec.Struct, frozen=True):
    """Some of a node's executors. *after* is the name to continue after; None on the last page."""

    presences: list[Presence]
    after: str | None = None


class Beat(msgspec.Struct, frozen=True):
    """Told to all nodes every second: this node lives.

    *given_up* says how often this node has counted each other node as dead.
    """

    node: str
    given_up: dict[str, int] = {}
    # The public URL of this node alone, if it has one.
    url: str | None = None


RegistrationRequest = PresenceRequest | JoinRequest

encode = msgspec.msgpack.Encoder().encode


def ownership_key(environment_id: str) -> str:
    """The key of an environment's OwnerRecord: a word that the bus accepts, for any name."""
    return hashlib.blake2b(environment_id.encode(), digest_size=16).hexdigest()

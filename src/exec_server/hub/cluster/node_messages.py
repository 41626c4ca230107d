"""What the nodes of a registry say to one another, apart from relayed frames."""

from __future__ import annotations

import hashlib

import msgspec


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Behind the fence: which seat an environment has, or had last."""

    node: str
    # Empty once it was left.
    seat: str
    registration_id: str
    generation: int
    # When its socket came, on its node's clock.
    since: float = 0.0


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """An executor that is connected, wherever."""

    environment_id: str
    registration_id: str
    node: str
    since: float
    streams: int
    bytes: int
    # Whether another harness may join.
    has_room: bool
    # How its node is called by everybody, when they can choose.
    url: str | None = None


# Requests to the seat of an environment, and what it answers.


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Are you there? → Presence, or Gone"""


class Join(msgspec.Struct, frozen=True, tag=True):
    """Let a harness in, whose socket is behind a channel of another node. → Joined, Full or Gone"""

    registration_id: str
    node: str
    channel: bytes


class Joined(msgspec.Struct, frozen=True, tag=True):
    channel: bytes
    seat: str


class Full(msgspec.Struct, frozen=True, tag=True):
    """No other harness may join, or not under that registration."""


class Gone(msgspec.Struct, frozen=True, tag=True):
    """This seat is not the environment's any more, but another one may be."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """To everybody: an executor has come, and whoever served its environment until now leaves.

    Without a seat, which is yet to come, for a registration.
    """

    environment_id: str
    generation: int
    seat: str = ""
    revision: int = 0
    since: float = 0.0
    # The seat that it replaces, whose node may be dead and say nothing.
    before: str = ""


class Census(msgspec.Struct, frozen=True):
    """Who is with you, after one name and up to another, that fits a pattern? → Page"""

    after: str
    until: str
    patterns: tuple[str, ...]


class Page(msgspec.Struct, frozen=True):
    """Some of a node's executors, and after which name to go on; None at the end."""

    presences: list[Presence]
    after: str | None = None


class Beat(msgspec.Struct, frozen=True):
    """A node lives. It has given up each of these others so many times."""

    node: str
    given_up: dict[str, int] = {}


SeatRequest = Ask | Join

encode = msgspec.msgpack.Encoder().encode


def fence_key(environment_id: str) -> str:
    """A word for any name."""
    return hashlib.blake2b(environment_id.encode(), digest_size=16).hexdigest()

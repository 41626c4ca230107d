"""The environments as people want to see them."""

from __future__ import annotations

import msgspec

from exec_server.hub.cluster.messages import Presence
from exec_server.hub.cluster.seats import Seats
from exec_server.hub.records import Environment, Token
from exec_server.hub.store import Store
from exec_server.hub.tokens import allows


class Listed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One environment: what it says of itself, and what we see of it."""

    name: str
    is_online: bool
    online_since: float | None
    registered_at: float
    principal: str
    version: str | None
    platform: str | None
    sandbox: str | None
    labels: dict[str, str]
    is_encrypted: bool
    streams: int
    bytes: int


async def listed(store: Store, seats: Seats, token: Token) -> list[Listed]:
    """What the holder of *token* may see."""
    sees_all = "observe" in token.rights
    present = await seats.census()
    return [
        _describe(environment, present.get(environment.id))
        for environment in await store.environments()
        if sees_all or allows(token, "list", environment.id)
    ]


def _describe(environment: Environment, presence: Presence | None) -> Listed:
    if presence is not None and presence.registration_id != environment.registration_id:
        presence = None
    facts = environment.facts
    return Listed(
        name=environment.id,
        is_online=presence is not None,
        online_since=presence.since if presence else None,
        registered_at=environment.registered_at,
        principal=environment.principal,
        version=facts.version,
        platform=facts.platform,
        sandbox=facts.sandbox,
        labels=facts.labels,
        is_encrypted=not environment.is_plaintext,
        streams=presence.streams if presence else 0,
        bytes=presence.bytes if presence else 0,
    )

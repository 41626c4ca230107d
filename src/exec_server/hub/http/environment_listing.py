"""The environments as people want to see them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from exec_server.hub.access.refusals import RegistryRefusal
from exec_server.hub.access.tokens import allows
from exec_server.hub.cluster.node_messages import Census, Presence
from exec_server.hub.cluster.registrations import Registrations
from exec_server.hub.store import Store
from exec_server.hub.store.entities import AccessToken, Environment
from exec_server.hub.store.names import fits, is_name
from exec_server.limits import KIB, Limits

if TYPE_CHECKING:
    from multidict import MultiMapping

_COUNT = re.compile(r"[0-9]{1,9}")
# That a request may give one by one.
_NAMES = 100
# Of an answer, before its last environment, which may have a sixth of that; ours reads a MiB.
_BYTES = 512 * KIB


class ListedEnvironment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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


class ListingQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the environments: so many after that name, or of these names alone."""

    after: str = ""
    limit: int
    names: tuple[str, ...] = ()

    @property
    def query(self) -> str:
        """How a request says so."""
        values = [("after", self.after), ("limit", self.limit), *(("name", n) for n in self.names)]
        return urlencode(values)


class EnvironmentPage(msgspec.Struct, frozen=True, kw_only=True):
    turn: ListingQuery
    environments: list[ListedEnvironment]
    # Where to go on; None when these were the last.
    following: ListingQuery | None = None


def read_turn(query: MultiMapping[str], *, most: int, limits: Limits) -> ListingQuery:
    """What a request asks for, *most* at once. Raises RegistryRefusal."""
    names = tuple(query.getall("name", ()))
    after, limit = query.get("after", ""), query.get("limit", str(most))
    if not all(is_name(name, limits=limits) for name in (*names, *filter(None, [after]))):
        raise RegistryRefusal(
            400, "invalid_request", "`after` and `name` are names of environments"
        )
    if len(names) > _NAMES:
        raise RegistryRefusal(400, "invalid_request", f"`name` is given {_NAMES} times at the most")
    if not _COUNT.fullmatch(limit):
        raise RegistryRefusal(400, "invalid_request", "`limit` is a number")
    return ListingQuery(after=after, limit=min(max(int(limit), 1), most), names=names)


async def listed(
    store: Store, registrations: Registrations, token: AccessToken, turn: ListingQuery
) -> EnvironmentPage:
    """What the holder of *token* may see of what is asked for; at least one, when there is one."""
    patterns = _seen_by(token)
    if turn.names:
        patterns = tuple(name for name in turn.names if fits(name, patterns))
    found = await store.environments(patterns, after=turn.after, limit=turn.limit + 1)
    if not found:
        return EnvironmentPage(turn=turn, environments=[])
    wanted = Census(turn.after, found[-1].id, patterns)
    present = await registrations.census(wanted)
    environments = _fitting(_describe(each, present.get(each.id)) for each in found[: turn.limit])
    if len(environments) == len(found):
        return EnvironmentPage(turn=turn, environments=environments)
    following = msgspec.structs.replace(turn, after=environments[-1].name)
    return EnvironmentPage(turn=turn, environments=environments, following=following)


def _seen_by(token: AccessToken) -> tuple[str, ...]:
    if "observe" in token.rights:
        return ("*",)
    if token.is_once and token.bound_to is not None:
        return (token.bound_to,) if allows(token, "list", token.bound_to) else ()
    return token.patterns


def _fitting(environments: Iterable[ListedEnvironment]) -> list[ListedEnvironment]:
    """The first of them, as far as they fit into an answer."""
    found: list[ListedEnvironment] = []
    size = 0
    for each in environments:
        size += len(msgspec.json.encode(each))
        if found and size > _BYTES:
            break
        found.append(each)
    return found


def _describe(environment: Environment, presence: Presence | None) -> ListedEnvironment:
    if presence is not None and presence.registration_id != environment.registration_id:
        presence = None
    facts = environment.facts
    return ListedEnvironment(
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

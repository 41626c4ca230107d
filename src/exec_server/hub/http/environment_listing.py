"""The list of environments for people and their tools, page by page."""

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
# The most names in one request.
_NAMES = 100
# An answer ends with the environment that exceeds this size. That one may have a sixth of it, and
# our client reads answers of up to 1 MiB.
_BYTES = 512 * KIB


class ListedEnvironment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One environment: the facts that it reports, and its state."""

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
    """Which environments are asked for: *limit* after a name, and only *names* if given."""

    after: str = ""
    limit: int
    names: tuple[str, ...] = ()

    @property
    def query(self) -> str:
        """The query of such a request."""
        values = [("after", self.after), ("limit", self.limit), *(("name", n) for n in self.names)]
        return urlencode(values)


class EnvironmentPage(msgspec.Struct, frozen=True, kw_only=True):
    turn: ListingQuery
    environments: list[ListedEnvironment]
    # The query of the next page; None on the last one.
    following: ListingQuery | None = None


def read_turn(query: MultiMapping[str], *, most: int, limits: Limits) -> ListingQuery:
    """The query of a request, for at most *most* environments. Raises RegistryRefusal."""
    names = tuple(query.getall("name", ()))
    after, limit = query.get("after", ""), query.get("limit", str(most))
    if not all(is_name(name, limits=limits) for name in (*names, *filter(None, [after]))):
        raise RegistryRefusal(
            400, "invalid_request", "`after` and `name` are names of environments"
        )
    if len(names) > _NAMES:
        raise RegistryRefusal(400, "invalid_request", f"`name` may be given {_NAMES} times at most")
    if not _COUNT.fullmatch(limit):
        raise RegistryRefusal(400, "invalid_request", "`limit` is a number")
    return ListingQuery(after=after, limit=min(max(int(limit), 1), most), names=names)


async def listed(
    store: Store, registrations: Registrations, token: AccessToken, turn: ListingQuery
) -> EnvironmentPage:
    """A page of the environments that the holder of *token* may see."""
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
    """The first environments, as many as fit into an answer, but at least one."""
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

"""Whether one policy, or one plan, gives no more than another; and what two policies share.

This is pure. A doubt counts against the policy that is judged: it is taken for as wide as it may
be, and the floor for as narrow as it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import structs

from exec_server.sandbox.model import Access, Hide, Network, Plan, Policy, Rule
from exec_server.sandbox.policy import access, is_within

# What a path can be: closed, readable or writable.
_CLOSED, _READABLE, _WRITABLE = 0, 1, 2
_RANKS = {None: _CLOSED, Access.DENY: _CLOSED, Access.READ: _READABLE, Access.WRITE: _WRITABLE}
_DEEDS = {_READABLE: "to read", _WRITABLE: "to write to"}
# The modes of a `Hide` that closes a path; with others the path is empty, but may be read.
_CLOSED_MODES = (0, 0o111)
_OFFLINE, _PROXIED, _ONLINE = 0, 1, 2


def excess(asked: Policy, floor: Policy) -> str | None:
    """What *asked* gives beyond *floor*, as in "to write to /etc"; None if it is nothing."""
    if _network_rank(asked) > _network_rank(floor):
        return "a network"
    if not floor.is_managed:
        return None
    if not asked.is_managed:
        return "files without a sandbox"
    if floor.protects_metadata and not asked.protects_metadata:
        return "to change .git and other protected names"
    if not set(floor.globs) <= set(asked.globs) or (
        floor.globs and floor.glob_depth != asked.glob_depth
    ):
        return "files that a pattern of the floor denies"
    paths = {rule.path for rule in (*asked.rules, *floor.rules)}
    return _beyond(paths, lambda path: _at_most(asked, path), lambda path: _at_least(floor, path))


def plan_excess(asked: Plan, floor: Plan) -> str | None:
    """What *asked* shows beyond *floor*, now that all symbolic links are followed."""
    if not floor.policy.is_managed:
        return None
    if not asked.policy.is_managed:
        return "files without a sandbox"
    paths = {step.path for step in (*asked.steps, *floor.steps)} | {b"/"}
    return _beyond(paths, lambda path: _planned(asked, path), lambda path: _planned(floor, path))


def shared(one: Policy, other: Policy) -> Policy:
    """What both policies give. They must not both have globs."""
    if not (one.is_managed and other.is_managed):
        managed = one if one.is_managed else other
        return structs.replace(managed, **_shared_network(one, other))
    known: dict[bytes, list[Rule]] = {}
    for rule in (*one.rules, *other.rules):
        known.setdefault(rule.path, []).append(rule)
    rules: list[Rule] = []
    for path in sorted(known):
        given = min((access(one, path), access(other, path)), key=_narrowness)
        if given is None or (given is Access.DENY and not _is_below_any(path, rules)):
            continue
        only_existing = all(rule.only_existing for rule in known[path])
        rules.append(Rule(path, given, only_existing))
    globs = one if one.globs else other
    return structs.replace(
        one,
        **_shared_network(one, other),
        rules=tuple(rules),
        globs=globs.globs,
        glob_depth=globs.glob_depth,
        protects_metadata=one.protects_metadata or other.protects_metadata,
    )


def _beyond(
    paths: Iterable[bytes], asked: Callable[[bytes], int], floor: Callable[[bytes], int]
) -> str | None:
    """The first of *paths* where *asked* is more than *floor*.

    Between two rules nothing changes, so the paths of all rules are enough.
    """
    for path in sorted(paths):
        if (wanted := asked(path)) > floor(path):
            return f"{_DEEDS[wanted]} {path.decode('utf-8', 'replace')}"
    return None


def _at_most(policy: Policy, path: bytes) -> int:
    """The most that *policy* may give at *path*: some of its restrictions may not apply."""
    found = _CLOSED
    for rule in _above(policy, path):
        rank = _RANKS[rule.access]
        # A name that does not exist may be made, if the rule does not keep it missing.
        found = max(found, rank) if rule.only_existing else rank
    return found


def _at_least(policy: Policy, path: bytes) -> int:
    """The least that *policy* gives at *path*: what may be read below a denied path is closed."""
    found, is_denied = _CLOSED, False
    for rule in _above(policy, path):
        is_denied = rule.access is Access.DENY or (is_denied and rule.access is Access.READ)
        found = _CLOSED if is_denied else _RANKS[rule.access]
    return found


def _above(policy: Policy, path: bytes) -> list[Rule]:
    """The rules at or above *path*, the shallow ones first."""
    holding = (rule for rule in policy.rules if is_within(path, rule.path))
    return sorted(holding, key=lambda rule: len(rule.path))


def _planned(plan: Plan, path: bytes) -> int:
    found = _READABLE if plan.shows_host else _CLOSED
    for step in plan.steps:
        if not is_within(path, step.path):
            continue
        if isinstance(step, Hide):
            found = _CLOSED if step.mode in _CLOSED_MODES else _READABLE
        else:
            found = _WRITABLE if step.is_writable else _READABLE
    return found


def _narrowness(given: Access | None) -> int:
    order = (None, Access.DENY, Access.READ, Access.WRITE)
    return order.index(given)


def _is_below_any(path: bytes, rules: Iterable[Rule]) -> bool:
    return any(is_within(path, rule.path) for rule in rules)


def _network_rank(policy: Policy) -> int:
    if policy.is_proxied:
        return _PROXIED
    return _ONLINE if policy.network == "enabled" else _OFFLINE


def _shared_network(one: Policy, other: Policy) -> dict[str, Network | bool]:
    narrower = min(one, other, key=_network_rank)
    return {"network": narrower.network, "is_proxied": narrower.is_proxied}

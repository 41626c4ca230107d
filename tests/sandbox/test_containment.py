"""A policy is within another one only if that is proved."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from exec_server.sandbox.containment import excess, plan_excess, shared
from exec_server.sandbox.model import Access, Glob, Hide, Plan, Policy, Rule, Show
from exec_server.sandbox.policy import access
from tests.requirements import requirement

RANKS = {None: 0, Access.DENY: 0, Access.READ: 1, Access.WRITE: 2}
# Every path of two letters and up to three names, so that rules often meet.
PATHS = [b"/"] + [
    "".join(f"/{name}" for name in names).encode()
    for size in (1, 2, 3)
    for names in product("ab", repeat=size)
]
NO_DENIALS = (Access.READ, Access.WRITE)


def policies(accesses=tuple(Access)):
    rules = st.dictionaries(st.sampled_from(PATHS), st.sampled_from(accesses), max_size=5)
    return st.builds(
        lambda found, network, is_proxied: Policy(
            True,
            network,
            tuple(sorted(Rule(path, given) for path, given in found.items())),
            is_proxied=is_proxied,
        ),
        rules,
        st.sampled_from(["restricted", "enabled"]),
        st.booleans(),
    )


def closed_below(policy: Policy, path: bytes) -> bool:
    """True if a rule to read is below one that denies: a plan keeps it closed."""
    above = sorted(
        (r for r in policy.rules if access(Policy(True, "enabled", (r,)), path) is not None),
        key=lambda r: len(r.path),
    )
    is_denied = False
    for rule in above:
        is_denied = rule.access is Access.DENY or (is_denied and rule.access is Access.READ)
    return is_denied


@requirement("floors/compare:proved")
@given(policies(), policies())
def test_a_policy_that_passes_gives_no_path_more_than_the_floor(asked, floor):
    if excess(asked, floor) is not None:
        return
    for path in PATHS:
        least = 0 if closed_below(floor, path) else RANKS[access(floor, path)]
        assert RANKS[access(asked, path)] <= least
    assert asked.network == "restricted" or asked.is_proxied or floor.network == "enabled"


@requirement("floors/compare:narrower")
@given(policies(NO_DENIALS), policies(NO_DENIALS))
def test_what_two_policies_share_is_within_both_and_is_all_that_both_give(one, other):
    both = shared(one, other)
    assert excess(both, one) is None
    assert excess(both, other) is None
    for path in PATHS:
        least = min(RANKS[access(one, path)], RANKS[access(other, path)])
        assert RANKS[access(both, path)] == least


@given(policies(NO_DENIALS))
def test_a_policy_is_within_itself_and_within_no_policy(policy):
    assert excess(policy, policy) is None
    assert excess(policy, Policy(False, "enabled")) is None


@requirement("floors/compare:doubt")
@pytest.mark.parametrize(
    ("asked", "floor"),
    [
        # No sandbox at all.
        (Policy(False, "restricted"), Policy(True, "restricted", (Rule(b"/", Access.WRITE),))),
        # A restriction that does not hold while its path is missing.
        (
            Policy(
                True, "restricted", (Rule(b"/a", Access.WRITE), Rule(b"/a/b", Access.READ, True))
            ),
            Policy(True, "restricted", (Rule(b"/a", Access.WRITE), Rule(b"/a/b", Access.READ))),
        ),
        # Readable below a denied path, where the floor's own plan stays closed.
        (
            Policy(True, "restricted", (Rule(b"/a/b", Access.READ),)),
            Policy(True, "restricted", (Rule(b"/a", Access.DENY), Rule(b"/a/b", Access.READ))),
        ),
        # Patterns of the floor that are not asked for, or not as deep.
        (
            Policy(True, "restricted", (Rule(b"/", Access.READ),)),
            Policy(True, "restricted", (Rule(b"/", Access.READ),), (Glob("/**/*.key"),)),
        ),
        (
            Policy(True, "restricted", (Rule(b"/", Access.READ),), (Glob("/**/*.key"),), 2),
            Policy(True, "restricted", (Rule(b"/", Access.READ),), (Glob("/**/*.key"),)),
        ),
        # Protected names.
        (
            Policy(True, "restricted", (Rule(b"/a", Access.WRITE),), protects_metadata=False),
            Policy(True, "restricted", (Rule(b"/a", Access.WRITE),)),
        ),
        # A network, also behind a proxy.
        (Policy(True, "enabled"), Policy(True, "restricted")),
        (Policy(True, "restricted", is_proxied=True), Policy(True, "restricted")),
        (Policy(True, "enabled"), Policy(True, "enabled", is_proxied=True)),
    ],
)
def test_what_cannot_be_proved_is_too_much(asked, floor):
    assert excess(asked, floor) is not None


def test_a_name_that_begins_alike_is_another_directory():
    floor = Policy(True, "restricted", (Rule(b"/srv/app", Access.WRITE),))
    assert excess(structs.replace(floor, rules=(Rule(b"/srv/app2", Access.WRITE),)), floor)
    assert excess(structs.replace(floor, rules=(Rule(b"/srv/app/x", Access.WRITE),)), floor) is None


def test_plans_are_compared_where_their_paths_lead():
    policy = Policy(True, "restricted")
    floor = Plan(policy, True, (Show(b"/a", is_writable=True), Hide(b"/a/.git", True, 0o555)))
    assert plan_excess(floor, floor) is None
    assert plan_excess(Plan(policy, True), floor) is None
    assert plan_excess(Plan(policy, True, (Show(b"/b", is_writable=True),)), floor)
    assert plan_excess(Plan(policy, True, (Show(b"/a", is_writable=True),)), floor)
    assert plan_excess(Plan(policy, True), Plan(policy, True, (Hide(b"/c", True, 0),)))
    assert plan_excess(Plan(policy, True), Plan(policy, False))

"""The simulation of the routing layer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.capacity import Demand
from bench.routing import Registry, Service, deploy_all, lose_one, moves, plan, table
from tests.requirements import requirement

QUICK = Service(node=1e-4, postgres=1e-5, postgres_cores=2, owner=1e-5)


def registry(sockets, service=QUICK, *, balancer="random", most=20_000, seed=1):
    return Registry(sockets, service, balancer=balancer, most=most, rng=random.Random(seed))


@requirement("hub/scaling:moves")
@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=6),
    st.sampled_from(["random", "fewest"]),
    st.integers(0, 99),
)
def test_nobody_is_lost_by_a_deploy(sockets, balancer, seed):
    nodes = registry(sockets, balancer=balancer, seed=seed)
    moved = deploy_all(nodes, restart_seconds=1.0)
    assert sum(nodes.sockets) == sum(sockets)
    assert moved.moves >= sum(sockets)
    assert moved.peak >= moved.fullest >= moved.emptiest >= 0


@requirement("hub/scaling:moves")
def test_the_same_seed_gives_the_same_figures():
    assert lose_one(registry([100] * 3)) == lose_one(registry([100] * 3))
    assert lose_one(registry([100] * 3)) != lose_one(registry([100] * 3, seed=2))


@requirement("hub/scaling:moves")
@pytest.mark.parametrize(
    ("service", "seconds"),
    [
        (QUICK._replace(node=0.1), 500 * 0.1),
        (QUICK._replace(postgres=0.1), 1000 * 0.1 / 2),
        (QUICK._replace(owner=0.1), 1000 * 0.1),
    ],
    ids=["two nodes", "PostgreSQL with two cores", "owner records"],
)
def test_executors_wait_in_line_for_what_is_slowest(service, seconds):
    moved = lose_one(registry([1000, 0, 0], service, balancer="fewest"))
    assert moved.longest == pytest.approx(seconds, abs=1.1)


@requirement("hub/scaling:moves")
def test_executors_of_a_lost_node_are_back_soon_when_nothing_is_slow():
    moved = lose_one(registry([200, 200, 200]))
    assert 0.5 <= moved.median <= moved.longest < 1.2
    assert moved.moves == 200


@requirement("hub/scaling:moves")
def test_a_full_node_makes_executors_try_again_later():
    # Of four places two are on the other node, which is full before they are all served.
    nodes = registry([3, 1, 0], most=2)
    moved = lose_one(nodes)
    assert nodes.sockets == [0, 2, 2]
    assert moved.moves == 3


@requirement("hub/scaling:moves")
def test_a_balancer_by_chance_piles_sockets_up_during_a_deploy():
    by_chance = deploy_all(registry([500] * 10), restart_seconds=1.0)
    by_count = deploy_all(registry([500] * 10, balancer="fewest"), restart_seconds=1.0)
    assert by_chance.peak > 2 * 500 > 1.2 * by_count.peak
    assert by_chance.moves > 1.5 * by_count.moves


@requirement("hub/scaling:moves")
def test_all_of_it_is_printed():
    assert "what is used up first" in plan(Demand(10_000))
    assert table().count("\n") == 6
    assert "all are deployed, balancer fewest" in moves(300, 3, seed=1)

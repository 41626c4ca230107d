"""The measurements of several nodes, small."""

from __future__ import annotations

import pytest

from bench import cluster, nats_load, store_load
from tests.requirements import requirement
from tests.support.nats import nats_server
from tests.support.postgres import binaries

pytestmark = pytest.mark.one_loop


@pytest.fixture(autouse=True)
def programs():
    nats_server()
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed")


@requirement("hub/scaling:measured")
async def test_executors_come_back_from_a_killed_node():
    said = await cluster.loss(3)
    assert said.startswith("3 executors of a killed node")
    assert "served after" in said and "nodes " in said


@requirement("hub/scaling:measured")
async def test_the_relay_between_two_nodes_is_measured():
    said = await cluster.relay(megabytes=1, rounds=1, servers=1)
    assert "two nodes, echo" in said and "of NATS per GB" in said


@requirement("hub/scaling:measured")
async def test_subscriptions_and_owner_records_are_measured():
    assert "1200 subscriptions" in await nats_load.subscriptions(servers=1, nodes=2, count=1200)
    said = await nats_load.owners(servers=1, count=6)
    assert "6 owner records claimed" in said and "6 owner records released" in said
    assert "us of the node" in await nats_load.beats(3)


@requirement("hub/scaling:measured")
async def test_the_database_of_many_environments_is_measured():
    said = await store_load.run(environments=1000, events=500, tokens=20)
    assert "1000 environments" in said and "500 events" in said

"""How large a registry has to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.capacity import Demand, Parts, Rules, bounds, crossing_share, lay_out, with_nodes
from bench.measured import MEASURED
from tests.requirements import requirement


@requirement("hub/scaling:plan")
@given(st.integers(1, 2_000_000), st.booleans())
def test_a_layout_keeps_the_rules_and_one_node_less_would_not(environments, has_node_urls):
    demand, rules = Demand(environments, has_node_urls=has_node_urls), Rules()
    layout = lay_out(demand, MEASURED, rules)
    assert layout.sockets_per_node <= rules.sockets_per_node
    assert layout.node_cores <= rules.share_of_core
    if layout.nodes > rules.least_nodes:
        fewer = with_nodes(layout.nodes - 1, demand, MEASURED, rules)
        assert (
            fewer.sockets_per_node > rules.sockets_per_node
            or fewer.node_cores > rules.share_of_core
        )


@requirement("hub/scaling:plan")
def test_nothing_crosses_nats_when_clients_are_sent_to_the_right_node():
    there = lay_out(Demand(100_000), MEASURED, Rules())
    anywhere = lay_out(Demand(100_000, has_node_urls=False), MEASURED, Rules())
    assert there.crossing == 0
    assert anywhere.crossing == crossing_share(anywhere.nodes) > 0.8
    assert anywhere.nats_cores > there.nats_cores


@requirement("hub/scaling:plan")
def test_nodes_hear_of_every_other_and_of_who_registers_again():
    nobody = Demand(86400, registrations_a_day=0)
    assert with_nodes(10, nobody, MEASURED, Rules()).news == 10 * 9
    one_a_second = nobody._replace(registrations_a_day=1)
    assert with_nodes(10, one_a_second, MEASURED, Rules()).news == (10 + 3) * 9


@requirement("hub/scaling:plan")
def test_it_is_said_when_no_number_of_nodes_is_enough():
    deaf = MEASURED._replace(beat=MEASURED.beat._replace(node=1.0))
    with pytest.raises(ValueError, match="receive more beats"):
        lay_out(Demand(1_000_000), deaf, Rules(sockets_per_node=2_000_000, share_of_core=0.01))


@requirement("hub/scaling:plan")
def test_what_ends_first_comes_first():
    found = bounds(Demand(1_000_000), MEASURED, Rules(), Parts(nats_memory=MEASURED.nats_bytes))
    assert found[0].what == "memory of a NATS server"
    assert [each.environments for each in found] == sorted(each.environments for each in found)

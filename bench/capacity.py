"""How large a registry has to be, computed from the measured costs of its parts.

This module only computes. `MEASURED` holds the costs that `bench/cluster.py`, `bench/nats_load.py`
and `bench/store_load.py` printed (docs/scaling.md says where and how). `Demand` is the load.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_DAY = 24 * 3600.0
_GB = 1e9
_AUDIT_DAYS = 90
# How often each takeover is published to all nodes.
TOLD = 3


class Cost(NamedTuple):
    """Processor seconds of one operation, at each of the three parts."""

    node: float
    nats: float = 0.0
    postgres: float = 0.0

    def __add__(self, other: object) -> Cost:
        assert isinstance(other, Cost)
        return Cost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, count: float) -> Cost:
        return Cost(*(count * seconds for seconds in self))


class Costs(NamedTuple):
    """The measured costs."""

    registration: Cost
    # An executor's socket with its subscription, its owner record and its events.
    socket: Cost
    # A connect of a harness with its socket, at the executor's node or at another one.
    connect: Cost
    connect_across: Cost
    # A gigabyte that is relayed by one node, or by two nodes.
    one_node: Cost
    two_nodes: Cost
    # A beat or a takeover of one node, at another node.
    beat: Cost
    # An idle executor, every second.
    idle: Cost
    node_bytes: float
    executor_bytes: float
    nats_bytes: float
    # The subscription and the owner record of an executor, in the memory of each server.
    subscription_bytes: float
    owner_bytes: float
    owner_disk_bytes: float
    environment_bytes: float
    event_bytes: float
    # Calls a second that the leader of the bucket with the owner records has handled.
    owner_writes: float
    owner_reads: float
    # Processor seconds of all servers together, until each knows of a new subscription.
    subscribing_seconds: float


class Demand(NamedTuple):
    """The load: what environments do on average."""

    environments: int
    # The URL of an executor expires after a day.
    registrations_a_day: float = 1.0
    # Sockets that are lost and opened again, in addition.
    returns_a_day: float = 2.0
    connects_a_day: float = 20.0
    # The share of environments with a stream at any moment, and its bytes a second.
    streaming: float = 0.02
    stream_bytes: float = 100e3
    # True if clients connect to the node of their executor (`--node-url`).
    has_node_urls: bool = True

    @property
    def streams(self) -> float:
        return self.environments * self.streaming

    @property
    def bytes(self) -> float:
        """Bytes a second of all streams."""
        return self.streams * self.stream_bytes

    @property
    def events_a_day(self) -> float:
        """Audit events: "registered", "executor online" and "offline", and three for a connect."""
        sockets = self.registrations_a_day + self.returns_a_day
        each = self.registrations_a_day + 2 * sockets + 3 * self.connects_a_day
        return self.environments * each


class Rules(NamedTuple):
    """How much of a part may be in use in normal operation."""

    sockets_per_node: int = 10_000
    share_of_core: float = 0.5
    # A registry of one node has no other node that could take over.
    least_nodes: int = 3
    nats_servers: int = 3


class Layout(NamedTuple):
    nodes: int
    sockets_per_node: float
    node_memory: float
    # Busy cores of one node, of all NATS servers and of PostgreSQL.
    node_cores: float
    nats_cores: float
    postgres_cores: float
    nats_memory: float
    owner_disk: float
    postgres_disk: float
    crossing: float
    # Bytes a second: the demand, and the most that the permitted share of all cores can relay.
    relayed: float
    carried: float
    # Of all nodes together, a second: beats and takeovers received, and owner records written.
    news: float
    owner_writes: float


def lay_out(demand: Demand, costs: Costs, rules: Rules) -> Layout:
    """The smallest layout that keeps the rules; ValueError if there is none.

    Each further node also costs the others something, because they receive its beats.
    """
    nodes = rules.least_nodes
    while True:
        layout = with_nodes(nodes, demand, costs, rules)
        is_roomy = layout.sockets_per_node <= rules.sockets_per_node
        if is_roomy and layout.node_cores <= rules.share_of_core:
            return layout
        by_sockets = nodes * layout.sockets_per_node / rules.sockets_per_node
        by_cores = nodes * layout.node_cores / rules.share_of_core
        wanted = max(nodes + 1, math.ceil(min(max(by_sockets, by_cores), 2 * nodes)))
        if with_nodes(wanted, demand, costs, rules).node_cores > layout.node_cores and is_roomy:
            raise ValueError("more nodes would only receive more beats of one another")
        nodes = wanted


def with_nodes(nodes: int, demand: Demand, costs: Costs, rules: Rules) -> Layout:
    crossing = 0.0 if demand.has_node_urls else crossing_share(nodes)
    news = heard(nodes, demand)
    busy = _busy(demand, costs, crossing) + costs.beat.times(news)
    sockets = (demand.environments + demand.streams) / nodes
    environments = demand.environments
    each = costs.subscription_bytes + costs.owner_bytes
    events = demand.events_a_day * _AUDIT_DAYS
    moves = demand.registrations_a_day + demand.returns_a_day
    return Layout(
        nodes=nodes,
        sockets_per_node=sockets,
        node_memory=costs.node_bytes + sockets * costs.executor_bytes,
        node_cores=busy.node / nodes,
        nats_cores=busy.nats,
        postgres_cores=busy.postgres,
        nats_memory=costs.nats_bytes + environments * each,
        owner_disk=environments * costs.owner_disk_bytes,
        postgres_disk=environments * costs.environment_bytes + events * costs.event_bytes,
        crossing=crossing,
        relayed=demand.bytes,
        carried=_carried(nodes, costs, rules, crossing),
        news=news,
        # One write when a socket leaves and one when it comes back.
        owner_writes=2 * moves * environments / _DAY,
    )


def heard(nodes: int, demand: Demand) -> float:
    """Beats and takeovers that all nodes together receive in a second."""
    again = demand.registrations_a_day * demand.environments / _DAY
    return (nodes + TOLD * again) * (nodes - 1)


def crossing_share(nodes: int) -> float:
    """The share of streams between two nodes, if both ends choose their nodes at random."""
    return 1 - 1 / nodes


def _busy(demand: Demand, costs: Costs, crossing: float) -> Cost:
    """Processors that are busy on average, for all operations together."""
    a_second = demand.environments / _DAY
    sockets = demand.registrations_a_day + demand.returns_a_day
    connects = demand.connects_a_day * a_second
    gigabytes = demand.bytes / _GB
    return (
        costs.idle.times(demand.environments)
        + costs.registration.times(demand.registrations_a_day * a_second)
        + costs.socket.times(sockets * a_second)
        + costs.connect.times(connects * (1 - crossing))
        + costs.connect_across.times(connects * crossing)
        + costs.one_node.times(gigabytes * (1 - crossing))
        + costs.two_nodes.times(gigabytes * crossing)
    )


def _carried(nodes: int, costs: Costs, rules: Rules, crossing: float) -> float:
    gigabyte = costs.one_node.node * (1 - crossing) + costs.two_nodes.node * crossing
    return nodes * rules.share_of_core * _GB / gigabyte


class Bound(NamedTuple):
    """The number of environments at which one resource is used up."""

    what: str
    environments: float


class Parts(NamedTuple):
    """The resources of the shared parts of a registry."""

    nats_memory: float = 8e9
    nats_cores: float = 4.0
    postgres_cores: float = 8.0
    postgres_disk: float = 2e12
    # A deploy of all nodes may take this long.
    deploy_seconds: float = 3600.0


def bounds(demand: Demand, costs: Costs, rules: Rules, parts: Parts) -> list[Bound]:
    """The bounds in order, the lowest first."""
    one = lay_out(demand, costs, rules)
    count = demand.environments
    found = [
        Bound("memory of a NATS server", count * parts.nats_memory / one.nats_memory),
        Bound("processors of NATS", count * parts.nats_cores / one.nats_cores),
        Bound("processors of PostgreSQL", count * parts.postgres_cores / one.postgres_cores),
        Bound("disk of PostgreSQL (events)", count * parts.postgres_disk / one.postgres_disk),
        Bound(
            "owner records while all nodes are deployed",
            parts.deploy_seconds * costs.owner_writes / 2,
        ),
    ]
    found += [Bound("beats and takeovers of other nodes", _deaf_at(demand, costs, rules))]
    return sorted(found, key=lambda bound: bound.environments)


def _deaf_at(demand: Demand, costs: Costs, rules: Rules) -> float:
    """The number of environments whose nodes are busy with the beats of each other alone."""
    environments = float(rules.sockets_per_node)
    while True:
        larger = demand._replace(environments=int(environments))
        nodes = math.ceil(environments / rules.sockets_per_node)
        if heard(nodes, larger) / nodes * costs.beat.node > rules.share_of_core:
            return environments
        environments *= 1.1

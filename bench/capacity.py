"""How large a registry has to be, from what its parts were measured to cost.

Everything here is arithmetic: `MEASURED` is what `bench/cluster.py`, `bench/nats_load.py` and
`bench/store_load.py` printed (docs/scaling.md says where and how), `Demand` what is asked for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_DAY = 24 * 3600.0
_GB = 1e9
_AUDIT_DAYS = 90
# How often all nodes are told that an executor has registered again, or come from a lost node.
TOLD = 3


class Cost(NamedTuple):
    """Seconds of a processor that one of something takes."""

    node: float
    nats: float = 0.0
    postgres: float = 0.0

    def __add__(self, other: object) -> Cost:
        assert isinstance(other, Cost)
        return Cost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, count: float) -> Cost:
        return Cost(*(count * seconds for seconds in self))


class Costs(NamedTuple):
    """What was measured."""

    registration: Cost
    # An executor's socket with its seat, its fence value and its events.
    socket: Cost
    # Of a harness, with its socket: at the executor's node, or at another one.
    connect: Cost
    connect_across: Cost
    # Of a whole gigabyte.
    one_node: Cost
    two_nodes: Cost
    # Of one node's beat, or other news, at another.
    beat: Cost
    # An idle executor, every second.
    idle: Cost
    node_bytes: float
    executor_bytes: float
    nats_bytes: float
    # A seat's subscription and fence value, in the memory of each server.
    subscription_bytes: float
    fence_bytes: float
    fence_disk_bytes: float
    environment_bytes: float
    event_bytes: float
    # What the leader of the fence's bucket was seen to take.
    fence_writes: float
    fence_reads: float
    # Of all servers together, until each knows of a new subscription.
    subscribing_seconds: float


class Demand(NamedTuple):
    """What environments do, on average."""

    environments: int
    # Their URLs end after a day.
    registrations_a_day: float = 1.0
    # Sockets that are lost and come back, beside that.
    returns_a_day: float = 2.0
    connects_a_day: float = 20.0
    # How many have a stream at a time, and what it carries.
    streaming: float = 0.02
    stream_bytes: float = 100e3
    # Whether clients are sent to their executor's node (`--node-url`).
    has_node_urls: bool = True

    @property
    def streams(self) -> float:
        return self.environments * self.streaming

    @property
    def bytes(self) -> float:
        """Of all streams, a second."""
        return self.streams * self.stream_bytes

    @property
    def events_a_day(self) -> float:
        """Registered; online and offline; and connect with online and offline of the harness."""
        sockets = self.registrations_a_day + self.returns_a_day
        each = self.registrations_a_day + 2 * sockets + 3 * self.connects_a_day
        return self.environments * each


class Rules(NamedTuple):
    """How full things may be when all is well."""

    sockets_per_node: int = 10_000
    share_of_core: float = 0.5
    # A registry of one node has nobody to take over.
    least_nodes: int = 3
    nats_servers: int = 3


class Layout(NamedTuple):
    nodes: int
    sockets_per_node: float
    node_memory: float
    # Cores that are busy: of one node, of all NATS servers, of PostgreSQL.
    node_cores: float
    nats_cores: float
    postgres_cores: float
    nats_memory: float
    fence_disk: float
    postgres_disk: float
    crossing: float
    # Bytes a second: what is asked for, and what the share of all cores carries at most.
    relayed: float
    carried: float
    # A second, of all nodes together: news that they hear, and values that they write.
    news: float
    fence_writes: float


def lay_out(demand: Demand, costs: Costs, rules: Rules) -> Layout:
    """The fewest nodes that keep the rules. More nodes hear more of one another, which counts.

    ValueError when there is no such number.
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
            raise ValueError("more nodes would only hear more of one another")
        nodes = wanted


def with_nodes(nodes: int, demand: Demand, costs: Costs, rules: Rules) -> Layout:
    crossing = 0.0 if demand.has_node_urls else crossing_share(nodes)
    news = heard(nodes, demand)
    busy = _busy(demand, costs, crossing) + costs.beat.times(news)
    sockets = (demand.environments + demand.streams) / nodes
    environments = demand.environments
    each = costs.subscription_bytes + costs.fence_bytes
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
        fence_disk=environments * costs.fence_disk_bytes,
        postgres_disk=environments * costs.environment_bytes + events * costs.event_bytes,
        crossing=crossing,
        relayed=demand.bytes,
        carried=_carried(nodes, costs, rules, crossing),
        news=news,
        # Each time a seat is left and taken.
        fence_writes=2 * moves * environments / _DAY,
    )


def heard(nodes: int, demand: Demand) -> float:
    """What nodes hear from one another, in a second: beats, and who has registered again."""
    again = demand.registrations_a_day * demand.environments / _DAY
    return (nodes + TOLD * again) * (nodes - 1)


def crossing_share(nodes: int) -> float:
    """Of streams whose ends came to nodes by chance."""
    return 1 - 1 / nodes


def _busy(demand: Demand, costs: Costs, crossing: float) -> Cost:
    """Processors that are busy all the time, of everything together."""
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
    """How many environments there may be before something is used up."""

    what: str
    environments: float


class Parts(NamedTuple):
    """What the shared parts of a registry have."""

    nats_memory: float = 8e9
    nats_cores: float = 4.0
    postgres_cores: float = 8.0
    postgres_disk: float = 2e12
    # A deploy of all nodes has to be done after this.
    deploy_seconds: float = 3600.0


def bounds(demand: Demand, costs: Costs, rules: Rules, parts: Parts) -> list[Bound]:
    """What ends first, first; for parts that grow with the number of environments."""
    one = lay_out(demand, costs, rules)
    count = demand.environments
    found = [
        Bound("memory of a NATS server", count * parts.nats_memory / one.nats_memory),
        Bound("processors of NATS", count * parts.nats_cores / one.nats_cores),
        Bound("processors of PostgreSQL", count * parts.postgres_cores / one.postgres_cores),
        Bound("disk of PostgreSQL (events)", count * parts.postgres_disk / one.postgres_disk),
        Bound(
            "fence writes while all nodes are deployed",
            parts.deploy_seconds * costs.fence_writes / 2,
        ),
    ]
    found += [Bound("news of other nodes", _deaf_at(demand, costs, rules))]
    return sorted(found, key=lambda bound: bound.environments)


def _deaf_at(demand: Demand, costs: Costs, rules: Rules) -> float:
    """So many environments have so many nodes that each does nothing but listen to the others."""
    environments = float(rules.sockets_per_node)
    while True:
        larger = demand._replace(environments=int(environments))
        nodes = math.ceil(environments / rules.sockets_per_node)
        if heard(nodes, larger) / nodes * costs.beat.node > rules.share_of_core:
            return environments
        environments *= 1.1

"""A simulation of a registry's routing layer, with the measured costs of its parts.

    python bench/routing.py plan [--environments 1000000] [--no-node-urls]
    python bench/routing.py table
    python bench/routing.py moves [--environments 1000000] [--nodes 102] [--seed 1]

`plan` and `table` show what a number of environments needs, and which resource is used up first
(bench/capacity.py). `moves` simulates the loss of a node and a deploy of all nodes. Executors whose
node is gone dial again as real ones do, are spread by a balancer, and wait in a queue for a node,
for PostgreSQL and for the owner records.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.capacity import (
    TOLD,
    Costs,
    Demand,
    Layout,
    Parts,
    Rules,
    bounds,
    crossing_share,
    lay_out,
    with_nodes,
)
from bench.measured import MEASURED

# Codex's pauses before it dials again: one second, doubled up to thirty, times 0.5 to 1.
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_SIZES = (40, 1_000, 10_000, 100_000, 1_000_000)


class Service(NamedTuple):
    """Seconds that one executor's socket takes of each part, and the cores of PostgreSQL."""

    node: float
    postgres: float
    postgres_cores: int
    # One owner record. One is written when a socket leaves and one when it comes.
    owner: float


class Moved(NamedTuple):
    """The result of a loss or a deploy."""

    seconds: float
    # How long executors were offline: the maximum and the median.
    longest: float
    median: float
    moves: int
    # Sockets of the fullest node meanwhile, and of the fullest and emptiest node afterwards.
    peak: int
    fullest: int
    emptiest: int


class Registry:
    """Nodes with sockets, and queues in which executors wait. Time is simulated."""

    def __init__(
        self,
        sockets: Sequence[int],
        service: Service,
        *,
        balancer: str,
        most: int = 20_000,
        rng: random.Random,
    ) -> None:
        self.sockets = list(sockets)
        self._service = service
        self._choose = {"random": self._any, "fewest": self._emptiest}[balancer]
        self._most = most
        self._rng = rng
        self._living = list(range(len(sockets)))
        self._nodes_free_at = [0.0] * len(sockets)
        self._postgres_free_at = [0.0] * service.postgres_cores
        self._owners_free_at = 0.0
        self.peak = max(sockets)

    def lose(self, node: int, now: float, *, says_goodbye: bool) -> list[float]:
        """Stop *node*, and return the times at which each of its executors is served again."""
        count, self.sockets[node] = self.sockets[node], 0
        self._living.remove(node)
        if says_goodbye:
            self._owners_free_at = max(self._owners_free_at, now) + count * self._service.owner
        waiting = [(now + self._jitter(_PAUSE), _PAUSE) for _ in range(count)]
        heapq.heapify(waiting)
        served_at = []
        while waiting:
            at, pause = heapq.heappop(waiting)
            chosen = self._choose()
            if self.sockets[chosen] >= self._most:
                pause = min(2 * pause, _LONGEST_PAUSE)
                heapq.heappush(waiting, (at + self._jitter(pause), pause))
                continue
            served_at.append(self._serve(chosen, at))
        return served_at

    def restart(self, node: int, now: float) -> None:
        self._living.append(node)
        self._nodes_free_at[node] = now

    def _serve(self, node: int, at: float) -> float:
        self.sockets[node] += 1
        self.peak = max(self.peak, self.sockets[node])
        at = self._nodes_free_at[node] = max(at, self._nodes_free_at[node]) + self._service.node
        first = heapq.heappop(self._postgres_free_at)
        at = max(at, first) + self._service.postgres
        heapq.heappush(self._postgres_free_at, at)
        self._owners_free_at = max(at, self._owners_free_at) + self._service.owner
        return self._owners_free_at

    def _jitter(self, pause: float) -> float:
        return pause * self._rng.uniform(0.5, 1.0)

    def _any(self) -> int:
        return self._rng.choice(self._living)

    def _emptiest(self) -> int:
        return min(self._living, key=self.sockets.__getitem__)


def lose_one(registry: Registry) -> Moved:
    """Kill a node; no other one replaces it."""
    times = registry.lose(0, 0.0, says_goodbye=False)
    return _moved(registry, max(times), times, sockets=registry.sockets[1:])


def deploy_all(registry: Registry, *, restart_seconds: float) -> Moved:
    """Drain and restart one node after the other.

    The next one follows when the executors of the last one are served again.
    """
    now, away = 0.0, []
    for node in range(len(registry.sockets)):
        served_at = registry.lose(node, now, says_goodbye=True)
        away += [at - now for at in served_at]
        now = max([now, *served_at]) + restart_seconds
        registry.restart(node, now)
    return _moved(registry, now, away, sockets=registry.sockets)


def _moved(registry: Registry, now: float, away: list[float], *, sockets: list[int]) -> Moved:
    ordered = sorted(away) or [0.0]
    return Moved(
        seconds=now,
        longest=ordered[-1],
        median=ordered[len(ordered) // 2],
        moves=len(away),
        peak=registry.peak,
        fullest=max(sockets),
        emptiest=min(sockets),
    )


def service_of(costs: Costs, *, share_left: float, postgres_cores: int) -> Service:
    """The times of one socket, if *share_left* of each node is free for new sockets."""
    return Service(
        node=costs.socket.node / share_left,
        postgres=costs.socket.postgres,
        postgres_cores=postgres_cores,
        owner=1 / costs.owner_writes,
    )


# The printed texts.


def plan(demand: Demand) -> str:
    rules = Rules()
    layout = lay_out(demand, MEASURED, rules)
    lines = [
        f"{demand.environments} environments, {demand.streams:.0f} streams, "
        f"{demand.bytes / 1e6:.0f} MB/s",
        f"{layout.nodes} nodes: {layout.sockets_per_node:.0f} sockets, "
        f"{layout.node_memory / 1e6:.0f} MB, {layout.node_cores:.2f} cores each",
        f"NATS: {layout.nats_memory / 1e9:.2f} GB of each server, {layout.owner_disk / 1e9:.1f} GB "
        f"of disk, {layout.nats_cores:.2f} cores in all; {layout.owner_writes:.0f} owner "
        f"records/s, {layout.news:.0f} beats and takeovers/s",
        f"PostgreSQL: {layout.postgres_cores:.2f} cores, {layout.postgres_disk / 1e9:.1f} GB with "
        f"{demand.events_a_day / 1e6:.1f} million events a day",
        f"streams that cross NATS: {layout.crossing:.0%}",
        "what is used up first, if nothing is added but nodes:",
    ]
    ends = bounds(demand, MEASURED, rules, Parts())
    return "\n".join([*lines, *(f"  {end.environments:>12,.0f}  {end.what}" for end in ends)])


def table() -> str:
    """The capacity planning table of docs/scaling.md."""
    head = (
        "environments",
        "nodes",
        "of each: sockets",
        "memory",
        "cores",
        "NATS: memory of each",
        "cores in all",
        "PostgreSQL: cores",
        "disk, 90 days",
        "MB/s asked for, of",
    )
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for environments in _SIZES:
        demand = Demand(environments)
        # The smallest registry is one node with a SQLite file.
        rules = Rules(least_nodes=1 if environments <= _SIZES[0] else 3)
        layout = lay_out(demand, MEASURED, rules)
        lines.append(f"| {' | '.join(_cells(demand, layout))} |")
    return "\n".join(lines)


def _cells(demand: Demand, layout: Layout) -> list[str]:
    is_alone = layout.nodes == 1
    return [
        f"{demand.environments:,}",
        str(layout.nodes),
        f"{layout.sockets_per_node:,.0f}",
        _size(layout.node_memory),
        _cores(layout.node_cores),
        "none" if is_alone else _size(layout.nats_memory),
        "" if is_alone else _cores(layout.nats_cores),
        "SQLite" if is_alone else _cores(layout.postgres_cores),
        _size(layout.postgres_disk),
        f"{layout.relayed / 1e6:,.0f} of {layout.carried / 1e6:,.0f}",
    ]


def _cores(count: float) -> str:
    return f"{count:.2f}" if count >= 0.01 else "< 0.01"


def _size(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e6:.0f} MB"


def moves(environments: int, nodes: int, seed: int) -> str:
    demand = Demand(environments)
    layout = with_nodes(nodes, demand, MEASURED, Rules())
    lines = [f"{environments} environments on {nodes} nodes, {layout.node_cores:.2f} busy each"]
    service = service_of(MEASURED, share_left=1 - layout.node_cores, postgres_cores=8)
    spread = [environments // nodes] * nodes
    happenings: dict[str, Callable[[Registry], Moved]] = {
        "a node is lost": lose_one,
        "all are deployed": lambda registry: deploy_all(registry, restart_seconds=5.0),
    }
    for what, happen in happenings.items():
        for balancer in ("random", "fewest"):
            registry = Registry(spread, service, balancer=balancer, rng=random.Random(seed))
            moved = happen(registry)
            lines.append(
                f"{what}, balancer {balancer}: {moved.seconds:.0f} s, {moved.moves} moves; away "
                f"{moved.median:.1f} s (median), {moved.longest:.1f} s (longest); most sockets of "
                f"a node {moved.peak}, in the end {moved.emptiest} to {moved.fullest}"
            )
    lines.append(f"every node receives {TOLD * spread[0]} takeovers when another one is lost")
    lines.append(nats_loss(environments, nodes))
    lines.append(f"without --node-url {crossing_share(nodes):.1%} of the streams cross NATS")
    return "\n".join(lines)


def nats_loss(environments: int, nodes: int, servers: int = 3) -> str:
    """What happens when a NATS server is lost.

    Its nodes subscribe again at other servers and check the owner record of each executor.
    """
    moved = environments / servers
    subscribing = moved * MEASURED.subscribing_seconds
    looking = moved / MEASURED.owner_reads
    return (
        f"a NATS server is lost: {nodes / servers:.0f} nodes subscribe again for {moved:.0f} "
        f"executors ({subscribing:.0f} s of one core of NATS), and check owner records for "
        f"{looking:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("plan", "table", "moves"))
    parser.add_argument("--environments", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=102)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-node-urls", action="store_true")
    values = parser.parse_args()
    if values.part == "table":
        print(table())
    elif values.part == "plan":
        print(plan(Demand(values.environments, has_node_urls=not values.no_node_urls)))
    else:
        print(moves(values.environments, values.nodes, values.seed))


if __name__ == "__main__":
    main()

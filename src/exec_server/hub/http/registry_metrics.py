"""The metrics of one node, collected from its parts."""

from __future__ import annotations

import contextlib

from exec_server.hub.access.tokens import TokenGate
from exec_server.hub.bus import Bus
from exec_server.hub.bus.signed_bus import SignedBus
from exec_server.hub.cluster.registrations import Registrations
from exec_server.hub.http.rendezvous import Rendezvous
from exec_server.hub.store import Store, StoreUnavailable
from exec_server.prometheus import Metric
from exec_server.version import VERSION


def registry_metrics(
    registrations: Registrations, rendezvous: Rendezvous, gate: TokenGate
) -> list[Metric]:
    here = [registration.exchange for registration in registrations.here()]
    # A frame that crosses from one node to another counts on both.
    all_exchanges = [*here, *(passage.exchange for passage in registrations.crossings())]
    frames = rendezvous.frames + sum(each.frames for each in all_exchanges)
    moved = rendezvous.bytes + sum(each.bytes for each in all_exchanges)
    return [
        Metric("info", "info", "The version of this node.", parts={(("version", VERSION),): 1}),
        Metric("executors", "gauge", "Executors that are connected.", len(here)),
        Metric("harnesses", "gauge", "Harnesses that are connected.", rendezvous.harnesses),
        Metric(
            "streams",
            "gauge",
            "Streams of these executors.",
            sum(each.streams for each in here),
        ),
        Metric("nodes", "gauge", "Nodes, this one included.", 1 + len(registrations.peers)),
        Metric(
            "channels", "gauge", "Channels between this node and others.", registrations.channels
        ),
        Metric("sockets", "gauge", "Rendezvous sockets.", rendezvous.sockets),
        Metric(
            "queued_bytes", "gauge", "Bytes in the queues of all sockets.", rendezvous.memory.used
        ),
        Metric(
            "dropped_queues_total",
            "counter",
            "Queues that were dropped because other environments needed memory.",
            rendezvous.memory.dropped,
        ),
        Metric("frames_total", "counter", "Relay frames that were passed on.", frames),
        Metric("bytes_total", "counter", "Bytes of these frames.", moved),
        Metric("auth_failures_total", "counter", "Wrong or missing tokens.", gate.failed),
    ]


def bus_metrics(bus: Bus) -> list[Metric]:
    """The metrics of the bus, if other nodes can be on it."""
    if not isinstance(bus, SignedBus):
        return []
    text = "Messages of the bus that were dropped: forged, too late, or heard before."
    return [Metric("bus_rejected_total", "counter", text, bus.rejected)]


class EnvironmentCount:
    """The number of registered environments, as it was when it was last read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._count = 0

    async def refresh(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            self._count = await self._store.count_environments()

    def metrics(self) -> list[Metric]:
        text = "Environments that are registered, connected or not; the same on all nodes."
        return [Metric("environments", "gauge", text, self._count)]

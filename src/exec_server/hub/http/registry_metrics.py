"""The metrics of one node, collected from its parts."""

from __future__ import annotations

from exec_server.hub.access.tokens import Gate
from exec_server.hub.cluster.registrations import Seats
from exec_server.hub.http.rendezvous import Rendezvous
from exec_server.hub.observe.metrics import Figure
from exec_server.version import VERSION


def registry_metrics(seats: Seats, rendezvous: Rendezvous, gate: Gate) -> list[Figure]:
    here = [seat.exchange for seat in seats.here()]
    # A frame that crosses from node to node counts on both.
    all_exchanges = [*here, *(passage.exchange for passage in seats.crossings())]
    frames = rendezvous.frames + sum(each.frames for each in all_exchanges)
    moved = rendezvous.bytes + sum(each.bytes for each in all_exchanges)
    return [
        Figure("info", "info", "What this is.", parts={(("version", VERSION),): 1}),
        Figure("executors", "gauge", "Executors that are connected.", len(here)),
        Figure("harnesses", "gauge", "Harnesses that are connected.", rendezvous.harnesses),
        Figure(
            "streams",
            "gauge",
            "Streams of the executors.",
            sum(each.streams for each in here),
        ),
        Figure("nodes", "gauge", "Nodes, this one included.", 1 + len(seats.peers)),
        Figure("channels", "gauge", "Joins with sockets of other nodes.", seats.channels),
        Figure("sockets", "gauge", "Rendezvous sockets.", rendezvous.sockets),
        Figure("queued_bytes", "gauge", "Bytes that wait to be read.", rendezvous.memory.used),
        Figure("frames_total", "counter", "Relay frames that were passed on.", frames),
        Figure("bytes_total", "counter", "Bytes of these frames.", moved),
        Figure("auth_failures_total", "counter", "Wrong or missing tokens.", gate.failed),
    ]

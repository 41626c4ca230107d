"""Figures for Prometheus, in its text format."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from exec_server.hub.bus import Bus
from exec_server.hub.rendezvous import Rendezvous
from exec_server.hub.tokens import Gate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "exec_server_registry_"


class Figure(msgspec.Struct, frozen=True):
    name: str
    kind: str
    help: str
    value: float


class Requests:
    """How many requests were answered, by what was asked and the class of the status."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def count(self, operation: str, status: int) -> None:
        key = (operation, f"{status // 100}xx")
        self._counts[key] = self._counts.get(key, 0) + 1

    def lines(self) -> list[str]:
        name = f"{_PREFIX}requests_total"
        return [
            f"# HELP {name} Requests that were answered.",
            f"# TYPE {name} counter",
            *(
                f'{name}{{operation="{operation}",status="{status}"}} {count}'
                for (operation, status), count in sorted(self._counts.items())
            ),
        ]


def figures(bus: Bus, rendezvous: Rendezvous, gate: Gate) -> list[Figure]:
    seats = bus.seats()
    exchanges = [seat.exchange for seat in seats]
    frames = rendezvous.frames + sum(each.frames for each in exchanges)
    moved = rendezvous.bytes + sum(each.bytes for each in exchanges)
    return [
        Figure("executors", "gauge", "Executors that are connected.", len(seats)),
        Figure(
            "harnesses",
            "gauge",
            "Harnesses that are connected.",
            sum(each.harnesses for each in exchanges),
        ),
        Figure("streams", "gauge", "Streams.", sum(each.streams for each in exchanges)),
        Figure("sockets", "gauge", "Rendezvous sockets.", rendezvous.sockets),
        Figure("queued_bytes", "gauge", "Bytes that wait to be read.", rendezvous.memory.used),
        Figure("frames_total", "counter", "Relay frames that were passed on.", frames),
        Figure("bytes_total", "counter", "Bytes of these frames.", moved),
        Figure("auth_failures_total", "counter", "Wrong or missing tokens.", gate.failed),
    ]


def exposition(found: Sequence[Figure], requests: Requests) -> str:
    lines = []
    for each in found:
        name = _PREFIX + each.name
        lines += [
            f"# HELP {name} {each.help}",
            f"# TYPE {name} {each.kind}",
            f"{name} {each.value:g}" if each.kind == "gauge" else f"{name} {each.value:.0f}",
        ]
    return "\n".join([*lines, *requests.lines(), ""])

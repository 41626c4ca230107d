"""Starts with limits beside plain ones of the same server."""

from __future__ import annotations

from typing import Any

from bench.client import percentile
from bench.servers import Server
from bench.workload import Figures, Scale, workload
from bench.workloads.durable import run_true

_MEMORY = {"memory": 1 << 30}
_ALL = {
    **_MEMORY,
    "pids": 100,
    "cpuRate": 2,
    "cpuSeconds": 60,
    "wall": 60,
    "outputBytes": 1 << 20,
    "disk": 1 << 30,
    "openFiles": 256,
}
_KINDS: tuple[dict[str, Any], ...] = ({}, {"limits": _MEMORY}, {"limits": _ALL})
# They take turns in batches of this size, so that a busy moment meets all.
_TURN = 20


# Only servers that keep a state have limits, too.
@workload(server="durable")
def limited_start(server: Server, scale: Scale) -> Figures:
    """From process/start to its answer."""
    client = server.connect()
    times: list[list[float]] = [[], [], []]
    for members in _KINDS:
        run_true(client, **members)
    for _ in range(scale.count(400) // _TURN + 1):
        for members, found in zip(_KINDS, times, strict=True):
            found += [run_true(client, **members)[0] for _ in range(_TURN)]
    client.close()
    plain, memory, everything = (percentile(found, 0.5) for found in times)
    return {"p50": memory, "more": memory - plain, "all": everything}

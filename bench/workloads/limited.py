"""Starts with limits beside plain ones of the same server, and others beside a limited command."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from bench.client import drain, now, percentile, start_params, unique
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


# It would keep eight cores busy.
_GREEDY = "for _ in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait"
_BOUNDED = {
    "memory": 64 << 20,
    "pids": 20,
    "cpuRate": 0.2,
    "cpuSeconds": 60,
    "disk": 1 << 20,
    "wall": 60,
}
_BYTES = bytes(32 << 20)
_HASHES = 5


# Only servers that keep a state have limits, too.
@workload(server="durable")
def limited_start(server: Server, scale: Scale) -> Figures:
    """From process/start to its answer."""
    client = server.connect()
    times: list[list[float]] = [[], [], []]
    for members in _KINDS:
        run_true(client, **members)
    in_a_row = [
        percentile([run_true(client, **members)[0] for _ in range(scale.count(200))], 0.5)
        for members in _KINDS[:2]
    ]
    for _ in range(scale.count(400) // _TURN + 1):
        for members, found in zip(_KINDS, times, strict=True):
            found += [run_true(client, **members)[0] for _ in range(_TURN)]
    client.close()
    plain, memory, everything = (percentile(found, 0.5) for found in times)
    return {
        "p50": memory,
        "more": max(0.0, memory - plain),
        "more_in_a_row": max(0.0, in_a_row[1] - in_a_row[0]),
        "all": everything,
    }


@workload(server="durable")
def bystander(server: Server, scale: Scale) -> Figures:
    """Fixed work of a process that has nothing to do with the server, alone and beside a command.

    The command would take all cores.
    """
    client = server.connect()
    alone, beside = math.inf, math.inf
    for _ in range(scale.count(10)):
        # Other work on the machine makes both slower; the best of each is compared.
        alone = min(alone, *(_hashed() for _ in range(_HASHES)))
        name = unique("l")
        params = start_params(name, ["sh", "-c", _GREEDY])
        granted = client.call("process/start", {**params, "limits": _BOUNDED})["limits"]
        beside = min(beside, *(_hashed() for _ in range(_HASHES)))
        client.terminate(name)
        drain(client)
        if granted["cpuRate"]["mechanism"] == "none":
            # It may take all cores then.
            break
    client.close()
    return {"slowdown": beside / alone}


def _hashed() -> float:
    """Seconds for a fixed work."""
    begin = now()
    hashlib.sha256(_BYTES).digest()
    return now() - begin

"""Small calls: connecting, asking one thing at a time, asking many at once, reading back."""

from __future__ import annotations

import base64

from bench.client import (
    CallFailed,
    now,
    percentile,
    pipelined,
    repeat,
    request,
    serially,
    unique,
)
from bench.servers import Server
from bench.workload import KIB, Figures, Scale, workload

_DEPTH = 64
_REPLAYED_BYTES = 768 * KIB


@workload()
def connect(server: Server, scale: Scale) -> Figures:
    """Connect, upgrade, initialize; one client after the other."""
    times = []
    for _ in range(scale.count(200)):
        begin = now()
        client = server.connect()
        times.append(now() - begin)
        client.close()
    return {"p50": percentile(times, 0.5), "rate": len(times) / sum(times)}


@workload()
def rpc(server: Server, scale: Scale) -> Figures:
    """environment/status, the smallest call with an answer."""
    client = server.connect()
    client.call("environment/status", {})
    serially(client, repeat(_status, 200))
    times = serially(client, repeat(_status, scale.count(3000)))
    frames = repeat(_status, scale.count(50_000, least=2 * _DEPTH))
    cpu = server.cpu_seconds()
    seconds = pipelined(client, frames, depth=_DEPTH)
    cpu = server.cpu_seconds() - cpu
    client.close()
    return {
        "p50": percentile(times, 0.5),
        "p99": percentile(times, 0.99),
        "pipelined": len(frames) / seconds,
        "cpu": cpu / len(frames),
    }


@workload()
def replay(server: Server, scale: Scale) -> Figures:
    """process/read of everything that a process has said, in one answer."""
    client = server.connect()
    process = unique("r")
    client.start(process, ["head", "-c", str(_REPLAYED_BYTES), "/dev/zero"])
    client.wait_event("process/closed", process)
    params = {"processId": process, "afterSeq": 0, "maxBytes": None, "waitMs": 0}
    _check_replay(client.call("process/read", params))
    frames = repeat(lambda number: request("process/read", params, number), scale.count(50))
    times = serially(client, frames)
    client.close()
    return {"p50": percentile(times, 0.5)}


def _status(number: int) -> bytes:
    return request("environment/status", {}, number)


def _check_replay(answer: dict[str, list[dict[str, str]]]) -> None:
    size = sum(len(base64.b64decode(chunk["chunk"])) for chunk in answer["chunks"])
    if size != _REPLAYED_BYTES:
        raise CallFailed(f"{size} bytes were read back of {_REPLAYED_BYTES}")

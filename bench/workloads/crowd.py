"""Starting a command on a server that has grown: 1,000 live processes and half a gigabyte."""

from __future__ import annotations

from bench.client import (
    Client,
    chunk_size,
    expect_size,
    is_closed_event,
    percentile,
    spawn,
    unique,
)
from bench.servers import Server
from bench.workload import KIB, Figures, Scale, workload

_TRUE = ["/bin/true"]
# Half of what servers keep of a process's output, so that all of it is kept.
_RETAINED_BYTES = 512 * KIB
# Started in batches, because no client asks for all at once.
_BATCH = 16


@workload(server="fresh", most_rounds=2)
def crowd(server: Server, scale: Scale) -> Figures:
    client = server.connect()
    spawn(client, _TRUE, count=5)
    fresh = _speed(client, scale)
    _gather(client, scale.count(1000, least=20))
    crowded = _speed(client, scale)
    memory = server.memory()
    client.close()
    return {
        "p50": crowded["p50"],
        "rate_16": crowded["rate_16"],
        "slowdown": crowded["p50"] / fresh["p50"],
        "slowdown_16": fresh["rate_16"] / crowded["rate_16"],
        "resident": memory.resident,
    }


def _speed(client: Client, scale: Scale) -> Figures:
    one = spawn(client, _TRUE, count=scale.count(400), within=scale.seconds(2))
    count = scale.count(600, least=32)
    some = spawn(client, _TRUE, count=count, at_once=16, within=scale.seconds(1))
    return {"p50": percentile(one.times, 0.5), "rate_16": some.rate}


def _gather(client: Client, count: int) -> None:
    """Have *count* processes that have printed what the server keeps, and live on."""
    argv = ["sh", "-c", f"head -c {_RETAINED_BYTES} /dev/zero; exec sleep 1000"]
    for done in range(0, count, _BATCH):
        batch = min(_BATCH, count - done)
        for _ in range(batch):
            client.start(unique("c"), argv)
        _take(client, batch * _RETAINED_BYTES)


def _take(client: Client, wanted: int) -> None:
    size = 0
    while size < wanted:
        start, end = client.frame()
        chunk = chunk_size(client.buffer, start, end)
        if chunk >= 0:
            size += chunk
        elif is_closed_event(client.buffer, start, end):
            break
    expect_size(wanted, size)

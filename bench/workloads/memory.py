"""What a server holds: for connections, for processes, for output, for a client that stalls."""

from __future__ import annotations

import time

from bench.client import (
    CallFailed,
    Client,
    drain,
    expect_size,
    now,
    percentile,
    repeat,
    request,
    serially,
    unique,
)
from bench.servers import Server
from bench.workload import KIB, MIB, Figures, Scale, workload
from bench.workloads.streams import zeros

_SETTLE_SECONDS = 0.5
# Less than a page each cannot be told from nothing.
_LEAST_BYTES = 1 * KIB


@workload(server="fresh", most_rounds=3)
def idle_connections(server: Server, scale: Scale) -> Figures:
    count = scale.count(200, least=50)
    before = server.memory()
    clients = [server.connect() for _ in range(count)]
    time.sleep(_SETTLE_SECONDS)
    after = server.memory()
    for client in clients:
        client.close()
    return {"resident": max(_LEAST_BYTES, (after.resident - before.resident) / count)}


@workload(server="fresh", most_rounds=3)
def sleeping_processes(server: Server, scale: Scale) -> Figures:
    return _sleepers(server, scale.count(200, least=50), tty=False)


@workload(server="fresh", most_rounds=3)
def sleeping_ttys(server: Server, scale: Scale) -> Figures:
    return _sleepers(server, scale.count(200, least=50), tty=True)


@workload(server="fresh", most_rounds=3)
def growth(server: Server, scale: Scale) -> Figures:
    """The most memory there ever was, after little output and after much."""
    client = server.connect()
    little = _peak_after(server, client, scale.bytes(64 * MIB))
    much = _peak_after(server, client, scale.bytes(1024 * MIB))
    client.close()
    return {"peak_64": little, "peak_1024": much, "growth": much / little}


@workload(server="fresh", most_rounds=3)
def stalled_client(server: Server, scale: Scale) -> Figures:
    """A client stops reading while its process prints: what that holds, what others feel."""
    size = scale.bytes(256 * MIB)
    stalled, other = server.connect(receive_buffer=64 * KIB), server.connect()
    before = server.memory()
    stalled.start(unique("l"), zeros(size))
    time.sleep(1.0)
    times = serially(other, repeat(_status, scale.count(1000)))
    time.sleep(0.5)
    after = server.memory()
    total = drain(stalled)
    stalled.close()
    other.close()
    expect_size(size, total)
    return {
        "resident": max(_LEAST_BYTES, after.resident - before.resident),
        "other_p50": percentile(times, 0.5),
    }


def _sleepers(server: Server, count: int, *, tty: bool) -> Figures:
    client = server.connect()
    before = server.memory()
    names = [unique("z") for _ in range(count)]
    begin = now()
    for name in names:
        client.start(name, ["sleep", "1000"], tty=tty)
    _await_answers(client, count)
    starting = now() - begin
    time.sleep(_SETTLE_SECONDS)
    after = server.memory()
    begin = now()
    for name in names:
        client.terminate(name)
    drain(client, closes=count)
    ending = now() - begin
    client.close()
    return {
        "start": count / starting,
        "end": count / ending,
        "resident": max(_LEAST_BYTES, (after.resident - before.resident) / count),
    }


def _await_answers(client: Client, count: int) -> None:
    while count:
        message = client.decode()
        if "error" in message:
            raise CallFailed(str(message["error"]))
        count -= "id" in message


def _peak_after(server: Server, client: Client, size: int) -> int:
    client.start(unique("g"), zeros(size))
    expect_size(size, drain(client))
    return server.peak_memory()


def _status(number: int) -> bytes:
    return request("environment/status", {}, number)

"""Output: as fast as programs print it, through pipes."""

from __future__ import annotations

import select
from collections.abc import Sequence

from bench.client import (
    CallFailed,
    Client,
    chunk_size,
    drain,
    expect_size,
    is_closed_event,
    now,
    unique,
)
from bench.servers import Server
from bench.workload import GIB, MIB, Figures, Scale, workload

_SILENCE_MS = 60_000


@workload()
def pipe_zero(server: Server, scale: Scale) -> Figures:
    size = scale.bytes(512 * MIB)
    return stream(server, zeros(size), size)


@workload()
def pipe_seq(server: Server, scale: Scale) -> Figures:
    last = scale.count(40_000_000)
    return stream(server, ["seq", "1", str(last)], seq_size(last))


@workload()
def pipe_small_writes(server: Server, scale: Scale) -> Figures:
    """A program that writes 16 bytes at a time."""
    count = scale.count(1_000_000)
    argv = ["dd", "if=/dev/zero", "bs=16", f"count={count}", "status=none"]
    figures = stream(server, argv, 16 * count)
    return {"rate": figures["rate"] / 16}


@workload()
def pipe_4_processes(server: Server, scale: Scale) -> Figures:
    """Four programs at once on one connection."""
    size = scale.bytes(128 * MIB)
    return stream(server, zeros(size), size, processes=4)


@workload()
def pipe_4_connections(server: Server, scale: Scale) -> Figures:
    """Four clients with a program each: what a server gains from more cores."""
    size = scale.bytes(128 * MIB)
    clients = {client.socket.fileno(): client for client in (server.connect() for _ in range(4))}
    cpu, begin = server.cpu_seconds(), now()
    for client in clients.values():
        client.start(unique("s"), zeros(size))
    total = _drain_all(clients)
    seconds, cpu = now() - begin, server.cpu_seconds() - cpu
    for client in clients.values():
        client.close()
    expect_size(4 * size, total)
    return {"rate": total / seconds, "cpu": cpu * GIB / total}


def stream(
    server: Server, argv: Sequence[str], size: int, *, tty: bool = False, processes: int = 1
) -> Figures:
    """Run programs that print *size* bytes each; from the first start to the last close."""
    client = server.connect()
    cpu, begin = server.cpu_seconds(), now()
    for _ in range(processes):
        client.start(unique("s"), argv, tty=tty)
    total = drain(client, closes=processes)
    seconds, cpu = now() - begin, server.cpu_seconds() - cpu
    client.close()
    expect_size(processes * size, total)
    return {"rate": total / seconds, "cpu": cpu * GIB / total}


def zeros(size: int) -> list[str]:
    return ["head", "-c", str(size), "/dev/zero"]


def seq_size(last: int, *, line_end: int = 1) -> int:
    """How many bytes ``seq 1 last`` prints, with *line_end* bytes after each number."""
    size, first, digits = 0, 1, 1
    while first <= last:
        size += (min(last, first * 10 - 1) - first + 1) * (digits + line_end)
        first *= 10
        digits += 1
    return size


def _drain_all(clients: dict[int, Client]) -> int:
    """Take the output of one process from each; how many bytes it was."""
    poll = select.poll()
    for descriptor in clients:
        poll.register(descriptor, select.POLLIN)
    total = 0
    left = set(clients)
    while left:
        ready = poll.poll(_SILENCE_MS)
        if not ready:
            raise CallFailed("no output for a minute")
        for descriptor, _ in ready:
            client = clients[descriptor]
            for start, end in client.arrived():
                size = chunk_size(client.buffer, start, end)
                if size >= 0:
                    total += size
                elif is_closed_event(client.buffer, start, end):
                    poll.unregister(descriptor)
                    left.discard(descriptor)
    return total

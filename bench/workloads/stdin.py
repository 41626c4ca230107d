"""Input: process/write in bulk and in small pieces."""

from __future__ import annotations

import base64
import os
from typing import NamedTuple

from bench.client import (
    CallFailed,
    Client,
    is_closed_event,
    now,
    pipelined,
    repeat,
    request,
    unique,
)
from bench.servers import Server
from bench.workload import GIB, KIB, Figures, Scale, workload

_CHUNK_BYTES = 64 * KIB
_IN_FLIGHT = 32


@workload()
def stdin_bulk(server: Server, scale: Scale) -> Figures:
    """Chunks of 64 KiB, 32 in flight, into a program that reads exactly that much and ends."""
    count = scale.count(6000, least=_IN_FLIGHT)
    size = count * _CHUNK_BYTES
    client = server.connect()
    process = unique("i")
    load = bulk_writes(process, count)
    client.start(process, ["sh", "-c", f"head -c {size} >/dev/null"], stdin=True)
    client.frame()
    cpu, begin = server.cpu_seconds(), now()
    _write_until_closed(client, load)
    seconds, cpu = now() - begin, server.cpu_seconds() - cpu
    client.close()
    return {"rate": size / seconds, "cpu": cpu * GIB / size}


@workload()
def stdin_small(server: Server, scale: Scale) -> Figures:
    """Ten bytes at a time, 64 in flight."""
    count = scale.count(30_000, least=128)
    client = server.connect()
    process = unique("i")
    *frames, last = small_writes(process, b"y" * 10, count + 1)
    client.start(process, ["sh", "-c", f"head -c {10 * count + 1} >/dev/null"], stdin=True)
    client.frame()
    seconds = pipelined(client, frames, depth=64)
    # It ends only when it has got all of them.
    client.send(last)
    client.wait_event("process/closed", process)
    client.close()
    return {"rate": count / seconds}


class Bulk(NamedTuple):
    """Frames that differ only in how they begin: each is a head and the tail."""

    heads: list[bytes]
    tail: bytes


def bulk_writes(process: str, count: int) -> Bulk:
    chunk = base64.b64encode(os.urandom(_CHUNK_BYTES)).decode()
    # Numbers of one length, so that the mask falls on the chunk in the same way every time.
    numbers = range(10**7, 10**7 + count)
    heads = [_write(process, chunk, number)[: -len(chunk)] for number in numbers]
    return Bulk(heads, _write(process, chunk, numbers[0])[-len(chunk) :])


def write_all(client: Client, load: Bulk) -> None:
    """Send all of them, with as many in flight as the workload has."""
    sent = answered = 0
    while answered < len(load.heads):
        while sent < len(load.heads) and sent - answered < _IN_FLIGHT:
            client.send(load.heads[sent] + load.tail)
            sent += 1
        client.frame()
        answered += 1


def small_writes(process: str, data: bytes, count: int) -> list[bytes]:
    chunk = base64.b64encode(data).decode()
    return repeat(lambda number: _write(process, chunk, number), count)


def _write(process: str, chunk: str, number: int) -> bytes:
    params = {"processId": process, "writeId": f"w{number}", "chunk": chunk}
    return request("process/write", params, number)


def _write_until_closed(client: Client, load: Bulk) -> None:
    sent = accepted = 0
    is_closed = False
    while not is_closed:
        while sent < len(load.heads) and sent - accepted < _IN_FLIGHT:
            client.send(load.heads[sent] + load.tail)
            sent += 1
        start, end = client.frame()
        if client.buffer.find(b'"id"', start, end) < 0:
            is_closed = is_closed_event(client.buffer, start, end)
        elif client.buffer.find(b"accepted", start, end) >= 0:
            accepted += 1
        else:
            raise CallFailed(bytes(client.buffer[start:end])[:400].decode(errors="replace"))

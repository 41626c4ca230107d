"""Terminals: output through them, and how soon a keystroke comes back."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.client import CallFailed, Client, now, percentile, repeat, request, unique
from bench.servers import Server
from bench.workload import MIB, Figures, Scale, workload
from bench.workloads.files import crowded, noise
from bench.workloads.streams import seq_size, stream, zeros

_ROOT = Path(__file__).resolve().parents[2]
_TYPEWRITER = ["bash", "-c", "stty raw -echo; echo READY; exec cat"]
_KEY = base64.b64encode(b"x").decode()
# The frame around one echoed byte is shorter, the frame of a flood is longer.
_ECHO_BYTES = 600


@workload()
def pty_zero(server: Server, scale: Scale) -> Figures:
    size = scale.bytes(96 * MIB)
    return stream(server, zeros(size), size, tty=True)


@workload()
def pty_seq(server: Server, scale: Scale) -> Figures:
    last = scale.count(3_000_000)
    return stream(server, ["seq", "1", str(last)], seq_size(last, line_end=2), tty=True)


@workload()
def echo(server: Server, scale: Scale) -> Figures:
    """Type into `cat` on a raw terminal, one key after the other."""
    client = server.connect()
    process = typewriter(client)
    type_keys(client, process, 10, within=1)
    typed = type_keys(client, process, scale.count(1500), within=scale.seconds(4))
    client.call("process/terminate", {"processId": process})
    client.close()
    return {"p50": percentile(typed.times, 0.5), "p99": percentile(typed.times, 0.99)}


@workload()
def echo_flooded(server: Server, scale: Scale) -> Figures:
    """The same while another process of the same connection prints without end."""
    client = server.connect()
    process, flood = typewriter(client), unique("f")
    client.start(flood, ["cat", "/dev/zero"])
    until = now() + 0.5
    while now() < until:
        client.frame()
    typed = type_keys(client, process, scale.count(1000), within=scale.seconds(1.5))
    _leave(client, flood, process)
    return {
        "p50": percentile(typed.times, 0.5),
        "p99": percentile(typed.times, 0.99),
        "flood": typed.flood * 0.75 / typed.seconds,
    }


@workload()
def echo_beside_flood(server: Server, scale: Scale) -> Figures:
    """The same while another client's process prints without end."""
    figures, rate = _echo_beside(server, scale, "output")
    # The frames carry base64.
    return figures | {"flood": rate * 0.75}


@workload()
def echo_beside_read(server: Server, scale: Scale) -> Figures:
    """The same while another client reads a large file again and again."""
    path = noise(scale.scratch, scale.bytes(512 * MIB))
    return _echo_beside(server, scale, "read", str(path))[0]


@workload()
def echo_beside_walk(server: Server, scale: Scale) -> Figures:
    """The same while another client walks through a large tree again and again."""
    path = crowded(scale.scratch, scale.count(50_000, least=10_000), in_each=100)
    return _echo_beside(server, scale, "walk", str(path))[0]


def _echo_beside(server: Server, scale: Scale, *flood: str) -> tuple[Figures, float]:
    """How soon keys come back, and the bytes a second that the flood has got meanwhile."""
    client = server.connect()
    process = typewriter(client)
    with _flooding(server, *flood) as rates:
        typed = type_keys(client, process, scale.count(1000), within=scale.seconds(2))
    _leave(client, process)
    figures = {"p50": percentile(typed.times, 0.5), "p99": percentile(typed.times, 0.99)}
    return figures, rates[0]


class Typed(NamedTuple):
    # From each process/write to the output that carries its key.
    times: list[float]
    # Bytes on the wire that had nothing to do with the keys.
    flood: int
    seconds: float


def typewriter(client: Client, *, durable: bool = False) -> str:
    """A process that repeats what is typed, once it is ready to."""
    process = unique("e")
    client.start(process, _TYPEWRITER, tty=True, durable=durable)
    seen = b""
    while b"READY" not in seen:
        message = client.decode()
        if "error" in message:
            raise CallFailed(str(message["error"]))
        if message.get("method") == "process/output":
            seen += base64.b64decode(message["params"]["chunk"])
    # `cat` takes over from the shell.
    time.sleep(0.05)
    return process


def type_keys(client: Client, process: str, count: int, *, within: float) -> Typed:
    """Type *count* keys, or as many as can be typed *within* so many seconds."""

    def key(number: int) -> bytes:
        params = {"processId": process, "chunk": _KEY, "writeId": unique("k")}
        return request("process/write", params, number)

    times: list[float] = []
    flood = 0
    begin = now()
    for number, frame in enumerate(repeat(key, count), 1):
        sent = now()
        client.send(frame)
        returned, passed = _await_key(client, process, number)
        times.append(returned - sent)
        flood += passed
        if now() - begin > within:
            break
    return Typed(times, flood, now() - begin)


def _await_key(client: Client, process: str, number: int) -> tuple[float, int]:
    """When the key came back, and what else passed by; the write's answer is waited for too."""
    tag, answer = b'"%s"' % process.encode(), b'"id":%d' % number
    returned = 0.0
    is_answered = False
    passed = 0
    while not (returned and is_answered):
        start, end = client.frame()
        buffer = client.buffer
        if end - start > _ECHO_BYTES:
            passed += end - start
        elif buffer.find(b'"chunk"', start, end) >= 0:
            if not returned and buffer.find(tag, start, end) >= 0:
                returned = now()
        elif buffer.find(answer, start, end) >= 0:
            is_answered = True
    return returned, passed


def _leave(client: Client, *processes: str) -> None:
    for process in processes:
        client.terminate(process)
    # The requests are to arrive before the connection ends.
    time.sleep(0.1)
    client.close()


@contextmanager
def _flooding(server: Server, *kind: str) -> Iterator[list[float]]:
    """Another client, in a process of its own, that keeps the server busy.

    Afterwards the list has the bytes a second that the other client has got.
    """
    rates: list[float] = []
    argv = [sys.executable, "-m", "bench.flood", str(server.port), *kind]
    flood = subprocess.Popen(
        argv, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert flood.stdout is not None
    try:
        if not flood.stdout.readline():
            raise CallFailed("the client that was to flood the server has ended")
        yield rates
    finally:
        flood.terminate()
        try:
            text, _ = flood.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            flood.kill()
            text, _ = flood.communicate()
        rates.append(float(text or "nan"))

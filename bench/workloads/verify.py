"""Not a speed test: every byte arrives, in order, and the events are numbered without a gap."""

from __future__ import annotations

import base64
import os
from typing import Any

from bench.client import CallFailed, Client, request, unique
from bench.servers import Server
from bench.workload import KIB, MIB, Figures, Scale, workload

_EVENTS = {"process/output", "process/exited", "process/closed"}


@workload(most_rounds=1, is_vital=True)
def verify(server: Server, scale: Scale) -> Figures:
    """Noise through a pipe, lines through a terminal, noise in and out through `cat`."""
    noise = os.urandom(3 * MIB)
    lines = b"".join(b"line %d\n" % number for number in range(100_000))
    client = server.connect()
    _check("pipe", noise, _printed(client, scale, noise, tty=False))
    _check("terminal", lines.replace(b"\n", b"\r\n"), _printed(client, scale, lines, tty=True))
    noise = noise[: 512 * KIB]
    _check("stdin", noise, _echoed(client, noise))
    client.close()
    return {}


def _printed(client: Client, scale: Scale, data: bytes, *, tty: bool) -> bytes:
    """What arrives when a program prints *data*."""
    path = scale.scratch / "verify"
    path.write_bytes(data)
    process = unique("v")
    client.start(process, ["cat", str(path)], tty=tty)
    return _output(client, process)


def _echoed(client: Client, data: bytes) -> bytes:
    """What arrives when *data* is written to a program that repeats it."""
    process = unique("v")
    client.start(process, ["head", "-c", str(len(data))], stdin=True)
    step = 16 * KIB
    for number, offset in enumerate(range(0, len(data), step), 1):
        chunk = base64.b64encode(data[offset : offset + step]).decode()
        params = {"processId": process, "chunk": chunk, "writeId": unique("w")}
        client.send(request("process/write", params, number))
    return _output(client, process)


def _output(client: Client, process: str) -> bytes:
    """All output of *process*, after a look at the numbers of its events."""
    events: dict[int, dict[str, Any]] = {}
    closed = count = 0
    while not closed:
        message = client.decode()
        if "error" in message:
            raise CallFailed(str(message["error"]))
        if message.get("method") in _EVENTS and message["params"]["processId"] == process:
            events[message["params"]["seq"]] = message["params"]
            count += 1
            closed = message["method"] == "process/closed"
    if sorted(events) != list(range(1, count + 1)):
        raise CallFailed(f"{count} events of {process} are not numbered from 1 to {count}")
    chunks = (events[seq].get("chunk", "") for seq in sorted(events))
    return b"".join(base64.b64decode(chunk) for chunk in chunks)


def _check(what: str, wanted: bytes, got: bytes) -> None:
    if wanted != got:
        raise CallFailed(f"{what}: {len(got)} bytes came that are not the {len(wanted)} sent")

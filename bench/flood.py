"""A client that keeps a server busy until SIGTERM: ``flood PORT output|read|walk [PATH]``.

It prints a line when it begins, and at the end the bytes a second that have come on the wire.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.client import CallFailed, Client, drain, request
from bench.workload import MIB
from bench.workloads.files import open_file, read_blocks

_PROCESS = "flood"
_stops: list[int] = []


def main(port: int, kind: str, path: str = "") -> None:
    signal.signal(signal.SIGTERM, lambda number, _: _stops.append(number))
    client = Client("127.0.0.1", port)
    client.initialize()
    size = _KINDS[kind](client, Path(path))
    client.close()
    print(size, flush=True)


def _begin() -> float:
    print("begun", flush=True)
    return time.perf_counter()


def _output(client: Client, _: Path) -> float:
    client.start(_PROCESS, ["cat", "/dev/zero"])
    size = 0
    # What comes first is still in small chunks.
    while size < 16 * MIB and not _stops:
        start, end = client.frame()
        size += end - start
    began, size = _begin(), 0
    while not _stops:
        start, end = client.frame()
        size += end - start
    rate = size / (time.perf_counter() - began)
    # A lost connection would leave it running, and printing, until its session expires.
    client.terminate(_PROCESS)
    drain(client)
    return rate


def _read(client: Client, path: Path) -> float:
    open_file(client, path)
    count = path.stat().st_size // MIB
    began, rounds = _begin(), 0
    while not _stops:
        read_blocks(client, count)
        rounds += 1
    return rounds * count * MIB / (time.perf_counter() - began)


def _walk(client: Client, path: Path) -> float:
    options = {
        "maxDepth": 8,
        "maxDirectories": 10_000,
        "maxEntries": 50_000,
        "followDirectorySymlinks": False,
    }
    frame = request("fs/walk", {"path": path.as_uri(), "options": options}, 1)
    began, total = _begin(), 0
    while not _stops:
        client.send(frame)
        if (size := client.discard()) < MIB:
            raise CallFailed(f"{size} bytes are not the answer to a long walk")
        total += size
    return total / (time.perf_counter() - began)


_KINDS: dict[str, Callable[[Client, Path], float]] = {
    "output": _output,
    "read": _read,
    "walk": _walk,
}


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

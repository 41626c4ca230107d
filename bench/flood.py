"""A client that keeps a server busy until SIGTERM: ``flood PORT output|read|walk [PATH]``."""

from __future__ import annotations

import signal
import sys
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
    _KINDS[kind](client, Path(path))
    client.close()


def _output(client: Client, _: Path) -> None:
    client.start(_PROCESS, ["cat", "/dev/zero"])
    while not _stops:
        client.frame()
    # A lost connection would leave it running, and printing, until its session expires.
    client.terminate(_PROCESS)
    drain(client)


def _read(client: Client, path: Path) -> None:
    open_file(client, path)
    count = path.stat().st_size // MIB
    while not _stops:
        read_blocks(client, count)


def _walk(client: Client, path: Path) -> None:
    options = {
        "maxDepth": 8,
        "maxDirectories": 10_000,
        "maxEntries": 50_000,
        "followDirectorySymlinks": False,
    }
    frame = request("fs/walk", {"path": path.as_uri(), "options": options}, 1)
    while not _stops:
        client.send(frame)
        if (size := client.discard()) < MIB:
            raise CallFailed(f"{size} bytes are not the answer to a long walk")


_KINDS: dict[str, Callable[[Client, Path], None]] = {
    "output": _output,
    "read": _read,
    "walk": _walk,
}


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

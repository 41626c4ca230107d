"""The client of `bench/remote.py`: a process of its own, which measures what it gets.

It is run with the source tree whose client is meant, prints one line of JSON, and ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # A script finds its own folder on the path; the benches are found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import exec_server
from bench import proc

_MIB = 1 << 20
_ECHOES = 500
_TICK = os.sysconf("SC_CLK_TCK")


class Clocks:
    """The processor time of each part, from now on."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._before = self._read()

    def spent(self) -> dict[str, float]:
        return {name: after - self._before[name] for name, after in self._read().items()}

    def _read(self) -> dict[str, float]:
        found = {name: _with_threads(pid) for name, pid in self._pids.items() if name != "producer"}
        if keeper := self._pids.get("producer"):
            found["producer"] = _ended_children(keeper)
        return {**found, "client": time.process_time()}


def _with_threads(pid: int) -> float:
    return proc.cpu_seconds([proc.Identity(pid, 0)])


def _ended_children(pid: int) -> float:
    """The processor time of the children that *pid* has waited for, in steps of a tick."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    return (int(fields[13]) + int(fields[14])) / _TICK


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    pids = {name: int(pid) for name, _, pid in (each.partition("=") for each in options.clock)}
    async with exec_server.connect(options.url, token=options.token) as client:
        # The first bytes of a process are read in small chunks.
        await _output(client, _MIB)
        clocks = Clocks(pids)
        output = await _output(client, options.megabytes * _MIB)
        cpu = clocks.spent()
        return {
            "output": output,
            "cpu": {name: spent * 1024 / options.megabytes for name, spent in cpu.items()},
            "file": await _file(client, options.file, options.file_bytes),
            "echo": await _echo(client),
        }


async def _output(client: exec_server.ExecServerClient, size: int) -> float:
    """MB/s."""
    began = time.perf_counter()
    process = await client.start(["head", "-c", str(size), "/dev/zero"])
    received = 0
    async for chunk in process:
        received += len(chunk.data)
    assert received == size
    return size / 1e6 / (time.perf_counter() - began)


async def _file(client: exec_server.ExecServerClient, path: str, size: int) -> float:
    """MB/s."""
    began = time.perf_counter()
    data = await client.fs.read_file(path)
    assert len(data) == size
    return size / 1e6 / (time.perf_counter() - began)


async def _echo(client: exec_server.ExecServerClient) -> float:
    """The median of keystrokes to a terminal and back, in seconds."""
    process = await client.start(["sh", "-c", "stty raw -echo; echo ready; exec cat"], tty=True)
    seen = b""
    async for chunk in process:
        seen += chunk.data
        if b"ready" in seen:
            break
    times = []
    for _ in range(_ECHOES):
        began = time.perf_counter()
        await process.write(b"x")
        await anext(process)
        times.append(time.perf_counter() - began)
    await process.terminate()
    return sorted(times)[_ECHOES // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--token")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--file", required=True)
    parser.add_argument("--clock", action="append", default=[], metavar="NAME=PID")
    options = parser.parse_args()
    options.file_bytes = Path(options.file).stat().st_size
    import uvloop

    async def work() -> None:
        print(json.dumps(await measure(options)), flush=True)

    uvloop.run(asyncio.wait_for(work(), 300))


if __name__ == "__main__":
    main()

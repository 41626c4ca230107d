"""What things that do nothing cost: 1,000 connections, and 1,000 processes, each on a fresh server.

    make idle ARGS='--count 1000 --seconds 40'

For each kind: the processor time of the server and its keeper for making one, the private memory
that one takes, and the processor time that all of them together take of one core while nothing
happens. In that time each connection gets one ping. The server alone is measured beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench.client import Client, unique
from bench.main import prepare
from bench.servers import Command, Conditions, Server

_OURS = Command(
    "ours", f"{shlex.quote(sys.executable)} -m exec_server --listen ws://127.0.0.1:{{port}}"
)
# Longer than the interval between two pings, and shorter than a server waits for the answer.
_SECONDS = 40.0

# Makes so many more of a thing. The first client is there already; new ones are added to the list.
Work = Callable[[Server, list[Client], int], None]


class Idle(NamedTuple):
    """What so many idle things have cost."""

    made_seconds: float
    private_bytes: int
    # Seconds of processor time in one second while nothing happens.
    share: float


def main() -> None:
    parser = argparse.ArgumentParser(description="What things that do nothing cost.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="how long nothing happens")
    options = parser.parse_args()
    prepare()
    for name, value in machine.facts().items():
        print(f"{name}: {value}")
    print(f"{'':20}{'CPU of each':>13}{'memory of each':>16}{'idle, of a core':>17}")
    for name, work in _KINDS.items():
        count = options.count if work is not None else 1
        idle = _measure(work, count, options.seconds)
        made = f"{idle.made_seconds / count * 1e6:.0f} µs" if work is not None else "-"
        print(
            f"{f'{count:,} {name}':20}{made:>13}{idle.private_bytes / count / 1e3:13.1f} kB"
            f"{idle.share * 100:15.3f} %",
            flush=True,
        )
    print(f"load average: {machine.load():.1f}")


def _measure(work: Work | None, count: int, seconds: float) -> Idle:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(_OURS, Conditions()))
        server.warm_up()
        clients = [server.connect()]
        stack.callback(_close_all, clients)
        memory, made = 0, 0.0
        if work is not None:
            # The first ones load modules.
            work(server, clients, 2)
            memory, before = server.memory().private, server.cpu_seconds()
            work(server, clients, count)
            made = server.cpu_seconds() - before
        memory = server.memory().private - memory
        before, begun = server.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        share = (server.cpu_seconds() - before) / (time.monotonic() - begun)
        return Idle(made, memory, share)


def _close_all(clients: list[Client]) -> None:
    for client in clients:
        client.close()


def _connections(server: Server, clients: list[Client], count: int) -> None:
    clients += [server.connect() for _ in range(count)]


def _processes(server: Server, clients: list[Client], count: int) -> None:
    for _ in range(count):
        clients[0].start(unique("p"), ["/bin/sleep", "600"])
        clients[0].decode()


_KINDS: dict[str, Work | None] = {
    "server": None,
    "connections": _connections,
    "processes": _processes,
}


if __name__ == "__main__":
    main()

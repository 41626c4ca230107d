"""The capacity of one registry node, and the cost of its relay.

    python bench/hub.py [--executors 5000] [--megabytes 512] [--rounds 5] [--idle-seconds 60]

A registry in a process of its own on the loopback gets idle executors, which register and keep a
socket as real ones do, and its memory is compared before and after. Then it is left alone for a
while, to see what it costs that they are there. Then, with all of them there, one more executor and
a harness send each other frames, through the registry and over a socket from the one to the other.
Both ends are in this process: neither encrypts, so this is the relay alone.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import aiohttp

from bench import machine
from bench.registries import Registry, fill, joined, started
from bench.relay_ends import Measured, directly, measure, middle
from exec_server.cli.event_loop import in_loop

_SECONDS = 900
# Open files besides the sockets of the executors.
_OTHER_FILES = 100


async def run(
    registry: Registry, *, executors: int, megabytes: int, rounds: int, idle_seconds: float = 0.0
) -> dict[str, Any]:
    """The metrics of the registry, by name."""
    node = registry.nodes[0]
    async with asyncio.timeout(_SECONDS + idle_seconds), aiohttp.ClientSession() as web:
        # A first stream allocates memory that later ones use again, so it is not counted.
        async with joined(node, node, web, executors) as way:
            await measure(way, 1)
        before = node.memory
        began = time.perf_counter()
        ends = await fill([node], web, executors)
        seconds = time.perf_counter() - began
        each = (node.memory - before) / max(executors, 1)
        meter = registry.meter()
        await asyncio.sleep(idle_seconds)
        idle = meter.spent()
        straight, relayed = [], []
        for _ in range(rounds):
            async with directly() as way:
                straight.append(await measure(way, megabytes))
            async with joined(node, node, web, executors) as way:
                relayed.append(await measure(way, megabytes))
        lost = sum(end.is_lost for end in ends)
        for end in ends:
            end.drop()
    return {
        "executors": executors,
        "lost": lost,
        "registrations per second": executors / seconds,
        "KiB per idle executor": each / 1024,
        "idle seconds": idle_seconds,
        "idle share of a core": idle.cpu["nodes"] / max(idle.seconds, 1e-9),
        "direct": middle(straight),
        "relayed": middle(relayed),
    }


def report(found: dict[str, Any]) -> str:
    lines = [
        f"{found['executors']} idle executors, {found['lost']} lost, "
        f"{found['registrations per second']:.0f} registrations/s, "
        f"{found['KiB per idle executor']:.1f} KiB each"
    ]
    if found["idle seconds"]:
        lines.append(f"idle: {found['idle share of a core']:.1%} of a core")
    return "\n".join([*lines, *ratios("through it", found["relayed"], found["direct"])])


def ratios(name: str, relayed: Measured, straight: Measured) -> list[str]:
    """The throughput of one way, compared with a direct socket."""
    echo, direct = relayed.echo * 1e6, straight.echo * 1e6
    return [
        f"{name}, to the executor: {relayed.up:.0f} MB/s, {relayed.up / straight.up:.2f} of "
        f"{straight.up:.0f}",
        f"{name}, from the executor: {relayed.down:.0f} MB/s, {relayed.down / straight.down:.2f} "
        f"of {straight.down:.0f}",
        f"{name}, echo: {echo:.0f} us, {echo / direct:.1f} times {direct:.0f}",
    ]


def raise_files() -> int:
    """Raise the limit of open files, because every socket is one; return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - _OTHER_FILES


def show_machine() -> None:
    for name, text in machine.facts().items():
        print(f"{name}: {text}")
    print(f"Load before: {machine.load():.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--executors", type=int, default=5000)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle-seconds", type=float, default=0.0)
    values = parser.parse_args()
    executors = min(values.executors, raise_files())

    async def work() -> int:
        async with started() as registry:
            found = await run(
                registry,
                executors=executors,
                megabytes=values.megabytes,
                rounds=values.rounds,
                idle_seconds=values.idle_seconds,
            )
            print(report(found))
        return 0

    show_machine()
    in_loop(work())


if __name__ == "__main__":
    main()

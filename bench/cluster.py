"""The capacity of several nodes: real nodes, NATS servers and one PostgreSQL on the loopback.

    python bench/cluster.py relay    [--megabytes 256] [--rounds 5] [--servers 3]
    python bench/cluster.py entering [--executors 2000]
    python bench/cluster.py idle     [--executors 5000] [--tokens 5000] [--seconds 60]
    python bench/cluster.py loss     [--executors 2000] [--busy 0]

Executors are simulated: they register and keep a socket as real ones do, all in this process, which
takes one of the cores. So beside each rate there is what an operation costs the processors of the
nodes, of the NATS servers and of PostgreSQL, which does not depend on who else is busy.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import aiohttp

from bench import proc
from bench.hub import raise_files, ratios, show_machine
from bench.registries import Node, Registry, Spent, all_of, fill, joined, started
from bench.relay_ends import End, Measured, directly, measure, middle
from exec_server.cli.event_loop import in_loop
from exec_server.errors import ExecServerError

_SECONDS = 900
# Codex's pauses before it dials again: one second, doubled up to thirty, times 0.5 to 1.
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_POLL_SECONDS = 0.1
_T = TypeVar("_T")


# The relay.


async def relay(megabytes: int, rounds: int, servers: int) -> str:
    """A direct socket, one node between the ends, and two nodes with NATS between them."""
    found: dict[str, list[Measured]] = {"direct": [], "one node": [], "two nodes": []}
    spent: dict[str, list[Spent]] = {"one node": [], "two nodes": []}
    async with (
        started(nodes=2, servers=servers, is_shared=True) as registry,
        aiohttp.ClientSession() as web,
    ):
        ways = {"one node": registry.nodes[:1] * 2, "two nodes": registry.nodes}
        for _ in range(rounds):
            async with directly() as way:
                found["direct"].append(await measure(way, megabytes))
            for name, (first, second) in ways.items():
                async with joined(first, second, web, 0) as way:
                    meter = registry.meter()
                    found[name].append(await measure(way, megabytes))
                    spent[name].append(meter.spent())
    gigabytes = 2 * megabytes * (1 << 20) / 1e9 * rounds
    straight = middle(found["direct"])
    lines = []
    for name, runs in spent.items():
        lines += ratios(name, middle(found[name]), straight)
        cost = {
            group: sum(run.cpu[group] for run in runs) / gigabytes for group in ("nodes", "nats")
        }
        lines.append(
            f"{name}: {cost['nodes']:.2f} s of the nodes and {cost['nats']:.2f} s of NATS per GB"
        )
    return "\n".join(lines)


# Registering and connecting.


async def entering(executors: int) -> str:
    """The cost of a registration, of a reconnect with the same registration, and of a connect."""
    lines = []
    for name, nodes, servers in (
        ("SQLite, no bus, 1 node", 1, 0),
        ("PostgreSQL, 1 NATS, 1 node", 1, 1),
        ("PostgreSQL, 3 NATS, 1 node", 1, 3),
        ("PostgreSQL, 3 NATS, 3 nodes", 3, 3),
    ):
        async with (
            started(nodes=nodes, servers=servers, is_shared=servers > 0) as registry,
            aiohttp.ClientSession() as web,
        ):
            lines += [f"{name}:", *await _enter(registry, web, executors)]
    return "\n".join(lines)


async def _enter(registry: Registry, web: aiohttp.ClientSession, count: int) -> list[str]:
    nodes = registry.nodes
    timed = Timed(registry, count)

    def node(number: int, away: int = 0) -> Node:
        """The node of executor *number*, or the one *away* from it if there are that many."""
        return nodes[(number + away) % len(nodes)]

    async def stream(number: int) -> None:
        (await node(number, 2).harness(web, number)).drop()

    urls = await timed.all_of("registrations", lambda i: node(i).register(web, i))
    ends = await timed.all_of("sockets", lambda i: End.dial(node(i).here(urls[i])))
    await _all_online(nodes[0], web, count)
    # The newer socket of a registration replaces the older one, on another node if there is one.
    newer = await timed.all_of("newer sockets", lambda i: End.dial(node(i, 1).here(urls[i])))
    for end in ends:
        await end.lost()
    await _all_online(nodes[0], web, count)
    await timed.all_of("connects", lambda i: node(i, 2).connect(web, i))
    await timed.all_of("connects with their sockets", stream)
    for end in newer:
        end.drop()
    return timed.lines


class Timed:
    """Runs operations *count* times, and keeps a line with their cost."""

    def __init__(self, registry: Registry, count: int) -> None:
        self._registry, self._count = registry, count
        self.lines: list[str] = []

    async def all_of(self, what: str, work: Callable[[int], Awaitable[_T]]) -> list[_T]:
        meter = self._registry.meter()
        made = await all_of(work(number) for number in range(self._count))
        self.lines.append(f"  {what}: {_cost(meter.spent(), self._count)}")
        return made


def _cost(spent: Spent, count: int) -> str:
    each = ", ".join(f"{name} {1e3 * cpu:.2f}" for name, cpu in spent.per(count).items() if cpu > 0)
    return f"{count / spent.seconds:.0f}/s; processor ms each: {each}"


async def _all_online(node: Node, web: aiohttp.ClientSession, count: int) -> None:
    while await node.online(web) < count:  # noqa: ASYNC110 (it has to be asked)
        await asyncio.sleep(_POLL_SECONDS)


# Idle executors.


async def idle(executors: int, tokens: int, seconds: float) -> str:
    """The memory and processor time of idle executors, on one node with a bus."""
    async with (
        started(nodes=1, servers=1, is_shared=True, tokens=tokens) as registry,
        aiohttp.ClientSession() as web,
    ):
        node = registry.nodes[0]
        (await node.executor(web, executors)).drop()
        before, nats_before = node.memory, _resident(registry.nats)
        ends = await fill([node], web, executors)
        await _all_online(node, web, executors)
        each = (node.memory - before) / executors / 1024
        nats_each = (_resident(registry.nats) - nats_before) / executors / 1024
        meter = registry.meter()
        await asyncio.sleep(seconds)
        spent = meter.spent()
        lost = sum(end.is_lost for end in ends)
        for end in ends:
            end.drop()
    shares = ", ".join(f"{name} {cpu / spent.seconds:.1%}" for name, cpu in spent.cpu.items())
    return (
        f"{executors} idle executors with {tokens} tokens, {lost} lost\n"
        f"{each:.1f} KiB each of the node, {nats_each:.1f} KiB each of NATS\n"
        f"of a core while nothing happens: {shares}"
    )


def _resident(pids: list[int]) -> int:
    return proc.memory(proc.Identity(pid, 0) for pid in pids).resident


# Losing a node.


async def loss(executors: int, busy: int = 0) -> str:
    """Kill one of three nodes: how long until all of its executors are served elsewhere.

    Meanwhile *busy* processes do nothing, as fast as they can.
    """
    async with (
        started(nodes=3, servers=3, is_shared=True) as registry,
        aiohttp.ClientSession() as web,
        contextlib.AsyncExitStack() as stack,
    ):
        doomed, *others = registry.nodes
        urls = await all_of(doomed.register(web, number) for number in range(executors))
        herd = [Returning(url, others) for url in urls]
        await all_of(one.start(doomed) for one in herd)
        await _all_online(others[0], web, executors)
        stack.enter_context(_busy(busy))
        # PostgreSQL ends its processes that served the node, so their times are lost.
        meter = registry._replace(nodes=others, postgres=[]).meter()
        doomed.kill()
        for one in herd:
            await one.returned.wait()
        seconds = meter.spent().seconds
        await _all_online(others[0], web, executors)
        spent = meter.spent()
        for one in herd:
            one.stop()
    attempts = sum(one.attempts for one in herd) / executors
    return (
        f"{executors} executors of a killed node: all had a socket elsewhere after "
        f"{seconds:.1f} s and {attempts:.2f} attempts, and served after {spent.seconds:.1f} s\n"
        f"  {_cost(spent, executors)}"
    )


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    endless = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(endless) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Returning:
    """An executor that reconnects to one of *nodes* whenever its socket is lost."""

    def __init__(self, url: str, nodes: list[Node]) -> None:
        self._url, self._nodes = url, nodes
        self._task: asyncio.Task[None] | None = None
        self.attempts = 0
        self.returned = asyncio.Event()

    async def start(self, node: Node) -> None:
        end = await End.dial(node.here(self._url))
        self._task = asyncio.create_task(self._keep(end))

    def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()

    async def _keep(self, end: End) -> None:
        pause = _PAUSE
        try:
            while True:
                await end.lost()
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                # Real executors reset this pause after two minutes, which this run does not reach.
                pause = min(2 * pause, _LONGEST_PAUSE)
                self.attempts += 1
                with contextlib.suppress(ExecServerError, OSError, TimeoutError):
                    end = await End.dial(random.choice(self._nodes).here(self._url))
                    self.returned.set()
        finally:
            end.drop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("relay", "entering", "idle", "loss"))
    parser.add_argument("--executors", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--busy", type=int, default=0)
    values = parser.parse_args()
    executors = min(values.executors, raise_files())
    parts: dict[str, Callable[[], Awaitable[str]]] = {
        "relay": lambda: relay(values.megabytes, values.rounds, values.servers),
        "entering": lambda: entering(executors),
        "idle": lambda: idle(executors, values.tokens, values.seconds),
        "loss": lambda: loss(executors, values.busy),
    }

    async def work() -> int:
        async with asyncio.timeout(_SECONDS + values.seconds):
            print(await parts[values.part]())
        return 0

    show_machine()
    in_loop(work())


if __name__ == "__main__":
    main()

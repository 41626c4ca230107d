"""Three nodes, three NATS servers and a PostgreSQL as processes, each killed in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from exec_server.limits import DEFAULT_LIMITS
from tests.requirements import requirement
from tests.support.balancer import Balancer
from tests.support.cluster import Cluster
from tests.support.streaming import LINE_BYTES, Echo, Harness, spoken

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(120)]

NAME = "build"
# The interval of a stream's output, and the longest silence when a node dies. Meanwhile the
# executor dials another node, after a growing pause, or the other nodes notice that one is gone.
TICK = 0.01
BOUND = 15.0
# The same for any other part. While its servers elect a leader, no new client is accepted.
BLINK = 5.0
# How long a killed part stays away.
AWAY = 1.0
MOST_LINES = 1_000_000


class Outcome(NamedTuple):
    """The effects of a kill on a harness."""

    victim: str
    harness: str
    losses: int
    silence: float

    def __str__(self) -> str:
        what = "resumed" if self.losses else "untouched"
        return f"{self.victim:18} {self.harness} {what:9} longest silence {self.silence:5.2f} s"


class Worker(Harness):
    """A command that prints all the time, and one that echoes its input."""

    def __init__(self, name: str, url: str, token: str, folder: Path) -> None:
        self._stop = folder / f"{name}.stop"
        ticks = folder / f"{name}.ticks"
        self._echo = Echo(folder / f"{name}.echoes", pause=TICK)
        said = spoken(ticks, self._stop, length=LINE_BYTES, pause=TICK, most=MOST_LINES)
        super().__init__(name, url, token, [said, self._echo])

    def stop(self) -> None:
        self._stop.touch()
        self._echo.stop()

    async def goes_on(self, after: float) -> None:
        """Return once both have delivered output that was produced after this call."""
        for stream in self.streams:
            await stream.until(lambda stream: stream.said_after(after))

    def begin_to_watch(self) -> int:
        for stream in self.streams:
            stream.longest = 0.0
        return self.connections.losses

    @property
    def silence(self) -> float:
        return max(stream.longest for stream in self.streams)


class Scene(NamedTuple):
    cluster: Cluster
    # The balancer of the executor.
    door: Balancer
    workers: list[Worker]

    async def all_go_on(self, after: float) -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(worker.goes_on(after) for worker in self.workers))

    async def kill(self, victim: str) -> list[Outcome]:
        """Kill a part, and check that all harnesses continue without it and after its return."""
        before = [worker.begin_to_watch() for worker in self.workers]
        has_executor = victim in {self.cluster.nodes[node] for node in self.door.nodes}
        self.cluster.kill(victim)
        await self.all_go_on(time.monotonic() + AWAY)
        self.cluster.start(victim)
        await self.cluster.ready()
        await self.all_go_on(time.monotonic())
        return [
            Outcome(
                f"{victim} (executor)" if has_executor else victim,
                worker.name,
                worker.connections.losses - losses,
                worker.silence,
            )
            for worker, losses in zip(self.workers, before, strict=True)
        ]


@pytest.fixture
async def scene(cluster: Cluster, tmp_path: Path, monkeypatch) -> AsyncIterator[Scene]:
    """An executor at node 0, and at each node a harness that does not run yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    enrolment = await cluster.token("enrol")
    secret = await cluster.token("connect", "list")
    async with AsyncExitStack() as stack:
        door, *doors = [
            await stack.enter_async_context(Balancer(cluster.ports, first=node).run())
            for node in (0, 0, 1, 2)
        ]
        stack.enter_context(cluster.executor(door.url, NAME, enrolment))
        await cluster.until_online(NAME, secret)
        workers = [
            Worker(f"at-{node}", f"noise+{each.url}/{NAME}", secret, tmp_path)
            for node, each in enumerate(doors)
        ]
        yield Scene(cluster, door, workers)


@asynccontextmanager
async def at_work(scene: Scene) -> AsyncIterator[None]:
    """A wrong byte, or a command that runs twice, ends the block."""
    async with asyncio.TaskGroup() as tasks:
        for worker in scene.workers:
            tasks.create_task(worker.run())
        await scene.all_go_on(time.monotonic())
        yield
        for worker in scene.workers:
            worker.stop()


@requirement("hub/cluster:any-part-dies", "hub/cluster:untouched")
async def test_every_part_may_die_under_load(scene):
    found: list[Outcome] = []
    async with at_work(scene):
        for victim in scene.cluster.names:
            found += await scene.kill(victim)
    table = "\n" + "\n".join(map(str, found))
    print(table)
    for outcome in found:
        is_node = outcome.victim.startswith("node")
        assert outcome.silence < (BOUND if is_node else BLINK), table
        assert is_node or not outcome.losses, table
    # All of them depended on the first node.
    assert all(outcome.losses for outcome in found[: len(scene.workers)]), table
    assert "executor" in found[0].victim, table


@requirement("hub/cluster:sleep")
async def test_a_node_that_sleeps_is_done_without_until_it_wakes(scene):
    *others, last = scene.workers
    async with at_work(scene):
        scene.cluster.pause("node-2")
        try:
            async with asyncio.timeout(30):
                given_up = time.monotonic() + DEFAULT_LIMITS.hub_peer_seconds + AWAY
                await asyncio.gather(*(worker.goes_on(given_up) for worker in others))
        finally:
            scene.cluster.resume("node-2")
        await scene.all_go_on(time.monotonic())
    assert last.connections.losses
    assert not any(worker.connections.losses for worker in others)

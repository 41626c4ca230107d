"""Kills parts of a cluster, and starts them again a moment later."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.support.balancer import Balancer
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon

logger = logging.getLogger(__name__)

# The victim that stands for the balancer's connections; each of them is cut with this probability.
CONNECTIONS = "connections"
_CUT_CHANCE = 0.5
# Seconds from one kill to the next, and from a kill to the start.
_BETWEEN = (1.0, 4.0)
_DOWN = (0.1, 1.5)
# The interval of checks for nodes that ended by themselves, and the time to recover at the end.
_SUPERVISING_SECONDS = 0.5
_SETTLE_SECONDS = 60.0


class Chaos:
    """Kills parts of a cluster. The random numbers of *draw* alone decide what and when.

    *executors* are parts as well, by their names.
    """

    def __init__(
        self,
        cluster: Cluster,
        balancer: Balancer,
        victims: Sequence[str],
        draw: random.Random,
        executors: Mapping[str, Daemon],
    ) -> None:
        self._cluster = cluster
        self._executors = executors
        self._balancer = balancer
        self._victims = victims
        self._draw = draw
        # A separate generator, because the number of draws depends on the number of connections.
        self._cutting = random.Random(draw.random())
        self._down: set[str] = set()
        self.kills: Counter[str] = Counter()
        # The number of nodes that ended at their start, without a database or bus, and of executors
        # that ended without a registry; they were started again.
        self.revivals = 0

    async def run(self, seconds: float) -> None:
        """Kill parts for *seconds*, and return when all parts answer again."""
        async with asyncio.TaskGroup() as tasks:
            supervising = tasks.create_task(self._supervise())
            async with asyncio.TaskGroup() as starting:
                await self._kill(seconds, starting)
            supervising.cancel()
        async with asyncio.timeout(_SETTLE_SECONDS):
            while not await self._is_ready():
                self._revive()

    async def _kill(self, seconds: float, starting: asyncio.TaskGroup) -> None:
        began_at = time.monotonic()
        while time.monotonic() - began_at < seconds:
            await asyncio.sleep(self._draw.uniform(*_BETWEEN))
            victim, pause = self._draw.choice(self._victims), self._draw.uniform(*_DOWN)
            # A part that is down is skipped after the draw, so that later draws stay the same.
            if victim in self._down:
                continue
            self.kills[victim] += 1
            logger.info("killing %s", victim)
            if victim == CONNECTIONS:
                self._balancer.cut(_CUT_CHANCE, draw=self._cutting)
            else:
                self._kill_part(victim)
                self._down.add(victim)
                starting.create_task(self._start(victim, pause))

    async def _start(self, victim: str, pause: float) -> None:
        await asyncio.sleep(pause)
        if victim in self._executors:
            self._executors[victim].start()
        else:
            self._cluster.start(victim)
        self._down.discard(victim)

    def _kill_part(self, victim: str) -> None:
        if victim in self._executors:
            self._executors[victim].kill()
        else:
            self._cluster.kill(victim)

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(_SUPERVISING_SECONDS)
            self._revive()

    def _revive(self) -> None:
        ended = [name for name, executor in self._executors.items() if executor.has_ended]
        for name in ended:
            self._executors[name].start()
        for name in [*self._cluster.revive(), *ended]:
            logger.info("%s has ended by itself", name)
            self.revivals += 1

    async def _is_ready(self) -> bool:
        try:
            await self._cluster.ready()
        except AssertionError:
            return False
        return True

"""Samples of a program's memory, descriptors, threads and tasks, and whether they grow."""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec

_MIB = 1 << 20
# Growth that is none: what the allocator keeps, and work that is under way at one moment.
_MEMORY_SLACK = 48 * _MIB
_MEMORY_PART = 0.15
_COUNT_SLACK = 40
# After everything has ended: caches, and a thread pool with its descriptors.
_REST_MEMORY = 96 * _MIB
_REST_DESCRIPTORS = 12
_REST_TASKS = 4


class Sample(NamedTuple):
    at: float
    memory: int
    descriptors: int
    threads: int
    tasks: int

    def __str__(self) -> str:
        return (
            f"{self.memory / _MIB:7.1f} MiB {self.descriptors:6} descriptors "
            f"{self.threads:4} threads {self.tasks:6} tasks"
        )


class Watch:
    """The samples of one program."""

    def __init__(self, name: str, pid: int, socket_path: Path) -> None:
        self.name = name
        self._pid = pid
        self._socket_path = socket_path
        self.samples: list[Sample] = []
        self.before: Sample | None = None
        # The kinds of the open tasks, now and of the idle program.
        self._tasks: Counter[str] = Counter()
        self._tasks_before: Counter[str] = Counter()

    async def take(self) -> Sample:
        status = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        fields = {name: rest.split() for name, _, rest in (line.partition(":") for line in status)}
        reader, writer = await asyncio.open_unix_connection(str(self._socket_path))
        self._tasks = Counter(msgspec.json.decode(await reader.read()))
        writer.close()
        return Sample(
            asyncio.get_running_loop().time(),
            int(fields["VmRSS"][0]) << 10,
            sum(1 for _ in Path(f"/proc/{self._pid}/fd").iterdir()),
            int(fields["Threads"][0]),
            self._tasks.total(),
        )

    async def begin(self) -> None:
        """Take the sample of the idle program, with which the last one is compared."""
        self.before = await self.take()
        self._tasks_before = self._tasks

    async def run(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            self.samples.append(await self.take())

    def growth(self) -> list[str]:
        """What has grown between the second and the last third of the samples, in words."""
        third = len(self.samples) // 3
        middle, last = self.samples[third : 2 * third], self.samples[2 * third :]
        if not middle:
            return [f"{self.name}: too few samples"]
        found = []
        for index, name in enumerate(Sample._fields[1:], 1):
            then = statistics.median(sample[index] for sample in middle)
            now = statistics.median(sample[index] for sample in last)
            slack = _MEMORY_SLACK + _MEMORY_PART * then if name == "memory" else _COUNT_SLACK
            if now > then + slack:
                found.append(f"{self.name}: {name} grew from {then:.0f} to {now:.0f}")
        return found

    def left(self, now: Sample) -> list[str]:
        """What is left in words, when everything has ended."""
        before = self.before
        assert before is not None
        bounds = {
            "memory": _REST_MEMORY,
            "descriptors": _REST_DESCRIPTORS,
            "tasks": _REST_TASKS,
        }
        return [
            f"{self.name}: {name} was {getattr(before, name)}, in the end {getattr(now, name)}"
            + (f": {dict(self._tasks - self._tasks_before)}" if name == "tasks" else "")
            for name, slack in bounds.items()
            if getattr(now, name) > getattr(before, name) + slack
        ]

    def report(self) -> str:
        peak = max(sample.memory for sample in self.samples)
        step = max(1, len(self.samples) // 8)
        lines = [f"  {self.name} (before):     {self.before}"]
        lines += [
            f"  {self.name} {each.at - self.samples[0].at:5.0f} s: {each}"
            for each in self.samples[::step]
        ]
        return "\n".join([*lines, f"  {self.name}: at most {peak / _MIB:.1f} MiB"])

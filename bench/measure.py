"""Runs workloads: every server in turn, in another order each round."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import machine
from bench.catalogue import GROUPS, Unit
from bench.floors import KERNEL, KERNEL_FLOORS
from bench.results import Results
from bench.servers import Command, Conditions, Server
from bench.workload import Figures, Scale, Workload

# A server that fails a workload this often is not asked again.
_MOST_FAILURES = 2
_UNITS: dict[tuple[str, str], Unit] = {
    (row.workload, row.metric): row.unit for group in GROUPS for row in group.rows
}


class VerifyFailed(Exception):
    """A server loses or changes what it carries, so that its speed means nothing."""


class Part(NamedTuple):
    """A section of the run: these workloads under these conditions."""

    section: str
    conditions: Conditions
    workloads: tuple[Workload, ...]


class Measurement:
    """Fills *results*; one object for one run."""

    def __init__(self, commands: Sequence[Command], results: Results) -> None:
        self.commands = commands
        self.results = results
        self._begin = time.monotonic()

    def run(self, parts: Sequence[Part]) -> None:
        # In memory, so that no disk has a say.
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryDirectory(prefix="bench-", dir=memory) as scratch:
            scale = Scale(self.results.scale, Path(scratch))
            for part in parts:
                with _affinity(part.conditions.client_cpus):
                    _PartRun(self, part, scale).run()

    def say(self, words: str) -> None:
        print(f"{time.monotonic() - self._begin:5.0f} s  {words}", file=sys.stderr, flush=True)


class _PartRun:
    """One section. Servers are shared by the workloads that do not need a fresh one."""

    def __init__(self, run: Measurement, part: Part, scale: Scale) -> None:
        self._run = run
        self._part = part
        self._scale = scale
        # By command line: a floor has several servers under one name.
        self._shared: dict[str, Server] = {}
        self._failures: dict[tuple[str, str], int] = {}

    def run(self) -> None:
        try:
            for number, workload in enumerate(self._part.workloads, 1):
                progress = f"{self._part.section} {number}/{len(self._part.workloads)}"
                self._measure(workload, progress)
        finally:
            for server in self._shared.values():
                server.stop()

    def _measure(self, workload: Workload, progress: str) -> None:
        rounds = min(self._run.results.rounds, workload.most_rounds or sys.maxsize)
        commands = [each for each in self._run.commands if each.takes_part_in(workload.name)]
        if workload.server == "durable":
            commands = [command for command in commands if command.state_option]
        for number in range(rounds):
            turn = number % max(1, len(commands))
            for command in commands[turn:] + commands[:turn]:
                what = f"{progress}  {workload.name} {number + 1}/{rounds} {command.name}"
                self._measure_once(workload, command, what, at=number)

    def _measure_once(self, workload: Workload, command: Command, what: str, *, at: int) -> None:
        results, section = self._run.results, self._part.section
        if self._failures.get((workload.name, command.name), 0) >= _MOST_FAILURES:
            return
        results.loads.append(machine.load())
        try:
            figures = self._figures(workload, command)
        except Exception as error:
            self._failed(workload, command, error, what)
            return
        results.add(section, workload.name, command.name, figures, at=at)
        self._run.say(f"{what}  {_words(workload.name, figures)}")

    def _figures(self, workload: Workload, command: Command) -> Figures:
        if command.name == KERNEL:
            return KERNEL_FLOORS[workload.name](self._scale)
        if workload.server == "shared":
            return workload.run(self._server(command), self._scale)
        state = self._scale.scratch / "state" if workload.server == "durable" else None
        with Server(command, self._part.conditions, state=state) as server:
            if workload.server in ("fresh", "durable"):
                server.warm_up()
            return workload.run(server, self._scale)

    def _server(self, command: Command) -> Server:
        server = self._shared.get(command.line)
        if server is None:
            server = self._shared[command.line] = Server(command, self._part.conditions)
            server.start()
            # A floor runs no command.
            if command.workloads is None:
                server.warm_up()
        return server

    def _failed(self, workload: Workload, command: Command, error: Exception, what: str) -> None:
        words = f"{type(error).__name__}: {error}"
        self._run.say(f"{what}  FAILED  {words}")
        if workload.is_vital:
            raise VerifyFailed(f"{command.name}, {workload.name}: {words}") from error
        key = (workload.name, command.name)
        self._failures[key] = self._failures.get(key, 0) + 1
        self._run.results.errors.append(f"{self._part.section}, {', '.join(key)}: {words}")
        # Whatever it was doing, the next workload is not to suffer from it.
        if workload.server == "shared" and (server := self._shared.pop(command.line, None)):
            server.stop()


def _words(workload: str, figures: Figures) -> str:
    shown = (
        f"{metric} {_UNITS[workload, metric].words(figure)}" for metric, figure in figures.items()
    )
    return ", ".join(shown) or "as it should be"


@contextmanager
def _affinity(cpus: frozenset[int] | None) -> Iterator[None]:
    """Run on *cpus* for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

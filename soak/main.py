"""The course of a soak: start all parts, kill some for a while, and check that nothing was lost."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import shutil
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from exec_server.cli.event_loop import in_loop
from soak import report
from soak.chaos import CONNECTIONS, Chaos
from soak.harnesses import (
    DurableEchoes,
    DurableFlood,
    DurableTicks,
    Echoes,
    Files,
    Flood,
    Harness,
    Ticks,
    Visits,
)
from tests.support.balancer import Balancer
from tests.support.cluster import Cluster
from tests.support.ports import free_ports

# An executor that is left alone, and those that are killed, whose jobs are durable.
_NAME = "soak"
_DURABLE = ("durable-0", "durable-1")
# The time that all harnesses have to finish after the last kill.
_FINISH_SECONDS = 90.0


def main(words: list[str]) -> int:
    options = _options(words)
    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(32)
    print(f"seed {seed}, {options.seconds:g} s", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="exec-soak-"))
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    logging.basicConfig(
        filename=folder / "soak.log",
        level=logging.DEBUG,
        format="%(asctime)s %(name)s: %(message)s",
    )
    (port,) = free_ports(1)
    try:
        with Cluster(folder, public_url=f"http://127.0.0.1:{port}") as cluster:
            is_well = in_loop(_soak(cluster, port, seed=seed, options=options))
    except pytest.skip.Exception as exc:
        print(f"cannot run: {exc}")
        return 1
    if is_well and not options.keep:
        shutil.rmtree(folder)
    else:
        print(f"the logs are in {folder}")
    if not is_well:
        print(f"failed with seed {seed}")
    return 0 if is_well else 1


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak/run.py", description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=120.0, help="how long parts are killed [%(default)s]")
    add("--seed", type=int, help="decides what is killed when [default: a random one]")
    add("--each", type=int, default=2, help="harnesses of each kind [%(default)s]")
    add("--only", nargs="*", default=[], help="kill only these: node-0, durable-1, ...")
    add("--fast-pause", type=float, default=0.0, help="seconds between lines of fast output")
    add("--keep", action="store_true", help="keep the logs of all parts")
    return parser.parse_args(words)


async def _soak(cluster: Cluster, port: int, *, seed: int, options: argparse.Namespace) -> bool:
    enrolment = await cluster.token("enrol")
    secret = await cluster.token("connect", "list")
    draw = random.Random(seed)
    async with AsyncExitStack() as stack:
        balancer = await stack.enter_async_context(Balancer(cluster.ports, port=port).run())
        stack.enter_context(cluster.executor(balancer.url, _NAME, enrolment))
        executors = {
            name: stack.enter_context(
                cluster.executor(balancer.url, name, enrolment, state=cluster.folder / name)
            )
            for name in _DURABLE
        }
        for name in (_NAME, *executors):
            await cluster.until_online(name, secret)
        where = f"noise+{balancer.url}"
        harnesses = _harnesses(where, secret, cluster.folder, draw, options)
        victims = options.only or [*cluster.names, CONNECTIONS, *executors]
        chaos = Chaos(cluster, balancer, victims, draw, executors)
        error = await _outlast(harnesses, chaos, options.seconds)
    print(report.text(harnesses, chaos), flush=True)
    if error is not None:
        print(report.failure(error), flush=True)
    return error is None


def _harnesses(
    registry: str, token: str, folder: Path, draw: random.Random, options: argparse.Namespace
) -> list[Harness]:
    made: list[Harness] = []
    url = f"{registry}/{_NAME}"
    for number in range(options.each):
        marks = folder / f"marks-{number}"
        marks.mkdir()
        pause = options.fast_pause
        made += [
            Flood(f"flood-{number}", url, token, marks, pause=pause),
            Ticks(f"ticks-{number}", url, token, marks),
            Echoes(f"echoes-{number}", url, token, marks),
            Files(f"files-{number}", url, token, marks, random.Random(draw.random())),
            Visits(f"visits-{number}", url, token, marks),
        ]
        kept = f"{registry}/{_DURABLE[number % len(_DURABLE)]}"
        made += [
            DurableFlood(f"durable-flood-{number}", kept, token, marks, pause=pause),
            DurableTicks(f"durable-ticks-{number}", kept, token, marks),
            DurableEchoes(f"durable-echoes-{number}", kept, token, marks),
        ]
    return made


async def _outlast(harnesses: list[Harness], chaos: Chaos, seconds: float) -> BaseException | None:
    """The first error, if there was one."""
    started_at = time.monotonic()
    try:
        async with asyncio.TaskGroup() as tasks:
            for harness in harnesses:
                tasks.create_task(harness.run(), name=harness.name)
            await asyncio.gather(*(harness.has_begun.wait() for harness in harnesses))
            print(f"all run after {time.monotonic() - started_at:.1f} s", flush=True)
            await chaos.run(seconds)
            for harness in harnesses:
                harness.stop()
            tasks.create_task(_expire(harnesses))
    except (Exception, BaseExceptionGroup) as exc:
        return exc
    return None


async def _expire(harnesses: list[Harness]) -> None:
    try:
        async with asyncio.timeout(_FINISH_SECONDS):
            await asyncio.gather(*(harness.is_over.wait() for harness in harnesses))
    except TimeoutError:
        late = [harness.name for harness in harnesses if not harness.is_over.is_set()]
        raise AssertionError(f"not finished after {_FINISH_SECONDS:g} s: {late}") from None

"""Ways to start a program, compared: the figures behind the keeper in docs/decisions.md.

    python bench/spawn_alternatives.py [--count 200] [--rounds 3]

Each way runs `/bin/true` on two pipes from an event loop, until both have ended and its exit is
known. It does so in a fresh process, and again beside 1,000 sleeping processes that it has started
the same way and 500 MB of memory that it has touched. Columns: the median and the 99th percentile
of one start after the other; starts a second with 16 under way; and the longest time in which
the event loop gets to nothing else during a start (the median over starts).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
from exec_server.process.spawn import Launch, Spawner

SLEEPERS = 1000
HEAP_BYTES = 500 * 1000 * 1000
CONCURRENCY = 16
PROGRAM = ["/bin/true"]
SLEEP = ["/bin/sleep", "600"]


class Started(NamedTuple):
    """A program under way: its two pipes, unless the loop has them, and how to await its exit."""

    fds: tuple[int, ...]
    exit: Callable[[], Awaitable[Any]]


class Way(Protocol):
    """How programs are started."""

    async def start(self, argv: list[str]) -> Started: ...

    async def finish(self) -> None: ...


class ThroughTheKeeper:
    """What the server does: another process starts the program and passes its pipes on."""

    def __init__(self) -> None:
        self._spawner = Spawner(orphan_grace=1.0)

    async def start(self, argv: list[str]) -> Started:
        exited = asyncio.get_running_loop().create_future()
        words = [word.encode() for word in argv]
        launch = Launch(words[0], words, {}, b"/", None, False)
        spawned = await self._spawner.spawn(launch, lambda status, *_: exited.set_result(status))
        return Started(tuple(spawned.fds), lambda: exited)

    async def finish(self) -> None:
        await self._spawner.stop(within=30.0)


class InProcess:
    """The server forks by itself and waits for a pidfd; *spawn* does the first half."""

    def __init__(self, spawn: Callable[[list[str], int, int], int]) -> None:
        self._spawn = spawn
        self._pids: set[int] = set()

    async def start(self, argv: list[str]) -> Started:
        out_reader, out_writer = os.pipe()
        err_reader, err_writer = os.pipe()
        pid = self._spawn(argv, out_writer, err_writer)
        os.close(out_writer)
        os.close(err_writer)
        self._pids.add(pid)
        return Started((out_reader, err_reader), lambda: self._exit_of(pid))

    async def _exit_of(self, pid: int) -> None:
        pidfd = os.pidfd_open(pid)
        await readable(pidfd)
        os.close(pidfd)
        self._reap(pid)

    def _reap(self, pid: int) -> None:
        os.waitpid(pid, os.WNOHANG)
        self._pids.remove(pid)

    async def finish(self) -> None:
        for pid in tuple(self._pids):
            os.kill(pid, signal.SIGKILL)
            await self._exit_of(pid)


def popen(argv: list[str], stdout: int, stderr: int) -> int:
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={},
        cwd="/",
        start_new_session=True,
    )
    # We reap it ourselves.
    process.returncode = 0
    return process.pid


def posix_spawn(argv: list[str], stdout: int, stderr: int) -> int:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, stdout, 1),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
    ]
    return os.posix_spawn(argv[0], argv, {}, file_actions=actions, setsid=True)


def fork_and_exec(argv: list[str], stdout: int, stderr: int) -> int:
    """What a parent-death signal or a controlling terminal would ask of `preexec_fn`."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.execve(argv[0], argv, {})
    return pid


class LoopSubprocess:
    """`asyncio.create_subprocess_exec`, as the event loop brings it."""

    def __init__(self) -> None:
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self, argv: list[str]) -> Started:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=-1, env={}, cwd="/"
        )
        self._processes.append(process)
        return Started((), process.communicate)

    async def finish(self) -> None:
        living = [process for process in self._processes if process.returncode is None]
        for process in living:
            process.kill()
        await asyncio.gather(*(process.wait() for process in living))


WAYS: dict[str, tuple[Callable[[], Way], Callable[[], asyncio.AbstractEventLoop]]] = {
    "keeper": (ThroughTheKeeper, uvloop.new_event_loop),
    "subprocess.Popen": (lambda: InProcess(popen), uvloop.new_event_loop),
    "os.posix_spawn": (lambda: InProcess(posix_spawn), uvloop.new_event_loop),
    "os.fork": (lambda: InProcess(fork_and_exec), uvloop.new_event_loop),
    "asyncio subprocess": (LoopSubprocess, asyncio.new_event_loop),
    "uvloop subprocess": (LoopSubprocess, uvloop.new_event_loop),
}


# Measuring.


class Heartbeat:
    """Runs in every turn of the loop and remembers the longest time between two of them."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def beat(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last)
            last = now


async def readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, tell)
    await ready
    loop.remove_reader(fd)


async def ended(fd: int) -> None:
    os.set_blocking(fd, False)
    await readable(fd)
    os.close(fd)


async def run_one(way: Way) -> float:
    """Seconds from the start of a program to the end of its pipes and of itself."""
    begin = time.perf_counter()
    started = await way.start(PROGRAM)
    await asyncio.gather(started.exit(), *map(ended, started.fds))
    return time.perf_counter() - begin


async def longest_pauses(way: Way, count: int) -> list[float]:
    heart = Heartbeat()
    beating = asyncio.create_task(heart.beat())
    pauses = []
    for _ in range(count):
        heart.longest = 0.0
        await run_one(way)
        pauses.append(heart.longest)
    beating.cancel()
    return pauses


async def rate_at_once(way: Way, count: int) -> float:
    slots = asyncio.Semaphore(CONCURRENCY)

    async def in_a_slot() -> None:
        async with slots:
            await run_one(way)

    begin = time.perf_counter()
    await asyncio.gather(*(in_a_slot() for _ in range(count)))
    return count / (time.perf_counter() - begin)


async def measure(way: Way, count: int, *, is_loaded: bool) -> dict[str, float]:
    for _ in range(SLEEPERS if is_loaded else 0):
        await way.start(SLEEP)
    ballast = bytearray(HEAP_BYTES if is_loaded else 0)
    ballast[::4096] = b"x" * len(ballast[::4096])
    for _ in range(count // 10):
        await run_one(way)
    times = sorted([await run_one(way) for _ in range(count)])
    rate = await rate_at_once(way, count)
    pause = statistics.median(await longest_pauses(way, count // 3))
    await way.finish()
    return {
        "p50": times[count // 2] * 1e3,
        "p99": times[count * 99 // 100] * 1e3,
        "rate": rate,
        "pause": pause * 1e3,
    }


def measure_here(name: str, count: int, *, is_loaded: bool) -> None:
    make, new_loop = WAYS[name]
    with asyncio.Runner(loop_factory=new_loop) as runner:

        async def main() -> dict[str, float]:
            return await measure(make(), count, is_loaded=is_loaded)

        print(json.dumps(runner.run(main())))


def measure_apart(name: str, count: int, *, is_loaded: bool) -> dict[str, float]:
    """The same in a process of its own: what one way leaves behind must not burden the next."""
    command = [sys.executable, __file__, "--only", name, "--count", str(count)]
    command += ["--loaded"] if is_loaded else []
    result: dict[str, float] = json.loads(subprocess.check_output(command))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=200, help="starts of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each way")
    parser.add_argument("--only", choices=WAYS, help="measure one way here, and print JSON")
    parser.add_argument("--loaded", action="store_true", help="beside processes and memory")
    options = parser.parse_args()
    if options.only:
        measure_here(options.only, options.count, is_loaded=options.loaded)
        return
    versions = f"Python {sys.version.split()[0]}, uvloop {version('uvloop')}"
    print(f"{versions}, {os.cpu_count()} CPUs;")
    print(f"medians of {options.rounds} rounds of {options.count} starts\n")
    print(f"{'':20} {'':8} {'p50 ms':>8} {'p99 ms':>8} {'x16 /s':>8} {'pause ms':>9}")
    runs: dict[tuple[str, bool], list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for is_loaded in (False, True):
            for name in WAYS:
                run = measure_apart(name, options.count, is_loaded=is_loaded)
                runs.setdefault((name, is_loaded), []).append(run)
    for (name, is_loaded), results in runs.items():
        p50, p99, rate, pause = (
            statistics.median(result[key] for result in results)
            for key in ("p50", "p99", "rate", "pause")
        )
        state = "loaded" if is_loaded else "fresh"
        print(f"{name:20} {state:8} {p50:8.2f} {p99:8.2f} {rate:8.0f} {pause:9.2f}")


if __name__ == "__main__":
    main()

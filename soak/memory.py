"""A soak that looks for memory, descriptors and tasks that grow: ``python soak/memory.py --help``.

The first part works on one server, the second one on a registry with two executors.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from aiohttp import web

from exec_server.access.token_secrets import digest_of
from exec_server.cli.event_loop import in_loop
from exec_server.hub.access.tokens import new_token
from exec_server.hub.store.entities import Right
from exec_server.hub.store.open_store import open_store
from soak import workloads
from soak.samples import Watch
from soak.workloads import Rounds, connector
from tests.support.fault_proxy import fault_proxy

_ROOT = Path(__file__).resolve().parent.parent
_SAMPLE_SECONDS = 1.0
# Sessions of the programs under test are forgotten after 15 s (server) or 30 s.
_SETTLE_SECONDS = 60.0
_BODY = bytes(8 << 20)


class Program:
    """A program under test; it prints its URL when it is ready."""

    def __init__(self, folder: Path, name: str, words: Sequence[str], *, speaks: bool) -> None:
        self.name = name
        self._socket = folder / f"{name}.socket"
        self._log = (folder / f"{name}.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, _ROOT / "soak/observed.py", self._socket, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(_ROOT), "XDG_STATE_HOME": str(folder)},
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip() if speaks else ""
        assert self.url or not speaks, f"{name} did not start: see {self._log.name}"

    def watch(self) -> Watch:
        return Watch(self.name, self._process.pid, self._socket)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


@contextlib.contextmanager
def running(folder: Path, name: str, *words: str, speaks: bool = True) -> Iterator[Program]:
    program = Program(folder, name, words, speaks=speaks)
    try:
        yield program
    finally:
        program.stop()


@contextlib.asynccontextmanager
async def http_target() -> AsyncIterator[str]:
    """The URL of 8 MiB."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=_BODY)

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def one_server(folder: Path, seconds: float) -> list[str]:
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(running(folder, "server", "server"))
        target = await stack.enter_async_context(http_target())
        proxy = await stack.enter_async_context(fault_proxy(server.url))
        connect = connector(server.url)
        rounds = Rounds()
        rounds.add("commands", workloads.commands(connect), times=2)
        rounds.add("tiny commands", workloads.tiny_commands(connect))
        rounds.add("terminals", workloads.terminals(connect))
        rounds.add("files", workloads.files(connect, folder))
        rounds.add("http", workloads.http(connect, target))
        rounds.add("large input", workloads.large_input(connect))
        rounds.add("reconnects", workloads.reconnects(proxy, connector(proxy.url)))
        rounds.add("abandoned", workloads.abandoned(server.url))
        rounds.add("unacknowledged", workloads.unacknowledged(server.url))
        rounds.add("deaf", workloads.deaf(server.url))
        rounds.add("half-open", workloads.half_open(server.url))
        return await soaked([server], rounds, seconds)


async def a_registry(folder: Path, seconds: float) -> list[str]:
    state = str(folder / "registry.sqlite3")
    async with contextlib.AsyncExitStack() as stack:
        registry = stack.enter_context(
            running(
                folder, "registry", "registry", "--listen", "ws://127.0.0.1:0", "--state", state
            )
        )
        secret = await token(state, "connect", "list")
        file = folder / "enrol.token"
        file.write_text(await token(state, "enrol"))
        file.chmod(0o600)
        executors = [
            stack.enter_context(
                running(folder, name, *executor_words(registry.url, name, file), speaks=False)
            )
            for name in ("stays", "second")
        ]
        proxy = await stack.enter_async_context(fault_proxy(registry.url))
        connects = [
            connector(f"noise+{registry.url}/{name}", token=secret) for name in ("stays", "second")
        ]
        through = proxy.url.replace("ws://", "noise+http://")
        cut = connector(f"{through}/stays", token=secret)
        await reachable(connects)
        rounds = Rounds()
        for connect in connects:
            rounds.add("commands", workloads.commands(connect, count=5))
            rounds.add("visits", workloads.visits(connect))
            rounds.add("files", workloads.files(connect, folder))
        rounds.add("terminals", workloads.terminals(connects[0]))
        rounds.add("large input", workloads.large_input(connects[1]))
        rounds.add("half-open", workloads.half_open(registry.url))
        rounds.add("left", left_behind(connects[0]))
        rounds.add("flapping", flapping(folder, registry.url, file, secret))
        rounds.add("reconnects", workloads.reconnects(proxy, cut))
        return await soaked([registry, *executors], rounds, seconds)


def executor_words(url: str, name: str, file: Path) -> list[str]:
    return ["--remote", url, "--environment-id", name, "--registry-token-file", str(file)]


async def token(state: str, *rights: Right) -> str:
    store = await open_store(state)
    try:
        made, secret = new_token("soak", rights, ("*",), now=time.time())
        await store.add_token(made, digest_of(secret))
    finally:
        await store.close()
    return secret


async def reachable(connects: Sequence[workloads.Connect]) -> None:
    """Return once all executors can be used."""
    for connect in connects:
        async with asyncio.timeout(60):
            while True:
                try:
                    async with connect():
                        break
                except Exception:
                    await asyncio.sleep(0.2)


def left_behind(connect: workloads.Connect) -> workloads.Round:
    """Clients whose task is cancelled, with commands that run on for the time of a session."""

    async def stay() -> None:
        async with connect() as client:
            await asyncio.gather(*(client.run(["yes"]) for _ in range(2)))

    async def work() -> None:
        task = asyncio.ensure_future(stay())
        await asyncio.wait([task], timeout=1.0)
        task.cancel()
        await asyncio.wait([task])

    return work


def flapping(folder: Path, url: str, file: Path, secret: str) -> workloads.Round:
    """An executor that comes and goes, with a client each time."""
    numbers = iter(range(1_000_000))

    async def work() -> None:
        name = f"flap-{next(numbers)}"
        program = await asyncio.to_thread(
            Program, folder, name, executor_words(url, name, file), speaks=False
        )
        try:
            connect = connector(f"noise+{url}/{name}", token=secret)
            await reachable([connect])
            await workloads.visits(connect)()
        finally:
            await asyncio.to_thread(program.stop)

    return work


async def soaked(programs: Sequence[Program], rounds: Rounds, seconds: float) -> list[str]:
    """Do the work while the programs are watched, and return what is wrong, in words."""
    watches = [program.watch() for program in programs]
    for watch in watches:
        await watch.begin()
    sampling = [asyncio.ensure_future(watch.run(_SAMPLE_SECONDS)) for watch in watches]
    try:
        await rounds.run(seconds)
    finally:
        for task in sampling:
            task.cancel()
        await asyncio.wait(sampling)
    print("  rounds:", ", ".join(f"{name} {count}" for name, count in rounds.done.items()))
    wrong = [words for watch in watches for words in watch.growth()]
    wrong += [words for watch in watches for words in await settled(watch)]
    for watch in watches:
        print(watch.report(), flush=True)
    return wrong


async def settled(watch: Watch) -> list[str]:
    """What a program still holds after the time in which it forgets its clients, in words."""
    until = asyncio.get_running_loop().time() + _SETTLE_SECONDS
    while True:
        now = await watch.take()
        left = watch.left(now)
        if not left or asyncio.get_running_loop().time() > until:
            print(f"  {watch.name} (after):      {now}")
            return left
        await asyncio.sleep(_SAMPLE_SECONDS)


_PARTS = {"server": one_server, "registry": a_registry}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak/memory.py", description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=120.0, help="for all parts together [%(default)s]")
    add("--only", choices=list(_PARTS), help="one part alone")
    add("--keep", action="store_true", help="keep the logs")
    options = parser.parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="exec-soak-"))
    parts = [options.only] if options.only else list(_PARTS)
    wrong: list[str] = []
    for name in parts:
        print(f"{name}: {options.seconds / len(parts):g} s", flush=True)
        wrong += in_loop(_PARTS[name](folder, options.seconds / len(parts)))
    for line in wrong:
        print(f"WRONG {line}")
    if wrong or options.keep:
        print(f"the logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The mixed work of a memory soak. Each kind repeats one round until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import exec_server
from tests.support.fault_proxy import FaultProxy
from tests.support.faults import Deaf
from tests.support.raw import RawSocket
from tests.support.wire import Wire

_MIB = 1 << 20
OUTPUT = 1_000_000
_PRINTS = ["head", "-c", str(OUTPUT), "/dev/zero"]
_TERMINAL = ["sh", "-c", "stty raw -echo; head -c 200000 /dev/zero"]
_HOLD_SECONDS = 2.0

Connect = Callable[[], Any]
Round = Callable[[], Awaitable[None]]


class Rounds:
    """Runs rounds of work at the same time, and counts them."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self._rounds: list[tuple[str, Round]] = []

    def add(self, name: str, work: Round, *, times: int = 1) -> None:
        self._rounds += [(name, work)] * times

    async def run(self, seconds: float) -> None:
        """Repeat all rounds for some time. Raises the first error of a round."""
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as tasks:
            for name, work in self._rounds:
                tasks.create_task(self._repeat(name, work, until), name=name)

    async def _repeat(self, name: str, work: Round, until: float) -> None:
        while asyncio.get_running_loop().time() < until:
            await work()
            self.done[name] += 1


# Clients that behave.


def commands(connect: Connect, *, count: int = 20) -> Round:
    """Commands with 1 MB of output each, of one client."""

    async def work() -> None:
        async with connect() as client:
            for _ in range(count):
                found = await asyncio.gather(*(client.run(_PRINTS) for _ in range(4)))
                assert all(len(each.stdout) == OUTPUT for each in found)

    return work


def tiny_commands(connect: Connect, *, count: int = 200) -> Round:
    async def work() -> None:
        async with connect() as client:
            for _ in range(count // 10):
                found = await asyncio.gather(*(client.run(["true"]) for _ in range(10)))
                assert all(each.returncode == 0 for each in found)

    return work


def terminals(connect: Connect) -> Round:
    async def work() -> None:
        async with connect() as client:
            for _ in range(10):
                found = await client.run(_TERMINAL, tty=True)
                assert len(found.stdout) == 200_000, len(found.stdout)

    return work


def files(connect: Connect, folder: Path) -> Round:
    async def work() -> None:
        path = str(folder / f"{random.getrandbits(64):x}")
        data = os.urandom(4 * _MIB)
        async with connect() as client:
            for _ in range(10):
                await client.fs.write_bytes(path, data)
                assert await client.fs.read_bytes(path) == data
        os.unlink(path)

    return work


def http(connect: Connect, url: str) -> Round:
    """Streams of 8 MiB, read to the end and abandoned in turn."""

    async def work() -> None:
        async with connect() as client:
            for number in range(6):
                async with client.http.stream("GET", url) as answer:
                    size = 0
                    async for data in answer:
                        size += len(data)
                        if number % 2:
                            break
                    assert number % 2 or size == 8 * _MIB, size

    return work


def large_input(connect: Connect) -> Round:
    """More standard input than a command reads, which is then killed."""

    async def work() -> None:
        async with connect() as client:
            process = await client.start(["sleep", "60"], stdin=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HOLD_SECONDS):
                    while True:
                        await process.write(bytes(4 * _MIB))
            await process.terminate()

    return work


def reconnects(proxy: FaultProxy, connect: Connect) -> Round:
    """A client that loses its connection again and again while its commands print."""

    async def work() -> None:
        async with connect() as client:
            for _ in range(5):
                running = asyncio.ensure_future(client.run(_PRINTS))
                await asyncio.sleep(0.01)
                proxy.cut()
                assert len((await running).stdout) == OUTPUT

    return work


# Clients that misbehave. They speak the wire themselves.


def abandoned(url: str) -> Round:
    """Sessions that are left with processes, which print, and never resumed."""

    async def work() -> None:
        for _ in range(10):
            async with Wire(url) as wire:
                await wire.initialize()
                for number in range(3):
                    await wire.start(f"p{number}", _PRINTS)
                await wire.start("left", ["sleep", "60"])
                wire.cut()
        await asyncio.sleep(0.5)

    return work


def unacknowledged(url: str) -> Round:
    """Processes with a window, of a client that never acknowledges."""

    async def work() -> None:
        async with Wire(url) as wire:
            await wire.initialize()
            for number in range(8):
                await wire.start(f"p{number}", ["yes"], flowWindow=4 * _MIB)
            await asyncio.sleep(_HOLD_SECONDS)

    return work


def deaf(url: str) -> Round:
    """Clients that never read, with processes that print for ever."""

    async def work() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(4):
                client = await stack.enter_async_context(Deaf(url))
                await client.initialize()
                await client.start("p", ["yes"])
            await asyncio.sleep(_HOLD_SECONDS)

    return work


def half_open(url: str, *, count: int = 60) -> Round:
    """Connections that say nothing, or one byte after the other."""

    async def work() -> None:
        url_of_socket = url.replace("http://", "ws://")
        async with contextlib.AsyncExitStack() as stack:
            opened = []
            for number in range(count):
                sock = await stack.enter_async_context(RawSocket(url_of_socket))
                if number % 2:
                    opened.append(sock)
            for letter in b"GET / HTTP/1.1\r\nHost: ":
                for sock in opened:
                    # The server may have closed it, which uvloop tells by a RuntimeError.
                    with contextlib.suppress(ConnectionError, RuntimeError):
                        await sock.send(bytes([letter]))
                await asyncio.sleep(_HOLD_SECONDS / 20)

    return work


def visits(connect: Connect) -> Round:
    """New clients, one command each."""

    async def work() -> None:
        async with connect() as client:
            assert (await client.run(["echo", "x"])).stdout == b"x\n"

    return work


def connector(url: str, **options: Any) -> Connect:
    return lambda: exec_server.connect(url, **options)

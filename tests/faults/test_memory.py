"""The memory of a server stays bounded, whatever its commands print."""

from __future__ import annotations

import gc
import sys

import msgspec
import pytest

from exec_server.limits import DEFAULT_LIMITS, MIB
from exec_server.process.child import Child
from exec_server.sandbox.backends import HERE
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.sandbox.test_processes import read_only
from tests.support.leaks import eventually
from tests.support.proxied import wanted
from tests.support.servers import start_server
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

TOTAL = 24 * MIB
# What else a server needs at the peak: messages on their way, and freed memory that is kept.
SLACK = 24 * MIB
OUTPUT = 1_100_000
SERVER = f"""
import asyncio, msgspec
from exec_server.limits import DEFAULT_LIMITS
from exec_server.server.serving import run_main
asyncio.run(run_main(limits=msgspec.structs.replace(
    DEFAULT_LIMITS, retained_total_bytes={TOTAL}, detached_session_seconds=0.1)))
"""
PRINTS = ["head", "-c", str(OUTPUT), "/dev/zero"]


def children() -> list[Child]:
    return [each for each in gc.get_objects() if isinstance(each, Child)]


async def run_commands(wire: Wire, first: int, count: int, *, at_once: int = 4) -> None:
    """Run commands that print, and take all of their output."""
    for number in range(first, first + count, at_once):
        names = [f"p{number + each}" for each in range(at_once)]
        for name in names:
            await wire.start(name, PRINTS)
        for name in names:
            await wire.events_until_closed(name)


@requirement("memory:plateau", "memory:given-back")
async def test_the_memory_of_a_server_reaches_a_plateau_and_comes_back():
    with start_server(command=[sys.executable, "-c", SERVER]) as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            await run_commands(wire, 0, 4)
            at_first = server.resident_bytes
            await run_commands(wire, 4, 116)
            grown = server.resident_bytes - at_first
            assert grown < TOTAL + SLACK, f"{grown / MIB:.0f} MiB"
        # The client has left for good; 0.1 s later its session is gone.
        await eventually(lambda: server.resident_bytes < at_first + SLACK)


@requirement("memory:no-cycles")
async def test_an_ended_process_is_freed_without_the_collector():
    limits = msgspec.structs.replace(DEFAULT_LIMITS, closed_process_seconds=0.0)
    async with serve(limits=limits) as server:
        async with Wire(server.url) as wire:
            await wire.initialize(concurrentRequests=8)
            gc.collect()
            gc.disable()
            try:
                await wire.run("pipes", PRINTS)
                await wire.run("terminal", ["echo", "x"], tty=True)
                await wire.run("input", ["cat", "/dev/null"], pipeStdin=True)
                window = await wire.run("window", PRINTS, flowWindow=4 * MIB)
                seq = window.events[-1]["params"]["seq"]
                await wire.send(
                    {"method": "process/ack", "params": {"processId": "window", "seq": seq}}
                )
                if HERE.bubblewrap_report.works or HERE.landlock_report.works:
                    await wire.run("sandbox", ["echo", "x"], sandbox=read_only())
                await wire.run("proxy", ["true"], networkProxy=wanted())
                del window
                await eventually(lambda: not children())
            finally:
                gc.enable()

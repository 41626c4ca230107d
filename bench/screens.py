"""What models of terminals cost and how fast waits are: `python bench/screens.py [WAITS]`.

Latencies are counted from the moment at which the program's deciding byte is written, by a program
that prints the time with it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path

import exec_server
from exec_server.terminal import open_engine

WAITS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
ROUNDS = 5
MEGABYTES = 40
MODELS = 200
# Prints the clock of this machine each time that a line is typed.
CLOCK = """
import sys, time
for number, line in enumerate(sys.stdin):
    print(f"answer {number} {time.perf_counter_ns()}", flush=True)
"""
FLOOD = f"yes 'a line of output with some words in it' | head -c {MEGABYTES}M"


async def latency(client: exec_server.ExecServerClient) -> None:
    argv = [sys.executable, "-u", "-c", CLOCK]
    took = []
    async with await client.start(argv, tty=True, screen=True) as process:
        await process.screen()
        for number in range(WAITS):
            waiting = asyncio.create_task(process.wait_for(regex=rf"^answer {number} (\d+)"))
            await process.write(b"\n")
            match = await waiting
            now = time.perf_counter_ns()
            took.append((now - int((match.text or "").split()[2])) / 1e6)
    took.sort()
    middle, late = statistics.median(took), took[int(len(took) * 0.99)]
    print(f"wait after the deciding byte: p50 {middle:.2f} ms, p99 {late:.2f} ms ({WAITS} waits)")


async def cost(client: exec_server.ExecServerClient) -> None:
    ratios = []
    for _ in range(ROUNDS):
        rates = []
        for screen in (False, True):
            process = await client.start(["sh", "-c", FLOOD], tty=True, screen=screen)
            began, size = time.perf_counter(), 0
            async for chunk in process:
                size += len(chunk.data)
            rates.append(size / (time.perf_counter() - began) / 1e6)
        ratios.append(rates[1] / rates[0])
        print(f"terminal output: {rates[0]:.0f} MB/s without a model, {rates[1]:.0f} MB/s with one")
    change = 100 * (statistics.median(ratios) - 1)
    print(f"a model changes the rate by {change:+.1f} % (median of {ROUNDS} pairs)")


async def memory(client: exec_server.ExecServerClient) -> None:
    processes = []
    for _ in range(MODELS):
        process = await client.start(["sleep", "600"], tty=True, screen=True)
        processes.append(process)
        if len(processes) == 1:
            await process.screen()
            before = _resident()
        await process.screen()
    grown = _resident() - before
    print(f"{MODELS} idle models: {grown / 1e6:.1f} MB, {grown / MODELS / 1e3:.0f} kB each")
    for process in processes:
        await process.terminate()


def _resident() -> int:
    """The memory of the host, which is the only process with this module on its command line."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"screens.host_main" in (entry / "cmdline").read_bytes():
                status = (entry / "status").read_text().splitlines()
                (line,) = [line for line in status if line.startswith("VmRSS")]
                return int(line.split()[1]) << 10
        except OSError:
            continue
    raise SystemExit("there is no host")


def dumps() -> None:
    engine = open_engine(120, 40)
    for number in range(3000):
        engine.feed(
            b"\x1b[3%dm%d\x1b[0m some words of output %d\r\n" % (number % 8, number, number)
        )
    for history in (0, 1000):
        took = []
        for _ in range(20):
            began = time.perf_counter()
            data = engine.dump(history=history)
            took.append(time.perf_counter() - began)
        middle = statistics.median(took) * 1e3
        print(f"dump of 120x40 and {history} rows: {len(data) / 1e3:.1f} kB in {middle:.1f} ms")
    engine.close()


async def main() -> None:
    dumps()
    async with exec_server.local() as client:
        await latency(client)
        await cost(client)
        await memory(client)


if __name__ == "__main__":
    asyncio.run(main())

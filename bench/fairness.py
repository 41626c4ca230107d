"""How much a tenant at its quota costs another one: ``python -m bench.fairness``.

One principal has used up its processes and goes on to start more, from several connections, as fast
as it is answered. Another one starts `true` again and again. Its latency alone and beside the first
is measured in turns, so that the load of the machine is the same for both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from exec_server.access.principal import Principal, Quotas, unrestricted
from exec_server.client.client import ExecServerClient
from exec_server.client_urls import connect
from exec_server.errors import QuotaReached
from exec_server.server.serving import serve
from exec_server.transport.connection import Connection

# Connections of the same user are told apart by the order in which they come.
NOISY_CONNECTIONS = 4
# Starts that each noisy connection waits for at a time.
IN_FLIGHT = 16


def _serve(path: str, ready: Any) -> None:
    asyncio.run(_run_server(path, ready))


async def _run_server(path: str, ready: Any) -> None:
    logging.disable()
    count = 0

    def find(connection: Connection) -> Principal:
        nonlocal count
        count += 1
        if count == 1:
            return unrestricted("quiet")
        return Principal(name="noisy", quotas=Quotas(max_processes=1))

    async with serve(f"unix://{path}", find_principal=find):
        ready.set()
        await asyncio.Event().wait()


def _make_noise(path: str, is_loud: Any) -> None:
    asyncio.run(_hammer(path, is_loud))


async def _hammer(path: str, is_loud: Any) -> None:
    async def repeat(client: ExecServerClient) -> None:
        while True:
            if not is_loud.is_set():
                await asyncio.sleep(0.01)
                continue
            try:
                await client.start(["sleep", "3600"])
            except QuotaReached:
                continue

    async with contextlib.AsyncExitStack() as opened, asyncio.TaskGroup() as tasks:
        for _ in range(NOISY_CONNECTIONS):
            client = await opened.enter_async_context(connect(f"unix://{path}"))
            for _ in range(IN_FLIGHT):
                tasks.create_task(repeat(client))


async def _measure(client: ExecServerClient, starts: int) -> list[float]:
    seconds = []
    for _ in range(starts):
        begin = time.perf_counter()
        await client.run(["true"])
        seconds.append(time.perf_counter() - begin)
    return seconds


async def _compare(path: str, is_loud: Any, *, turns: int, starts: int) -> None:
    alone: list[float] = []
    beside: list[float] = []
    async with connect(f"unix://{path}") as client:
        await _measure(client, starts)
        noise = multiprocessing.Process(target=_make_noise, args=(path, is_loud), daemon=True)
        noise.start()
        await asyncio.sleep(2.0)
        for _ in range(turns):
            for found, is_noisy in ((alone, False), (beside, True)):
                is_loud.set() if is_noisy else is_loud.clear()
                await asyncio.sleep(0.3)
                found += await _measure(client, starts)
        noise.kill()
        noise.join()
    for name, found in (("alone", alone), ("beside a tenant at its quota", beside)):
        median, p90 = statistics.median(found), statistics.quantiles(found, n=10)[-1]
        print(f"{name}: median {median * 1000:.2f} ms, 90 % within {p90 * 1000:.2f} ms")
    ratio = statistics.median(beside) / statistics.median(alone)
    print(f"the median is {100 * (ratio - 1):+.1f} %, of {len(alone)} starts each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--starts", type=int, default=50)
    options = parser.parse_args()
    multiprocessing.set_start_method("spawn")
    ready, is_loud = multiprocessing.Event(), multiprocessing.Event()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "s")
        server = multiprocessing.Process(target=_serve, args=(path, ready), daemon=True)
        server.start()
        ready.wait()
        try:
            asyncio.run(_compare(path, is_loud, turns=options.turns, starts=options.starts))
        finally:
            server.terminate()
            server.join()


if __name__ == "__main__":
    main()

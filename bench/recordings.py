"""What recordings of terminals cost a server: `make recordings-bench`.

    make recordings-bench ARGS='--rounds 5 --megabytes 43'
    make recordings-bench ARGS=--free-core

A server with and one without `--record-terminals` run the same floods in turns, and the client
counts the bytes. Processor time is that of the server's own process, which is what the event loop
has to share, and that of all its processes. Below it: what the writer alone needs, and no server.
On two cores the client, the server and the program leave none for the writer. With `--free-core`
they share one, and the writer has another, as it has on a larger machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import exec_server
from bench import proc
from exec_server.recording.cast_format import CastHeader
from exec_server.recording.cast_writer import CastWriter

_ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = [sys.executable, "-m", "exec_server", "--listen", "ws://127.0.0.1:0"]
_SECRETS = {"BENCH_API_TOKEN": "sk-aaaaaaaaaaaaaaaaaaaa", "BENCH_PASSWORD": "tr0ub4dor&3"}
_PLAIN = "a line of output with some words in it"
_COLOURS = r"\033[01;34mfolder\033[0m  \033[01;32mprogram.sh\033[0m  notes.txt"
_END_SECONDS = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what recordings cost a server.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=43)
    parser.add_argument("--free-core", action="store_true", help="a core for the writer alone")
    options = parser.parse_args()
    writers_core = None
    if options.free_core:
        shared, writers_core, *_ = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {shared})
    print(f"load {os.getloadavg()[0]:.1f}; {options.megabytes} MB of output a flood")
    for name, line in (("plain lines", _PLAIN), ("colours", _COLOURS)):
        asyncio.run(_compare(name, line, options.rounds, options.megabytes, writers_core))
    for name, line in (("plain lines", _PLAIN), ("colours", _COLOURS)):
        _writer_alone(name, line, options.megabytes)


async def _compare(
    name: str, line: str, rounds: int, megabytes: int, writers_core: int | None
) -> None:
    argv = ["sh", "-c", f"""yes "$(printf '{line}')" | head -c {megabytes}M"""]
    figures: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="recordings-") as folder, ExitStack() as servers:
        more = ["--record-terminals", folder, "--record-quota", "1G"]
        urls = {on: servers.enter_context(_server(more if on else [])) for on in figures}
        for _ in range(rounds):
            for on, (pid, url) in urls.items():
                figures[on].append(await _flood(pid, url, argv, writers_core))
    for on, found in figures.items():
        rate, own, everything = (statistics.median(column) for column in zip(*found, strict=True))
        title = f"{name}, {'recorded' if on else 'not recorded'}"
        print(f"{title:28}{rate:6.0f} MB/s   server {own:.3f} s   its processes {everything:.3f} s")
    ratio = statistics.median(
        with_it[0] / without[0]
        for with_it, without in zip(figures[True], figures[False], strict=True)
    )
    own = _median(figures[True], 1) / _median(figures[False], 1)
    print(f"{name}: the rate is {100 * (ratio - 1):+.1f} %, the server's own time {own:.2f} times")
    more_own, more_all = (
        (_median(figures[True], column) - _median(figures[False], column)) * 1e3 / megabytes
        for column in (1, 2)
    )
    print(
        f"{name}: the server takes {more_own:+.2f} ms/MB, all its processes {more_all:+.2f} ms/MB"
    )


def _median(figures: list[tuple[float, float, float]], column: int) -> float:
    return statistics.median(each[column] for each in figures)


@contextmanager
def _server(more: list[str]) -> Iterator[tuple[int, str]]:
    env = {**os.environ, **_SECRETS, "PYTHONPATH": str(_ROOT / "src")}
    words = [*_PROGRAM, *more]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env, text=True) as server:
        try:
            assert server.stdout is not None
            url = re.search(r"ws://\S+", server.stdout.readline())
            assert url is not None
            yield server.pid, url.group()
        finally:
            server.terminate()
            server.wait(_END_SECONDS)


async def _flood(
    pid: int, url: str, argv: list[str], writers_core: int | None
) -> tuple[float, float, float]:
    """Megabytes a second, and the processor time of the server and of all its processes."""
    async with exec_server.connect(url) as client:
        # The first terminal of a server is slower.
        async for _ in await client.start(["true"], tty=True):
            pass
        family = proc.family(pid)
        if writers_core is not None:
            for pid in filter(_is_writer, (each.pid for each in family)):
                os.sched_setaffinity(pid, {writers_core})
        before = proc.cpu_seconds(family[:1]), proc.cpu_seconds(family)
        began, size = time.perf_counter(), 0
        async for chunk in await client.start(argv, tty=True):
            size += len(chunk.data)
        took = time.perf_counter() - began
        # What was printed last may still be on its way to the disk.
        await asyncio.sleep(0.3)
        after = proc.cpu_seconds(family[:1]), proc.cpu_seconds(family)
    return size / took / 1e6, after[0] - before[0], after[1] - before[1]


def _is_writer(pid: int) -> bool:
    return b"exec_server.recording" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _writer_alone(name: str, line: str, megabytes: int) -> None:
    text = f"{line}\r\n".replace(r"\033", "\x1b").encode()
    data = text * (megabytes * 1_000_000 // len(text))
    for size in (4 << 10, 32 << 10):
        with tempfile.TemporaryDirectory(prefix="recordings-") as folder:
            writer = CastWriter(
                Path(folder) / "a.cast", CastHeader(), secrets=tuple(_SECRETS.values())
            )
            began = time.process_time()
            for at in range(0, len(data), size):
                writer.output(at / 1e8, data[at : at + size])
            writer.close(len(data) / 1e8)
            took = time.process_time() - began
        print(f"the writer alone, {name} in chunks of {size >> 10} KiB: {took:.3f} s")


if __name__ == "__main__":
    main()

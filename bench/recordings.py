"""What recordings of terminals cost a server: `make recordings-bench`.

    make recordings-bench ARGS='--rounds 30 --megabytes 43 --long-megabytes 200'
    make recordings-bench ARGS=--free-core

A server with and one without `--record-terminals` run the same floods in turns, and the client
counts the bytes. Rounds differ by 10 % and more, so there are many of them. The next flood begins
when the recording is complete. The writer converts a short flood after it, and a long one, for
which the spool has no room, while it goes on. Processor time is that of the server's own process,
which is what the event loop has to share, and that of all its processes, with the conversion.
Below it: what the parts need alone, without a server.

On two cores the client, the server and the program leave none for the writer. With `--free-core`
they share one, and the writer has another, as it has on a larger machine.
"""

from __future__ import annotations

import argparse
import asyncio
import math
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
from typing import NamedTuple

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import exec_server
from bench import proc
from exec_server.recording.cast_format import CastHeader
from exec_server.recording.open_casts import OpenCasts
from exec_server.recording.recording_files import RecordingFiles
from exec_server.recording.spool import Spool, SpoolReader
from exec_server.recording.writer_main import BLOCK
from exec_server.recording.writer_messages import BeginCast, encode_event

_ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = [sys.executable, "-m", "exec_server", "--listen", "ws://127.0.0.1:0"]
_SECRETS = {"BENCH_API_TOKEN": "sk-aaaaaaaaaaaaaaaaaaaa", "BENCH_PASSWORD": "tr0ub4dor&3"}
_PLAIN = "a line of output with some words in it"
_COLOURS = r"\033[01;34mfolder\033[0m  \033[01;32mprogram.sh\033[0m  notes.txt"
_END_SECONDS = 30.0
# What the server reads of a terminal at once during a flood.
_CHUNK = 25_000
# The caches and the scheduler settle before the next flood.
_REST_SECONDS = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what recordings cost a server.")
    parser.add_argument("--rounds", type=_count, default=30, help="of short floods; 0: none")
    parser.add_argument("--megabytes", type=_count, default=43, help="of a short flood; 0: none")
    parser.add_argument("--long-rounds", type=_count, default=3)
    parser.add_argument(
        "--long-megabytes", type=_count, default=200, help="more than the spool has; 0: none"
    )
    parser.add_argument("--free-core", action="store_true", help="a core for the writer alone")
    options = parser.parse_args()
    writers_core = None
    if options.free_core:
        shared, writers_core, *_ = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {shared})
    print(f"load {os.getloadavg()[0]:.1f}")
    floods = (options.rounds, options.megabytes), (options.long_rounds, options.long_megabytes)
    for rounds, megabytes in floods:
        for name, line in (("plain lines", _PLAIN), ("colours", _COLOURS)):
            if rounds and megabytes:
                asyncio.run(_compare(name, line, rounds, megabytes, writers_core))
    for name, line in (("plain lines", _PLAIN), ("colours", _COLOURS)):
        if options.megabytes:
            _parts_alone(name, line, options.megabytes)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"`{text}` is not a count")
    return int(text)


class _Flood(NamedTuple):
    """Megabytes a second, processor seconds of the server and of all its processes, and seconds
    until the recording was complete."""

    rate: float
    own: float
    everything: float
    lag: float


async def _compare(
    name: str, line: str, rounds: int, megabytes: int, writers_core: int | None
) -> None:
    argv = ["sh", "-c", f"""yes "$(printf '{line}')" | head -c {megabytes}M"""]
    figures: dict[bool, list[_Flood]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="recordings-") as folder, ExitStack() as servers:
        more = ["--record-terminals", folder, "--record-quota", "1G"]
        urls = {on: servers.enter_context(_server(more if on else [])) for on in figures}
        for number in range(rounds):
            # Neither is always the first one.
            for on in sorted(urls, reverse=bool(number % 2)):
                recordings = Path(folder) if on else None
                figures[on].append(await _flood(*urls[on], argv, recordings, writers_core))
    title = f"{name}, {megabytes} MB"
    for on, found in figures.items():
        rate, own, everything, lag = (_median(found, column) for column in range(4))
        words = f"{title}, {'recorded' if on else 'not recorded'}"
        after = f"   complete {lag:.2f} s after the flood" if on else ""
        print(f"{words:35}{rate:4.0f} MB/s   server {own:.3f} s   all {everything:.3f} s{after}")
    logs = [math.log(on.rate / off.rate) for on, off in zip(*_pairs(figures), strict=True)]
    mean = math.expm1(statistics.fmean(logs))
    error = statistics.stdev(logs) / math.sqrt(rounds) if rounds > 1 else math.inf
    median = _median(figures[True], 0) / _median(figures[False], 0) - 1
    print(
        f"{title}: the rate is {100 * mean:+.1f} % (mean of {rounds} rounds, standard error "
        f"{100 * error:.1f}), that of the medians {100 * median:+.1f} %"
    )
    more_own, more_all = (
        (_median(figures[True], column) - _median(figures[False], column)) * 1e3 / megabytes
        for column in (1, 2)
    )
    print(f"{title}: the server takes {more_own:+.2f} ms/MB, all its processes {more_all:+.2f}")


def _pairs(figures: dict[bool, list[_Flood]]) -> tuple[list[_Flood], list[_Flood]]:
    return figures[True], figures[False]


def _median(figures: list[_Flood], column: int) -> float:
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
    pid: int, url: str, argv: list[str], recordings: Path | None, writers_core: int | None
) -> _Flood:
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
        ended = time.perf_counter()
        if recordings is not None:
            await asyncio.to_thread(_wait_complete, recordings, size)
        lag = time.perf_counter() - ended
        await asyncio.sleep(_REST_SECONDS)
        after = proc.cpu_seconds(family[:1]), proc.cpu_seconds(family)
    own, everything = after[0] - before[0], after[1] - before[1]
    return _Flood(size / (ended - began) / 1e6, own, everything, lag)


def _wait_complete(recordings: Path, size: int) -> None:
    """Wait until a recording has the flood of *size* bytes with its exit status."""
    deadline = time.monotonic() + _END_SECONDS
    while not _remove_complete(recordings, size):
        assert time.monotonic() < deadline, "the recording is not complete"
        time.sleep(0.01)


def _remove_complete(recordings: Path, size: int) -> bool:
    """Remove the recording of a flood, if it is complete."""
    for path in recordings.glob("*-sh*.cast"):
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - 4096))
            is_complete = length >= size and b'"x","0"]' in file.read()
        if is_complete:
            path.unlink()
            return True
    return False


def _is_writer(pid: int) -> bool:
    return b"exec_server.recording" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _parts_alone(name: str, line: str, megabytes: int) -> None:
    """Appending to the spool, and converting it as the writer does."""
    text = f"{line}\r\n".replace(r"\033", "\x1b").encode()
    data = text * (_CHUNK // len(text))
    spool, reader = Spool(), SpoolReader(offset=0)
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="recordings-") as folder:
        begin = BeginCast("bench", CastHeader(), tuple(_SECRETS.values()))
        reader.add(os.dup(spool.extend().fd))
        spool.append_event(1, encode_event(begin))
        for number in range(megabytes * 1_000_000 // len(data)):
            if spool.needs_segment:
                reader.add(os.dup(spool.extend().fd))
            spool.append_output(1, number * len(data) / 50e6, data)
        spooled = time.process_time()
        casts = OpenCasts(RecordingFiles(folder))
        while frames := reader.read(BLOCK):
            casts.take(frames, is_again=False)
        casts.close()
        converted = time.process_time()
        spool.clear()
    freed = time.process_time()
    first, second, third = (
        seconds * 1e3 / megabytes
        for seconds in (spooled - began, converted - spooled, freed - converted)
    )
    print(
        f"alone, {name}: to spool takes {first:.2f} ms/MB, to convert {second:.2f}, "
        f"to give the memory back {third:.2f}"
    )


if __name__ == "__main__":
    main()

"""What a journal of output costs at least: the figures behind durable output in docs/decisions.md.

    python bench/journal_floor.py [--size 256] [--rounds 5]

A program prints so many MiB of zeros into a pipe. One process takes them in chunks of a size, with
nothing but system calls: it reads them, as for a plain process; or it moves them into a file in
memory, writes a slot of an index, and reads the bytes back, as for a durable one. Beyond 64 MiB the
oldest bytes are given back to the system. Columns: MB a second, and the processor time of the
taking process per byte; the medians of rounds in which the ways take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
from exec_server.process.journaling.journal_files import punch_hole
from exec_server.process.pump import BULK_PIPE

MIB = 1 << 20
KIB = 1 << 10
KEPT_BYTES = 64 * MIB
PUNCHED_BYTES = 8 * MIB
MEMORY = Path("/dev/shm")


class Measured(NamedTuple):
    rate: float
    cpu: float


class File:
    """A data file and an index behind it, without any care."""

    def __init__(self) -> None:
        folder = MEMORY if MEMORY.is_dir() else None
        self._data = tempfile.TemporaryFile(dir=folder)
        self._index = tempfile.TemporaryFile(dir=folder)
        self._end = self._punched = 0

    def take(self, pipe: int, size: int) -> bytes:
        data = self._data.fileno()
        moved = os.splice(pipe, data, size, offset_dst=self._end)
        if not moved:
            return b""
        os.pwrite(self._index.fileno(), bytes(64), self._end // size * 64)
        self._end += moved
        if self._end - self._punched > KEPT_BYTES + PUNCHED_BYTES:
            punch_hole(data, self._punched, PUNCHED_BYTES)
            self._punched += PUNCHED_BYTES
        return os.pread(data, moved, self._end - moved)

    def close(self) -> None:
        self._data.close()
        self._index.close()


def measure(take: Callable[[int, int], bytes], size: int, chunk: int) -> Measured:
    with subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE) as head:
        assert head.stdout is not None
        pipe = head.stdout.fileno()
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, BULK_PIPE)
        begin, used = time.perf_counter(), time.process_time()
        taken = 0
        while data := take(pipe, chunk):
            taken += len(data)
        seconds, used = time.perf_counter() - begin, time.process_time() - used
    assert taken == size
    return Measured(size / seconds, used / size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=256, help="MiB [default: 256]")
    parser.add_argument("--rounds", type=int, default=5, help="[default: 5]")
    options = parser.parse_args()
    ways = [(way, chunk) for chunk in (64 * KIB, 256 * KIB) for way in ("plain", "durable")]
    found: dict[tuple[str, int], list[Measured]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way, chunk in ways:
            file = File()
            take = os.read if way == "plain" else file.take
            found[way, chunk].append(measure(take, options.size * MIB, chunk))
            file.close()
    print(f"{'':24}{'MB/s':>8}{'ns per byte':>14}")
    for (way, chunk), rounds in found.items():
        rate = statistics.median(each.rate for each in rounds)
        cpu = statistics.median(each.cpu for each in rounds)
        print(f"{way:8} {chunk // KIB:4} KiB chunks{rate / 1e6:8.0f}{cpu * 1e9:14.2f}")


if __name__ == "__main__":
    main()

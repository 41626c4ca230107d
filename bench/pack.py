"""The tar code of a transfer beside `tarfile`: `python bench/pack.py`.

It writes and reads an archive of 10,000 files of 1 KiB, with times of nanoseconds and with names
that are not UTF-8, and prints the best CPU time of five runs and the peak of memory.
"""

from __future__ import annotations

import io
import os
import tarfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

from exec_server.client.files.transfer import pack
from exec_server.client.files.transfer.tree import TreeEntry

COUNT = 10_000
DATA = bytes(range(256)) * 4
ENTRIES = [
    TreeEntry(
        b"dir%03d/file-\xff-%05d" % (number % 100, number),
        "file",
        len(DATA),
        1_700_000_000_123_456_789 + number,
        0o644,
    )
    for number in range(COUNT)
]


def write_ours() -> bytes:
    parts: list[bytes] = []
    for entry in ENTRIES:
        parts += (pack.member(entry, mode=entry.mode or 0), DATA, pack.padding(len(DATA)))
    return b"".join((*parts, pack.END))


def write_tarfile(archive_format: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=archive_format) as archive:
        for entry in ENTRIES:
            info = tarfile.TarInfo("./" + os.fsdecode(entry.path))
            info.size, info.mode = entry.size, entry.mode or 0
            info.mtime = entry.mtime_ns / 1e9
            archive.addfile(info, io.BytesIO(DATA))
    return out.getvalue()


def read_ours(data: bytes) -> int:
    unpacker = pack.Unpacker(limit=1 << 20)
    pieces = (data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20))
    return sum(len(content) for piece in pieces for _, content in unpacker.feed(piece))


def read_tarfile(data: bytes) -> int:
    total = 0
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as archive:
        for info in archive:
            file = archive.extractfile(info)
            assert file is not None
            total += len(file.read())
    return total


def report(name: str, work: Callable[[], object]) -> None:
    seconds = []
    for _ in range(5):
        before = time.process_time()
        work()
        seconds.append(time.process_time() - before)
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    best = min(seconds)
    print(
        f"{name:20} {best * 1000:5.0f} ms  {best / COUNT * 1e6:5.1f} us a file  "
        f"peak {peak / 2**20:3.0f} MiB"
    )


def main() -> None:
    report("write, ours", write_ours)
    report("write, tarfile PAX", partial(write_tarfile, tarfile.PAX_FORMAT))
    report("write, tarfile GNU", partial(write_tarfile, tarfile.GNU_FORMAT))
    # GNU tar on the server writes this format.
    data = write_tarfile(tarfile.GNU_FORMAT)
    assert read_ours(data) == read_tarfile(data) == COUNT * len(DATA)
    report("read, ours", partial(read_ours, data))
    report("read, tarfile", partial(read_tarfile, data))


if __name__ == "__main__":
    main()

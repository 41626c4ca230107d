"""The bars of watches, searches and deltas: `python bench/file_bars.py [--mib N]`.

A watch of many directories is followed while a script makes, moves and removes trees; the model of
the client must equal the tree. A search is compared with `rg`, and the copy of a file with one line
inserted with `rsync`.
"""

from __future__ import annotations

import argparse
import asyncio
import filecmp
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import exec_server
from exec_server.client.client import ExecServerClient

_SCRIPT = """\
i=0; while [ $i -lt 1000 ]; do mkdir -p n$i/b/c && touch n$i/b/c/f; i=$((i+1)); done
mv d0 moved; rm -r d1; touch last
"""
_SOURCES = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directories", type=int, default=50_000)
    parser.add_argument("--mib", type=int, default=1024)
    values = parser.parse_args()
    asyncio.run(_measure(values.directories, values.mib))


async def _measure(directories: int, mib: int) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        command = f"stdio:{sys.executable} -m exec_server --listen stdio"
        async with exec_server.connect(command) as client:
            await _watch(client, Path(folder) / "watched", directories)
            await _search(client)
            await _delta(client, Path(folder), mib)


async def _watch(client: ExecServerClient, root: Path, directories: int) -> None:
    for number in range(directories):
        (root / f"d{number // 100}" / f"e{number % 100}").mkdir(parents=True)
    start = time.perf_counter()
    async with client.fs.watch(root) as watch:
        print(f"watch: {directories} directories after {time.perf_counter() - start:.2f} s")
        model, rescans = set(_paths(root)), 0
        script = await asyncio.create_subprocess_shell(_SCRIPT, cwd=root)
        while str(root / "last") not in model:
            report = await anext(watch)
            for change in report.changes:
                if change.kind == "removed":
                    below = f"{change.path}/"
                    model = {p for p in model if p != change.path and not p.startswith(below)}
                else:
                    model.add(change.path)
            if report.rescan:
                rescans, model = rescans + 1, set(_paths(root))
        await script.wait()
        is_equal = model == set(_paths(root))
        print(f"watch: the model equals the tree: {is_equal}; {rescans} rescans")


def _paths(root: Path) -> list[str]:
    return [
        os.path.join(directory, name)
        for directory, folders, files in os.walk(root)
        for name in (*folders, *files)
    ]


async def _search(client: ExecServerClient) -> None:
    """A search of a connected client and `rg` itself, in turns; few hits, no hit, many hits."""
    if not _is_installed("rg"):
        return
    for root, pattern in (
        (_SOURCES, r"class \w+Error"),
        (_SOURCES / "src" / "exec_server" / "files", "not there"),
        (_SOURCES, "import"),
    ):
        words = ["rg", "--no-config", "-n", pattern, str(root)]
        ours, theirs = [], []
        for _ in range(11):
            start = time.perf_counter()
            hits = [hit async for hit in client.fs.search(root, pattern)]
            ours.append(time.perf_counter() - start)
            seconds, printed = await asyncio.to_thread(_timed, words)
            theirs.append(seconds)
        lines = len(printed.splitlines())
        mine, other = statistics.median(ours), statistics.median(theirs)
        print(
            f"search: {len(hits)} hits in {mine * 1e3:.1f} ms; rg: {lines} hits "
            f"in {other * 1e3:.1f} ms; {mine / other:.1f} times"
        )


def _is_installed(program: str) -> bool:
    if shutil.which(program):
        return True
    print(f"{program} is not installed: nothing to compare with")
    return False


def _timed(words: list[str]) -> tuple[float, bytes]:
    """How long a program takes, and its output."""
    start = time.perf_counter()
    printed = subprocess.run(words, capture_output=True, check=False).stdout
    return time.perf_counter() - start, printed


async def _delta(client: ExecServerClient, folder: Path, mib: int) -> None:
    old, new = folder / "old", folder / "new"
    with old.open("wb") as before, new.open("wb") as after:
        for number in range(mib):
            data = os.urandom(1 << 20)
            before.write(data)
            if number == mib // 2:
                data = data[:999] + b"one line more\n" + data[999:]
            after.write(data)
    for way in ("upload", "download"):
        copy = folder / way
        shutil.copyfile(old, copy)
        start = time.perf_counter()
        result = await getattr(client.fs, way)(new, copy)
        seconds = time.perf_counter() - start
        sent = result.bytes - result.matched_bytes
        is_equal = filecmp.cmp(new, copy, shallow=False)
        print(f"delta, {way}: {sent} bytes of contents in {seconds:.1f} s; equal: {is_equal}")
        copy.unlink()
    copy = folder / "rsync"
    shutil.copyfile(old, copy)
    words = ["rsync", "--no-whole-file", str(new), str(copy)]
    if _is_installed("rsync"):
        print(f"delta, rsync: {(await asyncio.to_thread(_timed, words))[0]:.1f} s")


if __name__ == "__main__":
    main()

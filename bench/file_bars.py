"""The bars of watches, searches and deltas: `python bench/file_bars.py [--only delta] [--mib N]`.

A watch of many directories is followed while a script makes, moves and removes trees; the model of
the client must equal the tree. A search is compared with `rg`, with and without `--json`, and the
copy of a file with one line inserted with rsync and its own server, both over the loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import filecmp
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import exec_server

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench.transfer import start_rsync_daemon
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
    parser.add_argument("--rounds", type=int, default=3, help="of each delta [default: 3]")
    parser.add_argument("--only", action="append", choices=("watch", "search", "delta"))
    asyncio.run(_measure(parser.parse_args()))


async def _measure(values: argparse.Namespace) -> None:
    wanted = values.only or ["watch", "search", "delta"]
    print(f"Load: {machine.load():.1f}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        command = f"stdio:{sys.executable} -m exec_server --listen stdio"
        async with exec_server.connect(command) as client:
            if "watch" in wanted:
                await _watch(client, Path(folder) / "watched", values.directories)
            if "search" in wanted:
                await _search(client)
        if "delta" in wanted:
            await _delta(Path(folder), values.mib, values.rounds)


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
        ours, used, theirs, as_json = [], [], [], []
        for _ in range(11):
            start, worked = time.perf_counter(), time.process_time()
            hits = [hit async for hit in client.fs.search(root, pattern)]
            ours.append(time.perf_counter() - start)
            used.append(time.process_time() - worked)
            seconds, printed = await asyncio.to_thread(_timed, words)
            theirs.append(seconds)
            # What our server has to read is a floor.
            as_json.append((await asyncio.to_thread(_timed, [*words, "--json"]))[0])
        lines = len(printed.splitlines())
        mine, other, floor = map(statistics.median, (ours, theirs, as_json))
        print(
            f"search: {len(hits)} hits in {mine * 1e3:.1f} ms, at least {min(ours) * 1e3:.1f}; "
            f"rg: {lines} hits in {other * 1e3:.1f} ms, at least {min(theirs) * 1e3:.1f}; "
            f"{mine / other:.1f} times, at least {min(ours) / min(theirs):.1f}; "
            f"rg --json {floor * 1e3:.1f} ms; processor time of the client "
            f"{min(used) * 1e3:.1f} ms; load {machine.load():.1f}"
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


async def _delta(folder: Path, mib: int, rounds: int) -> None:
    """One line more in a large file, up and down, beside rsync and its server on the loopback."""
    before, source = folder / "before", folder / "new"
    with before.open("wb") as old, source.open("wb") as new:
        for number in range(mib):
            data = os.urandom(1 << 20)
            old.write(data)
            if number == mib // 2:
                data = data[:999] + b"one line more\n" + data[999:]
            new.write(data)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(_server())
        there = start_rsync_daemon(stack, folder) if _is_installed("rsync") else None
        async with exec_server.connect(url) as client:
            for way in ("upload", "download"):
                copies = {"ours": partial(_ours, client, way)}
                if there is not None:
                    copies["rsync"] = partial(_rsync, there, way)
                times: dict[str, list[float]] = {name: [] for name in copies}
                for _ in range(rounds):
                    for name, copy in copies.items():
                        times[name].append(await _one_delta(copy, before, source))
                for name, taken in times.items():
                    each = " ".join(f"{seconds:.2f}" for seconds in taken)
                    print(
                        f"delta, {way}, {name}: median {statistics.median(taken):.2f} s, least "
                        f"{min(taken):.2f} s of {each}; load {machine.load():.1f}",
                        flush=True,
                    )


# Copies the first file to the second one.
_Copy = Callable[[Path, Path], Awaitable[None]]


async def _one_delta(copy: _Copy, before: Path, source: Path) -> float:
    target = before.parent / "copy"
    shutil.copyfile(before, target)
    os.utime(target, (1, 1))
    # What was prepared has no part in what is measured.
    os.sync()
    start = time.perf_counter()
    await copy(source, target)
    seconds = time.perf_counter() - start
    assert filecmp.cmp(source, target, shallow=False)
    target.unlink()
    return seconds


async def _ours(client: ExecServerClient, way: str, source: Path, target: Path) -> None:
    result = await getattr(client.fs, way)(source, target)
    sent = result.bytes - result.matched_bytes
    assert sent < 2 << 20, f"{sent} bytes of contents"


async def _rsync(there: str, way: str, source: Path, target: Path) -> None:
    ends = [str(source), f"{there}/{target.name}"]
    if way == "download":
        ends = [f"{there}/{source.name}", str(target)]
    words = ["rsync", "--no-whole-file", "--times", *ends]
    await asyncio.to_thread(subprocess.run, words, check=True)


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """A server of ours on the loopback; its URL."""
    words = [sys.executable, "-m", "exec_server", "--listen", "ws://127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


if __name__ == "__main__":
    main()

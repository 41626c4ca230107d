"""How many instructions a message takes in the server's process, beside the floors.

    python bench/instructions.py [--beside SRC] [--no-floors] [--keep FOLDER] [KIND ...]

callgrind counts them, so the load of the machine does not matter; those of the kernel are not
among them. `call` is one small call at a time; `calls` and `writes` (of 10 bytes) have 64 messages
in flight, `bulk` writes 64 KiB each, and `keys` come one after the other into a terminal that
returns them. The floors answer calls with constant words (`constant_answers.py`), and do the least
with input and output (`bare_server.py`). `callgrind_annotate` shows the reports that are kept.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.client import Client, pipelined, repeat, request, serially, unique
from bench.servers import Command, Conditions, Server
from bench.workloads.stdin import bulk_writes, small_writes, write_all
from bench.workloads.terminal import type_keys, typewriter

_ROOT = Path(__file__).resolve().parent.parent
_SINK = ["sh", "-c", "cat >/dev/null"]
_COUNTS = {"call": 1000, "calls": 4000, "writes": 4000, "bulk": 300, "keys": 300}
_DEPTH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description="Instructions of the server for each message.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(_COUNTS))
    parser.add_argument("--beside", type=Path, metavar="SRC", help="another source tree")
    parser.add_argument("--no-floors", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to keep the reports")
    options = parser.parse_args()
    kinds = options.kinds or list(_COUNTS)
    print(f"{'thousands of instructions':28}" + "".join(f"{kind:>10}" for kind in kinds))
    for name, lines in _servers(options.beside, has_floors=not options.no_floors).items():
        figures = []
        for kind in kinds:
            with tempfile.TemporaryDirectory(prefix="instructions-") as folder:
                report = _report(lines[kind], kind, Path(folder))
                figures.append(_instructions(report) / _COUNTS[kind])
                if options.keep is not None:
                    shutil.copy(report, options.keep / f"{name}-{kind}.out")
        print(f"{name:28}" + "".join(f"{figure / 1e3:10.2f}" for figure in figures), flush=True)


def _servers(beside: Path | None, *, has_floors: bool) -> dict[str, dict[str, str]]:
    """The command lines of each server, by kind."""
    python = shlex.quote(sys.executable)
    servers = {}
    if has_floors:
        constant = f"{python} {_ROOT / 'bench/constant_answers.py'} picows {{port}}"
        bare = f"{python} {_ROOT / 'bench/bare_server.py'} {{port}}"
        is_constant = ("call", "calls")
        servers["floor"] = {kind: constant if kind in is_constant else bare for kind in _COUNTS}
    trees = {"ours": _ROOT / "src"} if beside is None else {"beside": beside, "ours": _ROOT / "src"}
    for name, tree in trees.items():
        path = shlex.quote(str(tree.resolve()))
        serve = f"env PYTHONPATH={path} {python} -m exec_server --listen ws://127.0.0.1:{{port}}"
        servers[name] = dict.fromkeys(_COUNTS, serve)
    return servers


def _report(line: str, kind: str, folder: Path) -> Path:
    """What callgrind has counted while messages of this kind were sent to a server."""
    out = folder / "callgrind.out"
    python = shlex.quote(sys.executable)
    valgrind = f"valgrind --quiet --tool=callgrind --callgrind-out-file={out} {python}"
    # The order of sets is that of the hashes of their texts.
    os.environ["PYTHONHASHSEED"] = "0"
    with Server(Command(kind, line.replace(python, valgrind, 1)), Conditions()) as server:
        client = server.connect()
        process = _begin(client, kind)
        _load(client, kind, process, _COUNTS[kind] // 4)
        _control("--zero", server.pid)
        _load(client, kind, process, _COUNTS[kind])
        _control("--dump", server.pid)
        client.close()
    return folder / "callgrind.out.1"


def _instructions(report: Path) -> int:
    lines = report.read_text("latin-1").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("summary:"))


def _control(action: str, pid: int) -> None:
    subprocess.run(
        ["callgrind_control", action, str(pid)], check=True, capture_output=True, timeout=60
    )


def _begin(client: Client, kind: str) -> str:
    if kind == "keys":
        return typewriter(client)
    process = unique("i")
    if kind in ("writes", "bulk"):
        client.start(process, _SINK, stdin=True)
        client.frame()
    return process


def _load(client: Client, kind: str, process: str, count: int) -> None:
    if kind == "keys":
        type_keys(client, process, count, within=300)
    elif kind == "writes":
        pipelined(client, small_writes(process, b"y" * 10, count), depth=_DEPTH)
    elif kind == "bulk":
        write_all(client, bulk_writes(process, count))
    else:
        frames = repeat(lambda number: request("environment/status", {}, number), count)
        if kind == "call":
            serially(client, frames)
        else:
            pipelined(client, frames, depth=_DEPTH)


if __name__ == "__main__":
    main()

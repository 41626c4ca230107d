"""How costs grow with work: an exponent for each kind, fitted to sizes that double.

    make growth ARGS='--largest 1000'

Each row makes more and more of one thing on a fresh server and measures, in the server's processor
time or in its memory, what the next one costs. An exponent of the whole cost near 1 is linear: each
one costs the same, however many there are. What the clients and commands cost is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench.client import Client, drain, unique
from bench.main import prepare
from bench.servers import Command, Conditions, Server

_OURS = Command(
    "ours", f"{shlex.quote(sys.executable)} -m exec_server --listen ws://127.0.0.1:{{port}}"
)
# A connection may have 128 open handles, and a directory that is read 50,000 names.
_MOST = {"open handles": 96, "names x 100": 400}
_DOUBLINGS = 4
_CALLS_BESIDE = 200


class Growth(NamedTuple):
    """The whole cost of so many things, and what a small call costs beside them."""

    name: str
    sizes: list[int]
    costs: list[float]
    memory: list[float]
    beside: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description="How costs grow with work.")
    parser.add_argument("--largest", type=int, default=800, help="the largest number of a thing")
    parser.add_argument("--only", help="names of rows, with commas between them")
    options = parser.parse_args()
    prepare()
    for name, value in machine.facts().items():
        print(f"{name}: {value}")
    chosen = _ROWS if options.only is None else options.only.split(",")
    print(
        f"{'':22}{'of each':>10}{'exponent':>10}{'memory each':>14}{'call alone':>12}{'beside':>9}"
    )
    for name in chosen:
        print(_line(_measure(name, options.largest)), flush=True)
    print(f"load average: {machine.load():.1f}")


def _line(growth: Growth) -> str:
    each, memory = growth.costs[-1] / growth.sizes[-1], growth.memory[-1] / growth.sizes[-1]
    return (
        f"{growth.name:22}{each * 1e6:8.0f}µs{exponent(growth.sizes, growth.costs):10.2f}"
        f"{memory / 1e3:12.1f}kB{growth.beside[0] * 1e6:10.0f}µs{growth.beside[-1] * 1e6:7.0f}µs"
    )


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The slope of the line through the logarithms, by least squares."""
    points = [
        (math.log(size), math.log(max(cost, 1e-9))) for size, cost in zip(sizes, costs, strict=True)
    ]
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    above = sum((x - x_mean) * (y - y_mean) for x, y in points)
    return above / sum((x - x_mean) ** 2 for x, _ in points)


def _measure(name: str, largest: int) -> Growth:
    largest = min(largest, _MOST.get(name, largest))
    sizes = [max(1, largest >> step) for step in range(_DOUBLINGS, -1, -1)]
    costs, memory, beside = list[float](), list[float](), list[float]()
    for size in sizes:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="growth-")))
            server = stack.enter_context(Server(_OURS, Conditions()))
            server.warm_up()
            client = server.connect()
            stack.callback(client.close)
            work = _ROWS[name](server, client, folder, stack)
            work(2)
            before, private = server.cpu_seconds(), server.memory().private
            work(size)
            costs.append(server.cpu_seconds() - before)
            memory.append(server.memory().private - private)
            before = server.cpu_seconds()
            for _ in range(_CALLS_BESIDE):
                client.call("environment/status", {})
            beside.append((server.cpu_seconds() - before) / _CALLS_BESIDE)
    return Growth(name, sizes, costs, memory, beside)


Work = Callable[[int], None]


def _connections(server: Server, _: Client, __: Path, stack: contextlib.ExitStack) -> Work:
    """Connections, each with a session of its own."""

    def work(count: int) -> None:
        for _ in range(count):
            stack.callback(server.connect().close)

    return work


def _sessions(server: Server, _: Client, __: Path, ___: contextlib.ExitStack) -> Work:
    """Sessions whose connections are lost; they are kept for a while."""

    def work(count: int) -> None:
        for _ in range(count):
            server.connect().close()

    return work


def _processes(_: Server, client: Client, __: Path, ___: contextlib.ExitStack) -> Work:
    """Processes that live on."""

    def work(count: int) -> None:
        for _ in range(count):
            client.start(unique("p"), ["/bin/sleep", "600"])
            client.decode()

    return work


def _output(_: Server, client: Client, __: Path, ___: contextlib.ExitStack) -> Work:
    """Ended processes whose output, 64 KiB each, is retained."""

    def work(count: int) -> None:
        for _ in range(count):
            client.start(unique("o"), ["/usr/bin/head", "-c", "65536", "/dev/zero"])
            drain(client)

    return work


def _handles(_: Server, client: Client, folder: Path, ___: contextlib.ExitStack) -> Work:
    """Open handles of one file."""
    file = folder / "file"
    file.write_bytes(b"x")

    def work(count: int) -> None:
        for _ in range(count):
            client.call("fs/open", {"path": file.as_uri(), "handleId": unique("h")})

    return work


def _names(_: Server, client: Client, folder: Path, ___: contextlib.ExitStack) -> Work:
    """A directory with a hundred times as many names, which is read once."""

    def work(count: int) -> None:
        place = folder / str(count)
        place.mkdir()
        for number in range(count * 100):
            (place / f"name-{number:08}").touch()
        client.call("fs/readDirectory", {"path": place.as_uri()})

    return work


_ROWS: dict[str, Callable[[Server, Client, Path, contextlib.ExitStack], Work]] = {
    "connections": _connections,
    "lost sessions": _sessions,
    "live processes": _processes,
    "retained output": _output,
    "open handles": _handles,
    "names x 100": _names,
}


if __name__ == "__main__":
    main()

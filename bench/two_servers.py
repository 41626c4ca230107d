"""What more event loops could bring: two clients of one server beside two servers with one each.

    make two-servers ARGS='--rounds 5'

Two servers that share nothing are the upper bound of one server with two workers, which would also
have to share sessions, limits and the listening address. The clients are processes of their own.
Their processor time belongs to the result: they share the cores with the servers. The next rows are
small calls of one client, one at a time, while others flood. The last table computes from these
costs what workers would bring on a machine with more cores (bench/workers_model.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench import proc as process
from bench.client import (
    Client,
    drain,
    expect_size,
    now,
    percentile,
    pipelined,
    repeat,
    request,
    serially,
    unique,
)
from bench.servers import Command, Conditions, Server
from bench.workers_model import Machine, lines

_OURS = Command(
    "ours", f"{shlex.quote(sys.executable)} -m exec_server --listen ws://127.0.0.1:{{port}}"
)
_CALLS = 40_000
_BYTES = 512 << 20
_DEPTH = 64
# A flood that lasts longer than the calls beside it, which then end it.
_FLOOD_BYTES = 64 << 30
_BESIDE = 5_000
_KINDS = {"calls": ("small calls, 64 in flight", _CALLS), "output": ("output, MB", _BYTES / 1e6)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Two clients of one server and of two servers.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=16, help="cores of the computed machine")
    parser.add_argument("--clients", type=int, default=64, help="flooding clients of it")
    parser.add_argument("--client", nargs=2, metavar=("PORT", "KIND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        _client(int(options.client[0]), options.client[1])
        return
    for name, value in machine.facts().items():
        print(f"{name}: {value}")
    print(
        f"{'':28}{'one server':>14}{'two servers':>14}{'gain':>8}{'server CPU, one core = 1':>28}"
    )
    costs = {}
    for kind, (title, work) in _KINDS.items():
        rounds = [(_run(kind, 1), _run(kind, 2)) for _ in range(options.rounds)]
        one, two = (
            statistics.median(2 * work / run[count].seconds for run in rounds) for count in (0, 1)
        )
        busy = [
            statistics.median(run[count].server_cpu / run[count].seconds for run in rounds)
            for count in (0, 1)
        ]
        print(f"{title:28}{one:12,.0f}/s{two:12,.0f}/s{two / one:7.2f}x", end="")
        print(f"{busy[0]:17.2f} and {busy[1]:.2f}", flush=True)
        costs[kind] = (
            statistics.median(run[1].server_cpu / (2 * work) for run in rounds),
            statistics.median(run[1].client_cpu / (2 * work) for run in rounds),
        )
    waits = _waits(options.rounds)
    print(f"load average: {machine.load():.1f}\n")
    model = Machine(
        cores=options.cores,
        clients=options.clients,
        call=costs["calls"],
        megabyte=costs["output"],
        alone=waits[0],
        beside_one=waits[1],
        worker_bytes=_memory(),
    )
    print("\n".join(lines(model)))


def _waits(rounds: int) -> tuple[float, float]:
    """The p99 of a small call alone in its loop, and beside one client that floods."""
    kinds = {"one in its loop": (1, 1), "four in its loop": (1, 4), "one in another": (2, 1)}
    found: dict[str, list[list[float]]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, (servers, floods) in kinds.items():
            found[name].append(_calls_beside(servers, floods))
    p99 = {}
    for name, runs in found.items():
        p50, p99[name] = (
            statistics.median(percentile(run, fraction) for run in runs) for fraction in (0.5, 0.99)
        )
        print(f"a call beside floods, {name:18}{p50 * 1e6:8,.0f} µs p50", end="")
        print(f"{p99[name] * 1e6:10,.0f} µs p99", flush=True)
    return p99["one in another"], p99["one in its loop"]


def _memory() -> int:
    with _servers(1) as (server,):
        return server.memory().private


class _Run(NamedTuple):
    seconds: float
    # Processor time of the servers and of the clients.
    server_cpu: float
    client_cpu: float


def _run(kind: str, count: int) -> _Run:
    """Two clients at work on *count* servers."""
    with _servers(count) as servers:
        before = sum(server.cpu_seconds() for server in servers)
        clients = [_started(servers[index % count], kind) for index in range(2)]
        clients_before = sum(_cpu_seconds(client.pid) for client in clients)
        begin = now()
        for client in clients:
            _go(client)
        spent = sum(_end(client) for client in clients) - clients_before
        seconds = now() - begin
        servers_spent = sum(server.cpu_seconds() for server in servers) - before
        return _Run(seconds, servers_spent, spent)


def _cpu_seconds(pid: int) -> float:
    return sum(process.cpu_seconds([identity]) for identity in process.family(pid)[:1])


def _end(client: subprocess.Popen[bytes]) -> float:
    """Wait for *client*; the processor time of its whole life."""
    _, status, usage = os.wait4(client.pid, 0)
    client.returncode = os.waitstatus_to_exitcode(status)
    if client.returncode:
        raise SystemExit("a client failed")
    return usage.ru_utime + usage.ru_stime


def _calls_beside(count: int, floods: int) -> list[float]:
    """The seconds of each small call of a client, while *floods* clients flood the first server."""
    with _servers(count) as servers:
        flooding = [_started(servers[0], "flood") for _ in range(floods)]
        caller = _started(servers[-1], "beside")
        try:
            for client in (*flooding, caller):
                _go(client)
            out, _ = caller.communicate()
        finally:
            for flood in flooding:
                flood.kill()
                flood.communicate()
        found: list[float] = json.loads(out)
        return found


@contextlib.contextmanager
def _servers(count: int) -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(_OURS, Conditions())) for _ in range(count)]
        for server in servers:
            server.warm_up()
        yield servers


def _started(server: Server, kind: str) -> subprocess.Popen[bytes]:
    """A client that waits for its sign to begin."""
    client = subprocess.Popen(
        [sys.executable, __file__, "--client", str(server.port), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert client.stdout is not None
    client.stdout.readline()
    return client


def _go(client: subprocess.Popen[bytes]) -> None:
    assert client.stdin is not None
    client.stdin.write(b"go\n")
    client.stdin.flush()


def _client(port: int, kind: str) -> None:
    client = Client("127.0.0.1", port)
    client.initialize()
    calls = _BESIDE if kind == "beside" else _CALLS
    frames = repeat(lambda number: request("environment/status", {}, number), calls)
    print("ready", flush=True)
    sys.stdin.readline()
    if kind == "calls":
        pipelined(client, frames, depth=_DEPTH)
    elif kind == "beside":
        print(json.dumps(serially(client, frames)))
    else:
        size = _FLOOD_BYTES if kind == "flood" else _BYTES
        client.start(unique("f"), ["head", "-c", str(size), "/dev/zero"])
        expect_size(size, drain(client))
    client.close()


if __name__ == "__main__":
    main()

"""What more event loops could bring: two clients of one server beside two servers with one each.

    make two-servers ARGS='--rounds 5'

Two servers that share nothing are the upper bound of one server with two workers, which would also
have to share sessions, limits and the listening address. The clients are processes of their own.
Their processor time belongs to the result: they share the cores with the servers. The last rows are
small calls of one client, one at a time, while the other one floods.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
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
    for kind, (title, work) in _KINDS.items():
        rounds = [(_run(kind, 1), _run(kind, 2)) for _ in range(options.rounds)]
        one, two = (
            statistics.median(2 * work / run[count][0] for run in rounds) for count in (0, 1)
        )
        busy = [statistics.median(run[count][1] for run in rounds) for count in (0, 1)]
        print(f"{title:28}{one:12,.0f}/s{two:12,.0f}/s{two / one:7.2f}x", end="")
        print(f"{busy[0]:17.2f} and {busy[1]:.2f}", flush=True)
    beside = [(_calls_beside_a_flood(1), _calls_beside_a_flood(2)) for _ in range(options.rounds)]
    for fraction in (0.5, 0.99):
        one, two = (
            statistics.median(percentile(run[count], fraction) for run in beside) * 1e6
            for count in (0, 1)
        )
        title = f"a call beside it, p{fraction * 100:.0f}"
        print(f"{title:28}{one:11,.0f} µs{two:11,.0f} µs{one / two:7.2f}x", flush=True)
    print(f"load average: {machine.load():.1f}")


def _run(kind: str, count: int) -> tuple[float, float]:
    """The seconds for two clients on *count* servers, and how many cores the servers have used."""
    with _servers(count) as servers:
        before = sum(server.cpu_seconds() for server in servers)
        clients = [_started(servers[index % count], kind) for index in range(2)]
        begin = now()
        for client in clients:
            _go(client)
        for client in clients:
            client.communicate()
        seconds = now() - begin
        if any(client.returncode for client in clients):
            raise SystemExit("a client failed")
        return seconds, (sum(server.cpu_seconds() for server in servers) - before) / seconds


def _calls_beside_a_flood(count: int) -> list[float]:
    """The seconds of each small call of a client, while one on the first server floods."""
    with _servers(count) as servers:
        flood, caller = _started(servers[0], "flood"), _started(servers[-1], "beside")
        try:
            for client in (flood, caller):
                _go(client)
            out, _ = caller.communicate()
        finally:
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

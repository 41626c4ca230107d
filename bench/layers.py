"""Where the time of a small call goes: floors on the same machine, and the layers above them.

    make layers ARGS='--rounds 7'
    make layers ARGS='--beside ../old/src'

Client and server share one core, so that the scheduler has no choice. Rows are the least of all
rounds, in microseconds: of a call with its answer, one at a time; of the server's processor time
for it; and of its processor time for a call when 64 are in flight. The floors are a blocking loop
in Python (kernel, wire and client) and a constant answer on uvloop and picows (the same with our
event loop and WebSocket library). The difference to the last floor is our own work on a call.
"""

from __future__ import annotations

import argparse
import compileall
import shlex
import sys
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench.client import percentile, pipelined, repeat, request, serially
from bench.servers import Command, Conditions, Server

_ROOT = Path(__file__).resolve().parent.parent
_CALLS = 3000
_PIPELINED = 30_000
_DEPTH = 64

Figures = tuple[float, float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of a small call goes.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path, metavar="SRC", help="another source tree")
    options = parser.parse_args()
    for name, value in machine.facts().items():
        print(f"{name}: {value}")
    commands = _commands(options.beside)
    core = machine.one_core()
    found: dict[str, list[Figures]] = {command.name: [] for command in commands}
    for _ in range(options.rounds):
        for command in commands:
            with Server(command, Conditions(server_cpus=core, client_cpus=core)) as server:
                found[command.name].append(_measure(server))
    print(f"{'µs a call':36}{'one at a time':>15}{'its CPU':>10}{'CPU of 64 in flight':>21}")
    for name, rounds in found.items():
        least = [min(figures) * 1e6 for figures in zip(*rounds, strict=True)]
        print(f"{name:36}{least[0]:15.1f}{least[1]:10.1f}{least[2]:21.2f}")
    print(f"load average: {machine.load():.1f}")


def _commands(beside: Path | None) -> list[Command]:
    python, floors = shlex.quote(sys.executable), _ROOT / "bench" / "constant_answers.py"
    serve = f"{python} -m exec_server --listen ws://127.0.0.1:{{port}}"
    commands = [
        Command("floor: a blocking loop", f"{python} {floors} blocking {{port}}"),
        Command("floor: constant, uvloop and picows", f"{python} {floors} picows {{port}}"),
    ]
    trees = {"ours": _ROOT / "src"} if beside is None else {"beside": beside, "ours": _ROOT / "src"}
    for name, tree in trees.items():
        compileall.compile_dir(tree, quiet=2)
        path = shlex.quote(str(tree.resolve()))
        commands.append(Command(name, f"env PYTHONPATH={path} {serve}"))
    return commands


def _measure(server: Server) -> Figures:
    client = server.connect()
    serially(client, repeat(_status, 200))
    before = server.cpu_seconds()
    times = serially(client, repeat(_status, _CALLS))
    serial = (server.cpu_seconds() - before) / _CALLS
    frames = repeat(_status, _PIPELINED)
    before = server.cpu_seconds()
    pipelined(client, frames, depth=_DEPTH)
    many = (server.cpu_seconds() - before) / _PIPELINED
    client.close()
    return percentile(times, 0.5), serial, many


def _status(number: int) -> bytes:
    return request("environment/status", {}, number)


if __name__ == "__main__":
    main()

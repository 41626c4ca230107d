"""The command line: which servers, which workloads, under which conditions, and what to write."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench import machine
from bench.catalogue import ORDINARY, PINNED, QUICK
from bench.floors import FLOOR, FLOORS, KERNEL, floors
from bench.measure import Part
from bench.servers import Command, Conditions
from bench.workloads import FAMILIES, WORKLOADS, chosen

ROOT = Path(__file__).resolve().parent.parent
REFERENCE, OURS = "reference", "ours"

_ROUNDS = 5
_LISTEN = "--listen ws://127.0.0.1:{port}"
_INTERACTIVE = (
    "spawn_true",
    "spawn_shell",
    "spawn_tty",
    "echo",
    "echo_flooded",
    "echo_beside_flood",
)
_SMALL = ("rpc", "file_metadata", "file_read_4k")
_EPILOG = """\
Without arguments: everything with an ordinary client, then the interactive workloads with a
client that acknowledges at once, then small calls on one core; docs/performance.md and its
chart are written.

examples:
  make bench ARGS='--rounds 1 --scale 0.02'
  make bench ARGS='--only rpc,echo --quickack'
  make bench ARGS='--only files --rounds 3'
  make bench ARGS="--server ours --server other='/path/to/server --listen ws://127.0.0.1:{port}'"
"""


class Options(NamedTuple):
    rounds: int
    scale: float
    parts: tuple[Part, ...]
    commands: tuple[Command, ...]
    # The command that repeats this run elsewhere; without paths.
    command: str
    json: Path | None
    read: Path | None
    # The folder of performance.md.
    write: Path | None


def parse(argv: Sequence[str]) -> Options:
    parser = _parser()
    given = parser.parse_args(argv or ["--write"])
    is_whole = _is_whole(given)
    if given.write and not is_whole:
        parser.error("--write needs a whole run, without --only, --quickack and --pin")
    try:
        parts = _all_parts() if is_whole else (_part(given),)
        commands = _commands(given.server)
    except ValueError as error:
        parser.error(str(error))
    return Options(
        rounds=given.rounds,
        scale=given.scale,
        parts=parts,
        commands=commands if not given.read else (),
        command=_repeat(given),
        json=given.json,
        read=given.read,
        write=given.write,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench/run.py",
        description="Measure servers side by side; a ratio above 1 means that ours is better.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rounds", type=int, default=_ROUNDS, help="turns of each server [default: %(default)s]")
    add("--scale", type=float, default=1.0, help="multiplies counts and sizes [default: 1]")
    add(
        "--only",
        "--workloads",
        dest="only",
        default="",
        metavar="NAME,...",
        help=f"these alone: {', '.join(FAMILIES)}; or one by one: {', '.join(WORKLOADS)}",
    )
    add("--quickack", action="store_true", help="the client acknowledges at once")
    add("--pin", metavar="CLIENT:SERVER", help="cores of each, for example 0:0 or 0:0,1")
    add("--json", type=Path, metavar="FILE", help="keep the results")
    add("--read", type=Path, metavar="FILE", help="report results that were kept; measure nothing")
    add(
        "--write",
        type=Path,
        nargs="?",
        const=ROOT / "docs",
        metavar="FOLDER",
        help="write performance.md's generated part and the chart [default: docs]",
    )
    add(
        "--server",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="measure these instead, the first as the baseline; {port} stands for the port, and "
        f"'{REFERENCE}', '{OURS}', '{KERNEL}' and '{FLOOR}' alone for those of a whole run",
    )
    return parser


def _all_parts() -> tuple[Part, ...]:
    core = machine.one_core()
    pinned = Conditions(server_cpus=core, client_cpus=core)
    return (
        Part(ORDINARY, Conditions(), tuple(WORKLOADS.values())),
        Part(QUICK, Conditions(quick_acks=True), tuple(WORKLOADS[name] for name in _INTERACTIVE)),
        Part(PINNED, pinned, tuple(WORKLOADS[name] for name in _SMALL)),
    )


def _part(given: argparse.Namespace) -> Part:
    workloads = chosen(given.only or ",".join(FAMILIES))
    client, server = _cores(given.pin) if given.pin else (None, None)
    conditions = Conditions(given.quickack, server_cpus=server, client_cpus=client)
    return Part(_section(conditions), conditions, workloads)


def _section(conditions: Conditions) -> str:
    """What such a run is called; targets hold under the names that the whole run has too."""
    client, server = conditions.client_cpus, conditions.server_cpus
    if client is None or server is None:
        return QUICK if conditions.quick_acks else ORDINARY
    if client == server and len(client) == 1 and not conditions.quick_acks:
        return PINNED
    acks = f"{QUICK}, " if conditions.quick_acks else ""
    return f"{acks}client on {sorted(client)}, server on {sorted(server)}"


def _cores(pin: str) -> tuple[frozenset[int], frozenset[int]]:
    client, _, server = pin.partition(":")
    return frozenset(map(int, client.split(","))), frozenset(map(int, server.split(",")))


def _commands(given: Sequence[str]) -> tuple[Command, ...]:
    """The servers to measure, the baseline first."""
    return tuple(each for words in given or (REFERENCE, OURS, *FLOORS) for each in _named(words))


def _named(words: str) -> list[Command]:
    name, has_line, line = words.partition("=")
    if has_line:
        return [Command(name, line)]
    if name == OURS:
        program = Path(sys.executable).parent / "exec-server"
        return [Command(OURS, f"{shlex.quote(str(program))} {_LISTEN}", "--state {state}")]
    if name == REFERENCE:
        return _reference()
    if name in FLOORS:
        return floors(name)
    raise ValueError(f"--server {name}: a command is missing")


def _reference() -> list[Command]:
    """Empty, with the reason on stderr, where there is no reference."""
    script = ROOT / "scripts" / "reference.sh"
    binary = subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if not binary:
        return []
    return [Command(REFERENCE, f"{shlex.quote(binary)} exec-server {_LISTEN}")]


def _repeat(given: argparse.Namespace) -> str:
    words = []
    if given.rounds != _ROUNDS:
        words.append(f"--rounds {given.rounds}")
    if given.scale != 1:
        words.append(f"--scale {given.scale:g}")
    words += [f"--only {given.only}"] if given.only else []
    words += ["--quickack"] if given.quickack else []
    words += [f"--pin {given.pin}"] if given.pin else []
    # Without any of them it is written in any case.
    words += ["--write"] if words and _is_whole(given) else []
    return f"make bench ARGS='{' '.join(words)}'" if words else "make bench"


def _is_whole(given: argparse.Namespace) -> bool:
    return not (given.only or given.quickack or given.pin)

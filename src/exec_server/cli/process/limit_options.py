"""The option `--limit` of commands that start a process, and what is said about its result."""

from __future__ import annotations

import argparse

import msgspec

from exec_server.cli.log_setup import print_note, print_warning
from exec_server.cli.parser import Append, Parser
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.protocol.limit_words import (
    LIMIT_NAMES,
    REQUIRE,
    WrongLimit,
    limits_in,
    parse_limits,
    shown_limit,
)
from exec_server.protocol.resources import ResourceLimits

LIMIT_HELP = """\
limits, for the command and all that it starts:
  memory=SIZE       bytes of memory, such as 500M or 2G
  pids=N            processes and threads at once
  cpuRate=CORES     cores that it may keep busy, such as 0.5
  cpuSeconds=TIME   time on a core, such as 90s or 10m
  wall=TIME         time since the start, such as 30s or 2h
  outputBytes=SIZE  bytes of stdout and stderr together
  disk=SIZE         bytes written to disks
  openFiles=N       open files of each process
  require           refuse to start the command if one of its limits cannot be held
"""


def add_limit(parser: Parser) -> None:
    parser.add_argument(
        "--limit",
        metavar="<NAME=VALUE>",
        action=Append,
        type=_checked,
        dest="limits",
        help="limit what the command may use, such as memory=2G or wall=30s; may be repeated; "
        f"`--limit {REQUIRE}` refuses what the server cannot hold",
    )
    parser.suggestions["limits"] = (*(f"{name}=" for name in LIMIT_NAMES), REQUIRE)


def chosen_limits(values: argparse.Namespace) -> ResourceLimits | None:
    """The limits of a command line; None if it has none."""
    return parse_limits(values.limits) if values.limits else None


def _checked(text: str) -> str:
    try:
        parse_limits([text])
    except WrongLimit as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
    return text


def tell_limits(process: RemoteProcess, asked: ResourceLimits | None, *, is_verbose: bool) -> None:
    """Warn of limits that are not held as asked; if *is_verbose*, say how each one is held."""
    if asked is None:
        return
    wanted = limits_in(asked)
    for name, granted in process.limits.items():
        value = shown_limit(name, granted.value)
        if granted.mechanism == "none":
            print_warning(f"the limit {name}={value} is not held by this server")
        elif name in wanted and granted.value < wanted[name]:
            print_warning(f"the server has lowered the limit `{name}` to {value}")
        elif name in wanted and granted.value > wanted[name]:
            print_warning(f"the server holds no such limit `{name}`; it has made it {value}")
        if is_verbose and granted.mechanism != "none":
            each = "" if granted.scope == "tree" else " for each process"
            text = f"limit {name}={value}{each}, {granted.mechanism}, {granted.grain}"
            print_note(f"exec-server: {text}")


def limit_facts(process: RemoteProcess) -> dict[str, object]:
    """What became of the limits, for programs."""
    return {"limits": msgspec.to_builtins(process.limits)} if process.limits else {}

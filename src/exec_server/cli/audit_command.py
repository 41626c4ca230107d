"""`exec-server audit`: read, follow and check an audit log."""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from exec_server.audit.audit_reader import follow, lines_of
from exec_server.audit.chain import ChainCheck, Link, check, read_line
from exec_server.audit.event import AuditLine
from exec_server.audit.event_words import words as words_of
from exec_server.audit.ocsf import exported
from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import duration
from exec_server.cli.output_format import printable_json, without_controls
from exec_server.cli.parser import Flag, Parser, path
from exec_server.cli.tables import print_json_failure
from exec_server.errors import ConfigurationError

_DESCRIPTION = """\
Print the audit log of a server, an executor or a registry, older files (FILE.1, FILE.2, ...) first.
With --verify, check that no line of it is missing, changed, moved or cut.
"""

_EPILOG = """\
examples:
  What was done in the last hour:
      exec-server audit --since 1h /var/log/exec-server/audit.log

  What alice started, and what starts from now on:
      exec-server audit --who alice --method process/start --follow FILE

  Check the chain of lines. The anchor is a file elsewhere, which has the last line of the check
  before. With it, the check finds lines that are missing at the end, too:
      exec-server audit --verify --anchor ~/audit.anchor FILE

exit status:
  0    printed; with --verify: no fault was found
  1    the file cannot be read; with --verify: there is a fault
  2    the command line is wrong
"""

_NO_ANCHOR = """\
A chain cannot show that lines are missing at its end, nor that all of it was written anew. Compare
the last line with one that was kept elsewhere: use --anchor FILE, or what the server logs when it
stops (--log-level info), or its metric exec_server_audit_last_line."""

Shown = Callable[[AuditLine], str]


def audit_command(words: list[str]) -> int:
    """Print or check the log that *words* name."""
    parser = _parser()
    values = parser.parse_words(words)
    if values.verify and values.follow:
        parser.error("the argument '--verify' cannot be used with '--follow'")
    if values.anchor is not None and not values.verify:
        parser.error("the argument '--anchor <FILE>' needs '--verify'")
    try:
        return _verify(values) if values.verify else _print(values)
    except ConfigurationError as exc:
        print_error(str(exc))
        if values.output == "json":
            print_json_failure(exit_codes.FAILED)
        return exit_codes.FAILED
    except KeyboardInterrupt:
        return exit_codes.OK


def _parser() -> Parser:
    parser = Parser(
        "exec-server audit", usage="[OPTIONS] FILE", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument("file", metavar="FILE", type=path, help="the audit log")
    parser.add_argument("--follow", action=Flag, help="wait for new lines, and print them")
    parser.add_argument("--who", metavar="<NAME>", help="only what this principal did")
    parser.add_argument(
        "--since",
        metavar="<WHEN>",
        type=_moment,
        help="only events of the last time, such as 90, 15m, 1h or 7d, or since a date and time "
        "such as 2026-11-16 or 2026-11-16T08:00",
    )
    parser.add_argument(
        "--method",
        metavar="<NAME>",
        help="only events with this name, such as process/start; `*` stands for any text",
    )
    parser.add_argument("--verify", action=Flag, help="check the chain of lines")
    parser.add_argument(
        "--anchor",
        metavar="<FILE>",
        type=path,
        help="with --verify: compare with the last line that FILE has, and write the present one "
        "there; FILE is made if it is missing",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="<FORMAT>",
        choices=("text", "json", "ocsf"),
        default="text",
        help="text for people, json as the file has it, or ocsf with the field names of the Open "
        "Cybersecurity Schema Framework [default: text]",
    )
    return parser


def _moment(text: str) -> float:
    """The beginning of a time, in seconds since 1970."""
    try:
        return time.time() - duration(text)
    except argparse.ArgumentTypeError:
        pass
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            "expected a number with s, m, h or d, or a date such as 2026-11-16"
        ) from None


# Printing.


def _print(values: argparse.Namespace) -> int:
    show, is_terminal = _shown_as(values.output), sys.stdout.isatty()
    for line in _lines(values):
        found = read_line(line)
        if found is None:
            print_error(f"this is no line of an audit log: {line[:60]!r}")
        elif _is_wanted(found, values):
            text = line.decode() if values.output == "json" else show(found)
            # A file gets the very bytes of the log.
            print(without_controls(text) if is_terminal else text, flush=values.follow)
    sys.stdout.flush()
    return exit_codes.OK


def _lines(values: argparse.Namespace) -> Iterator[bytes]:
    if values.follow:
        return follow(values.file)
    return (line for _, line in lines_of(values.file))


def _shown_as(output: str) -> Shown:
    if output == "ocsf":
        return lambda line: msgspec.json.encode(exported(line)).decode()
    return words_of


def _is_wanted(line: AuditLine, values: argparse.Namespace) -> bool:
    if values.who is not None and line.principal != values.who:
        return False
    if values.since is not None and line.at < values.since:
        return False
    return values.method is None or fnmatch.fnmatchcase(line.name, values.method)


# The check.


def _verify(values: argparse.Namespace) -> int:
    anchor = None if values.anchor is None else _read_anchor(values.anchor)
    done = check(lines_of(values.file), anchor)
    faults = [str(fault) for fault in done.faults]
    if anchor is not None and not done.has_anchor(anchor):
        faults.append(f"{values.file}: {_missing_anchor(anchor, done)}")
    if values.output == "text":
        _tell(values, done, faults)
    else:
        _tell_programs(done, faults)
    if values.anchor is not None and not faults:
        _write_anchor(values.anchor, done.end)
    return exit_codes.FAILED if faults else exit_codes.OK


def _missing_anchor(anchor: Link, done: ChainCheck) -> str:
    if done.first is not None and anchor.number < done.first.number:
        return f"the file with line {anchor.number}, which the anchor names, is not there any more"
    return f"line {anchor.number}, which the anchor names, is missing or was changed"


def _tell(values: argparse.Namespace, done: ChainCheck, faults: list[str]) -> None:
    for text in done.remarks:
        print(f"note: {text}")
    for text in faults:
        print(f"FAULT: {text}")
    first = done.first.number if done.first is not None else 0
    if done.first is None and not faults:
        print("there is no chain in this log")
    elif faults:
        print(f"{len(faults)} faults in {done.lines} lines")
    else:
        print(f"lines {first} to {done.end.number} are whole; the last one is {done.end}")
    if values.anchor is None:
        print(_NO_ANCHOR)


def _tell_programs(done: ChainCheck, faults: list[str]) -> None:
    result = {
        "ok": not faults,
        "lines": done.lines,
        "first": None if done.first is None else done.first.number,
        "last": done.end.number,
        "hash": done.end.hash,
        "faults": faults,
        "remarks": done.remarks,
    }
    print(printable_json(result))


def _read_anchor(name: str) -> Link | None:
    """The line that an anchor names; None if the file does not exist yet."""
    try:
        number, digest = Path(name).read_text(encoding="ascii").split()
        return Link(int(number), digest)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ConfigurationError(f"cannot read the anchor {name}: {exc.strerror}") from None
    except ValueError:
        raise ConfigurationError(f"{name} is not an anchor: it has to be NUMBER HASH") from None


def _write_anchor(name: str, end: Link) -> None:
    new = f"{name}.new"
    try:
        Path(new).write_text(f"{end.number} {end.hash}\n", encoding="ascii")
        os.replace(new, name)
    except OSError as exc:
        raise ConfigurationError(f"cannot write the anchor {name}: {exc.strerror}") from None

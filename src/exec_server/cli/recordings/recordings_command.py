"""`exec-server recordings`: list recordings of terminals, find text in them, open and export."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import add_output
from exec_server.cli.parser import Flag, Parser, path
from exec_server.cli.recordings.recording_choice import (
    add_directory,
    chosen,
    files_in,
    recording_errors,
    shown_moment,
)
from exec_server.cli.recordings.replay_command import add_play_options, play
from exec_server.cli.tables import (
    JsonListPrinter,
    TablePrinter,
    print_json_failure,
    print_table,
    terminal_width,
)
from exec_server.errors import ConfigurationError
from exec_server.recording.recording_files import FoundRecording, RecordingFiles

_DESCRIPTION = """\
List recordings of terminals, find text in them with the moment and the row, open one at a moment,
or export it. Text is found as it was on the screen, also if only an editor has shown it.
"""

_EPILOG = """\
words:
  list                  list the recordings, the newest first; this is the default
  find REGEX [NAME...]  find text in all recordings, or in these
  open NAME             replay one, from --at on; see `exec-server replay --help` for the keys
  export NAME           write one as text, svg, gif, v2 or v3

NAME is a file, or the beginning of a name that `list` shows. The first search in a recording makes
an index beside it (NAME.cast.index).

exit status:
  0    done; of find: something was found
  1    nothing was found, or a recording cannot be read
  2    the command line is wrong

examples:
  All recordings of this machine:
      exec-server recordings

  Where was this error on a screen? Then go there:
      exec-server recordings find 'Permission denied'
      exec-server recordings open 20261116T120000-bash --at 1:30 --paused

  All text that was ever on the screen; the last screen as a picture; a moving picture:
      exec-server recordings export 20261116T120000-bash
      exec-server recordings export 20261116T120000-bash --format svg --to screen.svg
      exec-server recordings export 20261116T120000-bash --format gif --to demo.gif

  Those of a server with --record-terminals, on its machine:
      exec-server recordings --dir /var/lib/exec-server/recordings find 'DROP TABLE'
"""

_ACTIONS = ("list", "find", "open", "export")
_FORMATS = ("text", "svg", "gif", "v2", "v3")


def recordings_command(words: list[str]) -> int:
    """Do what *words* say with recordings."""
    parser = _parser()
    values = parser.parse_words(words)
    _check(parser, values)
    try:
        return {"list": _list, "find": _find, "open": _open, "export": _export}[values.action](
            values
        )
    except ConfigurationError as exc:
        print_error(str(exc))
        if values.output == "json":
            print_json_failure(exit_codes.FAILED)
        return exit_codes.FAILED
    except BrokenPipeError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        return exit_codes.BY_SIGNAL + signal.SIGPIPE
    except KeyboardInterrupt:
        return exit_codes.BY_SIGNAL + signal.SIGINT


def _parser() -> Parser:
    parser = Parser(
        "exec-server recordings",
        usage="[OPTIONS] [list | find REGEX [NAME]... | open NAME | export NAME]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument(
        "action", metavar="ACTION", nargs="?", choices=_ACTIONS, default="list", help="what to do"
    )
    parser.add_argument("words", metavar="WORD", nargs="*", default=[], help="see below")
    add_directory(parser)
    parser.add_argument("-i", "--ignore-case", action=Flag, help="find: ignore case")
    parser.add_argument(
        "--format",
        metavar="<FORMAT>",
        choices=_FORMATS,
        default="text",
        help="export: text, svg, gif, or an asciicast v2 or v3 [default: text]",
    )
    parser.add_argument(
        "--to", metavar="<PATH>", type=path, help="export: the new file [default: standard output]"
    )
    add_play_options(parser)
    add_output(parser)
    return parser


def _check(parser: Parser, values: argparse.Namespace) -> None:
    count = len(values.words)
    if values.action == "list" and count:
        parser.error(f"unexpected argument '{values.words[0]}' found")
    if values.action == "find" and not count:
        parser.error("the following required arguments were not provided:\n  <REGEX>")
    if values.action in ("open", "export") and count != 1:
        parser.error(f"'{values.action}' needs one NAME")
    if values.action == "find":
        try:
            re.compile(values.words[0])
        except re.error as exc:
            parser.error(f"invalid value '{values.words[0]}' for '<REGEX>': {exc}")


# list


def _list(values: argparse.Namespace) -> int:
    files = files_in(values)
    if values.dir is not None and not os.path.isdir(values.dir):
        raise ConfigurationError(f"there is no directory {values.dir}")
    found = files.found()
    if values.output == "json":
        printer = JsonListPrinter()
        printer.add(map(_facts, found))
        printer.end()
    elif found:
        rows = [[each.name, _started(each), *_columns(each)] for each in found]
        headings = ("NAME", "STARTED", "SIZE", "TERMINAL", "OWNER", "COMMAND")
        print_table(headings, rows, width=terminal_width())
    else:
        print(f"there are no recordings in {files.directory}", file=sys.stderr)
    return exit_codes.OK


def _facts(found: FoundRecording) -> dict[str, Any]:
    header = found.header
    return {
        "name": found.name,
        "file": str(found.path),
        "startedAt": header.started,
        "changedAt": found.changed,
        "bytes": found.size,
        "columns": header.columns,
        "rows": header.rows,
        "version": header.version,
        "owner": header.owner,
        "command": header.command,
    }


def _started(found: FoundRecording) -> str:
    if found.header.started is None:
        return "-"
    try:
        when = datetime.datetime.fromtimestamp(found.header.started)
    except (OverflowError, ValueError, OSError):
        return "-"
    return when.strftime("%Y-%m-%d %H:%M:%S")


def _columns(found: FoundRecording) -> Iterator[str]:
    header = found.header
    yield f"{found.size / 1024:.0f}K" if found.size < 1 << 20 else f"{found.size / (1 << 20):.1f}M"
    yield f"{header.columns}x{header.rows}"
    yield header.owner or "-"
    yield header.command or "-"


# find


def _find(values: argparse.Namespace) -> int:
    regex, *names = values.words
    files = files_in(values)
    pattern = re.compile(regex, re.IGNORECASE if values.ignore_case else 0)
    paths = [chosen(files, name) for name in names] or _all(files)
    is_json = values.output == "json"
    table, listed = TablePrinter(("RECORDING", "TIME", "ROW", "TEXT")), JsonListPrinter()
    count, failures = 0, 0
    for recording in paths:
        try:
            found = list(_found_in(recording, pattern))
        except ConfigurationError as exc:
            failures += 1
            print_error(str(exc))
            continue
        count += len(found)
        if is_json:
            listed.add(found)
        elif found:
            table.add(_row(facts) for facts in found)
    if is_json:
        listed.end()
    elif not count and not failures:
        print(f"`{regex}` is in none of {len(paths)} recordings", file=sys.stderr)
    return exit_codes.OK if count and not failures else exit_codes.FAILED


def _all(files: RecordingFiles) -> list[Path]:
    return [each.path for each in files.found()]


def _found_in(recording: Path, pattern: re.Pattern[str]) -> Iterator[dict[str, Any]]:
    from exec_server.recording.text_index import open_index

    with recording_errors(recording), open_index(recording) as index:
        for seen in index.find(pattern):
            yield {
                "recording": recording.name.removesuffix(".cast"),
                "file": str(recording),
                "time": seen.time,
                "row": seen.row + 1,
                "text": seen.text,
            }


def _row(facts: dict[str, Any]) -> list[str]:
    time = shown_moment(facts["time"])
    return [facts["recording"], time, str(facts["row"]), facts["text"].strip()]


# open, export


def _open(values: argparse.Namespace) -> int:
    recording = chosen(files_in(values), values.words[0])
    with recording_errors(recording):
        return play(recording, values)


def _export(values: argparse.Namespace) -> int:
    recording = chosen(files_in(values), values.words[0])
    if values.to is None and values.format == "gif" and os.isatty(1):
        raise ConfigurationError("a gif cannot be shown on a terminal; add --to FILE")
    with recording_errors(recording):
        parts = _exported(recording, values)
        with _target(values.to) as file:
            for part in parts:
                file.write(part)
    return exit_codes.OK


def _exported(recording: Path, values: argparse.Namespace) -> Iterator[bytes]:
    from exec_server.recording import export
    from exec_server.recording.text_index import open_index

    if values.format in ("v2", "v3"):
        yield from export.converted(recording, 2 if values.format == "v2" else 3)
        return
    if values.format == "gif":
        yield export.gif_of(recording, values.at or 0.0)
        return
    with open_index(recording) as index:
        moment = index.duration if values.at is None else values.at
        if values.format == "svg":
            yield export.svg_at(recording, index, moment)
        elif values.at is not None:
            yield export.screen_at(recording, index, moment).encode("utf-8", "replace")
        else:
            yield from (text.encode("utf-8", "replace") for text in export.whole_text(index))


@contextlib.contextmanager
def _target(name: str | None) -> Iterator[IO[bytes]]:
    """The file to write, or standard output. What a recording shows is as private as itself."""
    if name is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise ConfigurationError(f"cannot write {name}: {exc.strerror}") from None
    with open(fd, "wb") as file:
        yield file

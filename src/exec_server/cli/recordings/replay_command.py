"""`exec-server replay`: play a recording of a terminal."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_error
from exec_server.cli.parser import Flag, Parser
from exec_server.cli.recordings.recording_choice import (
    add_directory,
    chosen,
    files_in,
    moment,
    recording_errors,
)
from exec_server.errors import ConfigurationError

_DESCRIPTION = """\
Play a recording of a terminal, an asciicast of version 2 or 3. If standard output is not a
terminal, the output is printed at once, or with --at the screen of that moment as text.
"""

_EPILOG = """\
keys:
  space  pause or go on              .      show the next output, and wait
  ← →    5 seconds back, forward     0-9    jump to so many tenths
  g G    jump to the start, the end  [ ]    jump to the mark before, after
  + -    twice or half the speed     /      search (a regular expression), n and N
  q      quit, also Ctrl-C           ?      show these keys

exit status:
  0    played, or ended with q
  1    the recording cannot be read
  2    the command line is wrong
  128 + N  signal N ended this program; 130 after Ctrl-C

examples:
  Play a file, twice as fast, and no pause longer than one second:
      exec-server replay --speed 2 --idle-limit 1 demo.cast

  One that `exec-server recordings` lists, from a moment on:
      exec-server replay --at 1:30 20261116T120000-bash

  The screen at a moment, as text:
      exec-server replay --at 1:30 demo.cast | cat
"""


def replay_command(words: list[str]) -> int:
    """Play the recording that *words* name."""
    parser = _parser()
    values = parser.parse_words(words)
    try:
        path = chosen(files_in(values), values.file)
        with recording_errors(path):
            return play(path, values)
    except ConfigurationError as exc:
        print_error(str(exc))
        return exit_codes.FAILED
    except BrokenPipeError:
        return _reader_left()
    except KeyboardInterrupt:
        return exit_codes.BY_SIGNAL + signal.SIGINT


def _reader_left() -> int:
    # What is left in the buffer has no reader.
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    return exit_codes.BY_SIGNAL + signal.SIGPIPE


def _parser() -> Parser:
    parser = Parser(
        "exec-server replay", usage="[OPTIONS] FILE", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument("file", metavar="FILE", help="a file, or the name of a recording")
    add_play_options(parser)
    add_directory(parser)
    return parser


def add_play_options(parser: Parser) -> None:
    parser.add_argument(
        "--speed",
        metavar="<FACTOR>",
        type=_positive,
        default=1.0,
        help="how many times as fast [default: 1]",
    )
    parser.add_argument(
        "--idle-limit",
        metavar="<SECONDS>",
        type=_positive,
        help="shorten longer pauses to this [default: as the recording says]",
    )
    parser.add_argument(
        "--at",
        metavar="<TIME>",
        type=moment,
        help="begin at this moment: seconds, or a time such as 1:30",
    )
    parser.add_argument("--paused", action=Flag, help="begin with a pause")
    parser.add_argument("--stop-at-marks", action=Flag, help="pause at each mark")


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (math.isfinite(number) and 0.001 <= number <= 1e6):
        raise argparse.ArgumentTypeError("expected a number greater than 0")
    return number


def play(path: Path, values: argparse.Namespace) -> int:
    """Play a recording, or print it; the exit status."""
    if not os.isatty(1):
        _print(path, values.at)
        return exit_codes.OK
    from exec_server.cli.recordings.player import Player, PlayOptions
    from exec_server.recording.playback import Playback
    from exec_server.recording.text_index import open_index

    options = PlayOptions(
        speed=values.speed,
        idle_limit=values.idle_limit,
        start=values.at or 0.0,
        is_paused=values.paused,
        stops_at_marks=values.stop_at_marks,
    )
    with open_index(path) as index, Playback(path, index) as playback, _signals():
        player = Player(playback, index, options)
        player.play()
    return exit_codes.BY_SIGNAL + signal.SIGINT if player.is_interrupted else exit_codes.OK


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program in order, so that the terminal is restored."""

    def end(signum: int, _: object) -> None:
        raise SystemExit(exit_codes.BY_SIGNAL + signum)

    before = {signum: signal.signal(signum, end) for signum in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _print(path: Path, at: float | None) -> None:
    if at is not None:
        from exec_server.recording.export import screen_at
        from exec_server.recording.text_index import open_index

        with open_index(path) as index:
            _put(screen_at(path, index, at).encode("utf-8", "replace"))
        return
    from exec_server.recording.cast_format import OUTPUT
    from exec_server.recording.cast_reader import CastReader

    for event, _ in CastReader(path).events():
        if event.code == OUTPUT:
            _put(event.data.encode("utf-8", "replace"))


def _put(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

"""The recording that a word names, and moments such as 1:30."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exec_server.cli.parser import Parser, path
from exec_server.errors import ConfigurationError
from exec_server.recording.cast_format import CastError
from exec_server.recording.recording_files import RecordingFiles
from exec_server.remote.state_dir import state_home


def default_directory() -> Path:
    """Where `--record` without a file puts recordings."""
    return state_home() / "recordings"


def add_directory(parser: Parser) -> None:
    parser.add_argument(
        "--dir",
        metavar="<DIR>",
        type=path,
        help="the directory of the recordings [default: ~/.local/state/exec-server/recordings]",
    )


def files_in(values: argparse.Namespace) -> RecordingFiles:
    return RecordingFiles(values.dir or default_directory())


def chosen(files: RecordingFiles, word: str) -> Path:
    """The recording with this path or name. Raises ConfigurationError if there is none."""
    if os.path.isfile(word):
        return Path(word)
    found = None if os.sep in word else files.find(word)
    if found is None:
        raise ConfigurationError(
            f"there is no recording `{word}`: give a file, or a name that `exec-server recordings` "
            f"lists (of {files.directory})"
        )
    return found


def moment(text: str) -> float:
    """Seconds since the start: 90, 12.5, 1:30 or 1:02:03."""
    if re.fullmatch(r"(?:\d{1,6}:){0,2}\d{1,8}(?:\.\d{1,9})?", text) is None:
        raise argparse.ArgumentTypeError("expected seconds, or a time such as 1:30 or 1:02:03")
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds


def shown_moment(seconds: float) -> str:
    minutes, rest = divmod(max(0.0, seconds), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:06.3f}" if hours else f"{minutes}:{rest:06.3f}"


@contextmanager
def recording_errors(name: object) -> Iterator[None]:
    """Raise ConfigurationError for a recording that cannot be read."""
    try:
        yield
    except CastError as exc:
        raise ConfigurationError(f"cannot read {name}: {exc}") from None
    except (BrokenPipeError, InterruptedError):
        raise
    except OSError as exc:
        raise ConfigurationError(f"cannot read {name}: {exc.strerror or exc}") from None
    except ImportError as exc:
        raise ConfigurationError(str(exc)) from None

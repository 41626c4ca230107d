"""`--record` of `run`, `shell` and `attach`: what this terminal shows, in a file."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from exec_server.cli.log_setup import print_warning
from exec_server.cli.options import Token
from exec_server.cli.parser import Parser
from exec_server.cli.process.own_terminal.connection_notices import say
from exec_server.errors import ConfigurationError

if TYPE_CHECKING:
    from exec_server.recording.cast_writer import CastWriter

FORMATS = ("v3", "v2")


class RecordChoice(msgspec.Struct, frozen=True, kw_only=True):
    """That a terminal is recorded, and where."""

    # None makes a name.
    file: str | None = None
    format: str = "v3"


def add_record(parser: Parser, when: str = "") -> None:
    parser.add_argument(
        "--record",
        metavar="[=FILE]",
        nargs="?",
        const="",
        help=f"{when}record what the terminal shows, never what is typed, as an asciicast; without "
        "a file in ~/.local/state/exec-server/recordings, where `exec-server recordings` finds it",
    )
    parser.add_argument(
        "--record-format",
        metavar="<FORMAT>",
        choices=FORMATS,
        default="v3",
        help="v3, or v2 for older players [default: v3]",
    )


def record_choice(values: argparse.Namespace) -> RecordChoice | None:
    if values.record is None:
        return None
    return RecordChoice(file=values.record or None, format=values.record_format)


class LocalRecording:
    """Records one terminal. A failure is told once; the terminal goes on without the recording."""

    def __init__(self, writer: CastWriter) -> None:
        self._writer: CastWriter | None = writer
        self._started = time.monotonic()
        self.path = writer.path

    def output(self, data: bytes) -> None:
        if self._writer is not None:
            try:
                self._writer.output(self._now(), data)
            except OSError as exc:
                self._fail(exc)

    def resized(self, rows: int, cols: int) -> None:
        if self._writer is not None:
            try:
                self._writer.resized(self._now(), cols, rows)
            except OSError as exc:
                self._fail(exc)

    def close(self, status: int | None) -> None:
        """The process has ended with *status*; None if it goes on, or if that is unknown."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                if status is not None:
                    writer.exited(self._now(), status)
                writer.close(self._now())
            except OSError as exc:
                print_warning(_failure(self.path, exc))

    def _now(self) -> float:
        return time.monotonic() - self._started

    def _fail(self, exc: OSError) -> None:
        self._writer = None
        say(_failure(self.path, exc), is_raw=True)


def _failure(path: str, exc: OSError) -> str:
    return f"the recording {path} ends: {exc.strerror or exc}"


@contextmanager
def recorded(
    choice: RecordChoice | None,
    argv: Sequence[str],
    size: tuple[int, int] | None,
    *,
    env: Mapping[str, str] | None = None,
    token: Token | None = None,
) -> Iterator[LocalRecording | None]:
    """A recording that begins now, and is closed at the end; None if there is none to make.

    Raises ConfigurationError if the file cannot be made, for example because it exists.
    """
    if choice is None:
        yield None
        return
    recording = LocalRecording(_open(choice, argv, size or (24, 80), env or {}, token))
    try:
        yield recording
    finally:
        recording.close(None)
        if choice.file is None:
            name = os.path.basename(recording.path).removesuffix(".cast")
            say(f"recorded; see it with: exec-server replay {name}")


def _open(
    choice: RecordChoice,
    argv: Sequence[str],
    size: tuple[int, int],
    env: Mapping[str, str],
    token: Token | None,
) -> CastWriter:
    from exec_server.audit.masking import PLAIN, is_secret_name
    from exec_server.cli.recordings.recording_choice import default_directory
    from exec_server.recording.cast_format import CastHeader
    from exec_server.recording.cast_writer import CastWriter
    from exec_server.recording.recording_files import RecordingFiles

    variables = (*os.environ.items(), *env.items())
    secrets = [value for name, value in variables if is_secret_name(name)]
    if token is not None:
        secrets.append(token() if callable(token) else token)
    header = CastHeader(
        version=2 if choice.format == "v2" else 3,
        columns=size[1],
        rows=size[0],
        started=time.time(),
        command=shlex.join(PLAIN.command(list(argv))),
        term=os.environ.get("TERM"),
    )
    path = choice.file
    try:
        if path is None:
            files = RecordingFiles(default_directory())
            files.make()
            path = str(files.new_path(argv[0].rpartition("/")[2] if argv else ""))
        return CastWriter(path, header, secrets=secrets)
    except OSError as exc:
        raise ConfigurationError(f"cannot record to {path}: {exc.strerror or exc}") from None

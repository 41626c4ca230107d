"""The options that record all terminals of a server.

This module loads little: the server's parser uses it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from exec_server.cli.parser import Parser, path
from exec_server.cli.serve.audit_options import size
from exec_server.errors import ConfigurationError

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from exec_server.cli.serve.option_records import RecordOptions
    from exec_server.recording.recorder import TerminalRecorder

DEFAULT_QUOTA = 1 << 30


def add_record_options(parser: Parser) -> None:
    group = parser.add_argument_group("recordings of terminals")
    group.add_argument(
        "--record-terminals",
        metavar="<DIR>",
        type=path,
        help="record what every terminal shows, never what is typed, to a file in this directory, "
        "which should have nothing else in it; `exec-server recordings --dir DIR` finds, replays "
        "and exports them",
    )
    group.add_argument(
        "--record-quota",
        metavar="<SIZE>",
        type=size,
        default=DEFAULT_QUOTA,
        help="the most that the recordings may take, such as 500M or 20G; the oldest are removed "
        "[default: 1G]",
    )
    group.add_argument(
        "--record-secrets",
        metavar="<FILE>",
        type=path,
        help="a file with secrets, one on each line, that no recording may have; the values of "
        "variables such as API_TOKEN and the server's own tokens are left out anyhow",
    )


def record_options(values: argparse.Namespace) -> RecordOptions:
    from exec_server.cli.serve.option_records import RecordOptions

    return RecordOptions(
        directory=values.record_terminals,
        quota=values.record_quota,
        secrets_file=values.record_secrets,
    )


@contextmanager
def open_recorder(
    options: RecordOptions, *token_files: str | None
) -> Iterator[TerminalRecorder | None]:
    """The recorder, which is closed at the end; None if terminals are not recorded.

    What *token_files* contain is secret. Raises ConfigurationError.
    """
    if options.directory is None:
        yield None
        return
    from exec_server.recording.recorder import TerminalRecorder
    from exec_server.server.recorded_terminals import secret_values

    secrets = list(secret_values(os.environ))
    for file in (options.secrets_file, *token_files):
        if file is not None:
            secrets += _lines_of(file)
    try:
        recorder = TerminalRecorder(options.directory, quota=options.quota, secrets=secrets)
    except OSError as exc:
        why = exc.strerror or str(exc)
        raise ConfigurationError(f"cannot record to {options.directory}: {why}") from None
    try:
        yield recorder
    finally:
        recorder.close()


def _lines_of(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            return lines.read().splitlines()
    except OSError as exc:
        raise ConfigurationError(f"cannot read {file}: {exc.strerror}") from None

"""The options of the audit log.

This module loads little: the server's parser uses it.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from exec_server.cli.parser import Parser, path, positive_count

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from exec_server.cli.serve.option_records import AuditSettings
    from exec_server.server.server_audit import ServerAudit

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST_FILES = 1000
# A line may have some kilobytes; a smaller file would be rotated all the time.
_LEAST_BYTES = 1 << 16


def add_audit(parser: Parser) -> None:
    group = parser.add_argument_group("audit log: who did what, when and from where")
    group.add_argument(
        "--audit",
        metavar="<FILE>",
        type=path,
        help="append a line to this file for each request that does something, before its answer "
        "is sent; `exec-server audit FILE` reads and checks it",
    )
    group.add_argument(
        "--audit-when-full",
        metavar="<WHAT>",
        choices=("refuse", "go-on"),
        default="go-on",
        help="if the file cannot be written: refuse requests, or go on and write later how many "
        "lines were lost [default: %(default)s]",
    )
    group.add_argument(
        "--audit-fsync",
        metavar="<WHEN>",
        choices=("always", "interval", "never"),
        default="interval",
        help="write lines through to the disk: always before the answer, at an interval of one "
        "second, or never [default: %(default)s]",
    )
    group.add_argument(
        "--audit-size",
        metavar="<SIZE>",
        type=size,
        help="begin a new file at this size, such as 100M; the old one becomes FILE.1, and so on "
        "[default: never]",
    )
    group.add_argument(
        "--audit-keep",
        metavar="<COUNT>",
        type=_file_count,
        default=8,
        help="how many older files are kept [default: %(default)s]",
    )


def audit_settings(values: argparse.Namespace) -> AuditSettings:
    from exec_server.cli.serve.option_records import AuditSettings

    return AuditSettings(
        file=values.audit,
        when_full=values.audit_when_full,
        fsync=values.audit_fsync,
        max_bytes=values.audit_size,
        keep=values.audit_keep,
    )


@contextmanager
def open_audit(settings: AuditSettings) -> Iterator[ServerAudit | None]:
    """The audit log, which is closed at the end; None if there is none.

    Raises ConfigurationError if it cannot be written.
    """
    if settings.file is None:
        yield None
        return
    import logging

    from exec_server.audit.audit_file import AuditLines, AuditOptions
    from exec_server.server.server_audit import ServerAudit

    options = AuditOptions(
        when_full=settings.when_full,
        fsync=settings.fsync,
        max_bytes=settings.max_bytes,
        keep=settings.keep,
    )
    audit = ServerAudit(AuditLines(os.path.abspath(settings.file), options))
    if own_folder(settings.file) is None:
        logging.getLogger(__name__).warning(
            "sandboxed commands may read the audit log %s; put it into a directory of its own with "
            "mode 0700",
            settings.file,
            extra={"notice": "audit"},
        )
    try:
        yield audit
    finally:
        audit.close()


def own_folder(file: str) -> str | None:
    """The directory of the log, if it is private and has nothing else in it.

    Such a directory is hidden from sandboxes. The file alone cannot be: it is renamed when it is
    rotated, and a sandbox whose hidden file is renamed has to end.
    """
    folder, name = os.path.split(os.path.abspath(file))
    try:
        is_private = not os.stat(folder).st_mode & 0o077
        is_own = is_private and all(each.startswith(name) for each in os.listdir(folder))
    except OSError:
        return None
    return folder if is_own else None


def size(text: str) -> int:
    """A number of bytes, with K, M or G for 1024 bytes and so on; at least 64K."""
    found = re.fullmatch(r"([0-9]{1,12})([KMG]?)(?:iB|B)?", text, re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError("expected a number of bytes, or one with K, M or G")
    number = int(found[1]) * _UNITS[found[2].upper()]
    if number < _LEAST_BYTES:
        raise argparse.ArgumentTypeError("expected at least 64K")
    return number


def _file_count(text: str) -> int:
    number = positive_count(text)
    if number > _MOST_FILES:
        raise argparse.ArgumentTypeError(f"expected at most {_MOST_FILES}")
    return number

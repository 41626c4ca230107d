"""Options for the quotas of a whole server."""

from __future__ import annotations

import argparse

from exec_server.cli.parser import Parser

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from exec_server.cli.serve.option_records import QuotaOptions


def add_quota_options(parser: Parser) -> None:
    group = parser.add_argument_group("quotas of all clients together")
    for what in ("connections", "sessions", "processes"):
        group.add_argument(
            f"--max-{what}",
            metavar="<N>",
            type=_count,
            help=f"refuse more {what} than this [default: no limit]",
        )
    group.add_argument(
        "--when-full",
        metavar="<WHAT>",
        choices=("refuse", "queue"),
        default="refuse",
        help="refuse a start beyond a quota of processes, or queue it until there is room "
        "[default: refuse]",
    )


def quota_options(values: argparse.Namespace) -> QuotaOptions:
    from exec_server.cli.serve.option_records import QuotaOptions

    return QuotaOptions(
        max_connections=values.max_connections,
        max_sessions=values.max_sessions,
        max_processes=values.max_processes,
        when_full=values.when_full,
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError("expected a number of at least 1")
    return int(text)

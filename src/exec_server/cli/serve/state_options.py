"""The options for durable jobs.

This module loads little: the server's parser uses it.
"""

from __future__ import annotations

from exec_server import defaults
from exec_server.cli.options import duration
from exec_server.cli.parser import Parser, path, positive_count

# The word for a server without durable jobs.
NO_STATE = "none"


def add_state(parser: Parser) -> None:
    """The options for durable jobs."""
    group = parser.add_argument_group("durable jobs, which outlive the server")
    group.add_argument(
        "--state",
        metavar="<DIR>",
        type=path,
        help="keep durable jobs, such as those of `run --detach`, in this directory: the next "
        "server on it continues with them; none: keep none [default: below $STATE_DIRECTORY of a "
        "systemd unit, else, for a port other than 0, a Unix socket or an environment of a "
        "registry, a directory of its own below ~/.local/state/exec-server/servers]",
    )
    parser.suggestions["state"] = (NO_STATE,)
    group.add_argument(
        "--state-job-bytes",
        metavar="<BYTES>",
        type=positive_count,
        default=defaults.JOB_JOURNAL_BYTES,
        help="how much output of each durable job is kept; older output is dropped "
        "[default: %(default)s]",
    )
    group.add_argument(
        "--state-total-bytes",
        metavar="<BYTES>",
        type=positive_count,
        default=defaults.JOB_JOURNAL_TOTAL_BYTES,
        help="how much output of all durable jobs together is kept [default: %(default)s]",
    )
    group.add_argument(
        "--state-keep",
        metavar="<DURATION>",
        type=duration,
        default=defaults.JOB_KEEP_SECONDS,
        help="how long a durable job that has ended, and its output, can be read: seconds, or a "
        f"number with s, m, h or d [default: {defaults.JOB_KEEP_SECONDS / 86400:g}d]",
    )

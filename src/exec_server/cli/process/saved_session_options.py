"""The parser that the commands for detached processes share."""

from __future__ import annotations

from exec_server.cli.options import TOKEN_HELP, add_connection_options
from exec_server.cli.parser import Parser

_STATUS_HELP = """\
exit status:
  {status}
  1    {failed}
  2    the command line is wrong
"""


def saved_parser(
    name: str,
    *,
    usage: str,
    description: str,
    examples: str,
    status: str = "0    the command did what it was asked to do",
    failed: str = "it has expired, it is attached elsewhere, or its server cannot be reached",
) -> Parser:
    """A parser for `exec-server NAME`, with the options of a connection."""
    status_help = _STATUS_HELP.format(status=status, failed=failed)
    parser = Parser(
        f"exec-server {name}",
        usage=usage,
        description=description,
        epilog=f"{TOKEN_HELP}\n{status_help}\nexamples:\n{examples}",
    )
    add_connection_options(parser)
    return parser

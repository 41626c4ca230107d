"""The parser that the commands for detached processes share."""

from __future__ import annotations

import argparse

from exec_server.cli.options import TOKEN_HELP, add_connection_options, server_token
from exec_server.cli.parser import Parser
from exec_server.cli.process.detached.detach import ServerAccess

_STATUS_HELP = """\
exit status:
  {status}
  1    {failed}
  2    the command line is wrong
"""


def access_of(parser: Parser, values: argparse.Namespace) -> ServerAccess:
    """How a command that `saved_parser` has parsed reaches servers. Raises ConfigurationError."""
    return ServerAccess(
        client_name=parser.prog,
        token=server_token(parser, values),
        token_file=values.token_file,
        pin=values.pin,
    )


def saved_parser(
    name: str,
    *,
    usage: str,
    description: str,
    examples: str,
    status: str = "0    the command did what it was asked to do",
    failed: str = "it has expired, it is attached elsewhere, or its server cannot be reached",
    words_help: str = "",
) -> Parser:
    """A parser for `exec-server NAME`, with the options of a connection."""
    status_help = _STATUS_HELP.format(status=status, failed=failed)
    paragraphs = [words_help, TOKEN_HELP, status_help, f"examples:\n{examples}"]
    parser = Parser(
        f"exec-server {name}",
        usage=usage,
        description=description,
        epilog="\n".join(filter(None, paragraphs)),
    )
    add_connection_options(parser)
    return parser

"""The option of the server for byte streams."""

from __future__ import annotations

import argparse

from exec_server.cli.parser import Append, Parser
from exec_server.errors import ConfigurationError


def add_stream_rules(parser: Parser) -> None:
    """What streams of clients may reach."""
    group = parser.add_argument_group("streams to ports and Unix sockets of this machine")
    group.add_argument(
        "--stream-allow",
        metavar="<RULE>",
        action=Append,
        type=_rule,
        help="what clients may reach beside the loopback: HOST:PORT, NETWORK:PORT, unix:PATH or "
        "listen:HOST:PORT, with * as a wildcard; none: not even the loopback; may be repeated",
    )


def _rule(text: str) -> str:
    from exec_server.server.streams.stream_rules import StreamRules

    try:
        StreamRules([text])
    except ConfigurationError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
    return text

"""The options for what commands may use on this server.

This module loads little: the server's parser uses it.
"""

from __future__ import annotations

import argparse

from exec_server.cli.parser import Append, Parser

_Pairs = tuple[tuple[str, float], ...]


def add_process_limits(parser: Parser) -> None:
    group = parser.add_argument_group("what each command may use, with all that it starts")
    group.add_argument(
        "--limit-default",
        metavar="<NAME=VALUE>",
        action=Append,
        type=_checked,
        help="limits of commands whose client asks for none, such as memory=2G,pids=500; the names "
        "are those of `exec-server run --limit`",
    )
    group.add_argument(
        "--limit-max",
        metavar="<NAME=VALUE>",
        action=Append,
        type=_checked,
        help="the most that a client may ask for, and what a command without such a limit gets",
    )


def process_limits(texts: list[str]) -> _Pairs:
    """The limits in *texts*, as `Limits` has them."""
    if not texts:
        return ()
    from exec_server.protocol.limit_words import limits_in, parse_limits

    return tuple(limits_in(parse_limits(texts)).items())


def _checked(text: str) -> str:
    from exec_server.protocol.limit_words import REQUIRE, WrongLimit, parse_limits

    try:
        if parse_limits([text]).require:
            raise WrongLimit(f"`{REQUIRE}` is for clients")
    except WrongLimit as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
    return text

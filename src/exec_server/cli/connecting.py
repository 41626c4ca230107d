"""What every command that talks to a server has: its URL, a token, an event loop."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from exec_server.cli.arguments import Parser, path
from exec_server.errors import ConfigurationError

TOKEN_VARIABLE = "EXEC_SERVER_TOKEN"
SCHEMES = ("ws://", "wss://", "unix://", "stdio:")

TOKEN_HELP = f"""\
environment:
  {TOKEN_VARIABLE}  the bearer token, when neither --token nor --token-file is given
"""


def add_connection_options(parser: Parser) -> None:
    """The token, and what to tell on stderr."""
    add = parser.add_argument
    add("--token", metavar="<TOKEN>", help="bearer token; others may see it in process lists")
    add("--token-file", metavar="<PATH>", type=path, help="file that holds the bearer token")
    add(
        "--log-level",
        metavar="<LEVEL>",
        choices=("error", "warning", "info", "debug"),
        default="error",
        help="what to tell on stderr: error, warning, info or debug [default: error]",
    )


def read_token(values: argparse.Namespace, environ: Mapping[str, str]) -> str | None:
    """The token to show. Raises ConfigurationError when its file cannot be read."""
    if values.token is not None:
        return str(values.token)
    if values.token_file is None:
        return environ.get(TOKEN_VARIABLE) or None
    try:
        with open(values.token_file, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise ConfigurationError(f"cannot read `{values.token_file}`: {why}") from None


def expected_schemes() -> str:
    """What a URL may begin with, for an error."""
    return ", ".join(f"{scheme}..." for scheme in SCHEMES)


def in_loop(main: Coroutine[Any, Any, int]) -> int:
    """Run *main* on the fastest event loop that is there."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)

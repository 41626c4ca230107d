"""The options of ``exec-server run``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from exec_server.cli.arguments import Append, Flag, Parser, path, seconds
from exec_server.cli.connecting import (
    SCHEMES,
    TOKEN_HELP,
    add_connection_options,
    expected_schemes,
    read_token,
)

OutputFormat = Literal["text", "json"]

_DESCRIPTION = """\
Run a command on a server, as if it ran here: its output appears live, it reads this program's
input, Ctrl-C interrupts it (twice: kills it), and its exit status becomes this program's.
"""

_EPILOG = f"""\
The URL is the one that `exec-server` prints, `unix://PATH`, or `stdio:PROGRAM` for a server that
is started for this one command.

{TOKEN_HELP}
exit status:
  of the command; 128 + N when signal N ended it
  1    the server cannot be reached, or the connection was lost
  2    the command line is wrong
  124  the command took longer than --timeout
  126  the command cannot be started; 127 when it was not found

examples:
  Run one command:
      exec-server run ws://127.0.0.1:41181 -- uname -a

  In a directory, with a variable, for at most a minute:
      exec-server run --cwd /srv/app --env CI=1 --timeout 60 ws://127.0.0.1:41181 -- make test

  Feed it a file, keep what it prints:
      exec-server run ws://127.0.0.1:41181 -- gzip -c < notes.txt > notes.gz

  A terminal, for shells and editors:
      exec-server run --tty ws://127.0.0.1:41181 -- bash -l

  A server that asks for a token:
      exec-server run --token-file token wss://build.example.net -- make

  Over ssh, with nothing listening on the far side:
      exec-server run 'stdio:ssh build exec-server --listen stdio' -- uname -a

  For a program to read:
      exec-server run -o json ws://127.0.0.1:41181 -- git status --porcelain
"""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run where."""

    url: str
    argv: list[str]
    cwd: str | None = None
    env: dict[str, str] = {}
    tty: bool = False
    stdin: bool = True
    time_limit: float | None = None
    output: OutputFormat = "text"
    token: str | None = None
    log_level: str = "error"

    def __repr__(self) -> str:
        return f"RunOptions({self.url!r}, {self.argv!r})"


def parse_run(words: Sequence[str], environ: Mapping[str, str] | None = None) -> RunOptions:
    """Read the words after ``run``; wrong ones end the program with status 2.

    Raises ConfigurationError when the token's file cannot be read.
    """
    environ = os.environ if environ is None else environ
    parser = _parser()
    arguments = parser.parse_options(words, environ)
    parser.refuse_together(arguments, "token", "token_file")
    values = arguments.values
    if values.tty and values.output == "json":
        parser.error("the argument '--tty' cannot be used with '--output json'")
    url, argv = _split(parser, arguments.rest)
    return RunOptions(
        url=url,
        argv=argv,
        cwd=values.cwd,
        env=dict(values.env),
        tty=values.tty,
        stdin=not values.no_stdin,
        time_limit=values.timeout,
        output=values.output,
        token=read_token(values, environ),
        log_level=values.log_level,
    )


def _parser() -> Parser:
    parser = Parser(
        "exec-server run",
        usage="[OPTIONS] <URL> -- <COMMAND> [ARGS]...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("--cwd", metavar="<DIR>", type=path, help="directory on the server [default: its own]")
    add(
        "-e",
        "--env",
        metavar="<NAME=VALUE>",
        action=Append,
        type=_variable,
        help="set a variable on top of the server's environment; may be repeated",
    )
    add("-t", "--tty", action=Flag, help="run on a terminal, and make this one raw")
    add("-n", "--no-stdin", action=Flag, help="give the command no input")
    add("--timeout", metavar="<SECONDS>", type=seconds, help="kill it after that long")
    add(
        "-o",
        "--output",
        metavar="<FORMAT>",
        choices=("text", "json"),
        default="text",
        help="text passes output through; json prints one object at the end [default: text]",
    )
    add_connection_options(parser)
    return parser


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    return name, value


def _split(parser: Parser, rest: list[str]) -> tuple[str, list[str]]:
    """The URL and the command; the ``--`` between them may be left out."""
    if not rest:
        parser.error("the following required arguments were not provided:\n  <URL>\n  <COMMAND>")
    url, *argv = rest
    if not url.startswith(SCHEMES):
        parser.error(f"invalid value '{url}' for '<URL>': expected {expected_schemes()}")
    if argv[:1] == ["--"]:
        del argv[0]
    elif argv and argv[0].startswith("-"):
        parser.error(f"unexpected argument '{argv[0]}' found; options come before the URL")
    if not argv:
        parser.error("the following required arguments were not provided:\n  <COMMAND>")
    return url, argv

"""The options of ``exec-server run``."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from exec_server.cli.exit_codes import RUN_STATUS_HELP
from exec_server.cli.options import (
    TOKEN_HELP,
    Token,
    add_connection_options,
    add_output,
    add_place_on_server,
    add_verbose,
    server_token,
)
from exec_server.cli.parser import Arguments, Flag, Parser, seconds
from exec_server.cli.process.limit_options import LIMIT_HELP, add_limit, chosen_limits
from exec_server.cli.recordings.record_option import RecordChoice, add_record, record_choice
from exec_server.cli.sandbox.sandbox_options import (
    SANDBOX_HELP,
    Confinement,
    add_sandbox_options,
    confinement,
)
from exec_server.cli.server_access import (
    SERVER_HELP,
    default_server,
    expected_server,
    is_server,
    is_url,
    url_meant_by,
)
from exec_server.protocol.resources import ResourceLimits

# One day: a process that was detached in the evening can be resumed the next morning.
DEFAULT_KEEP = 24 * 3600.0

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

OutputFormat = Literal["text", "json"]

_DESCRIPTION = """\
Run a command on a server as if it ran here. Its output appears at once, it reads the input of
this program, Ctrl-C interrupts it (a second one kills it), and its exit status becomes the status
of this program. A lost connection is replaced; no output is lost or printed twice.
"""

_EPILOG = f"""\
{SERVER_HELP}
{SANDBOX_HELP}
{LIMIT_HELP}
{TOKEN_HELP}
{RUN_STATUS_HELP}
examples:
  Run one command:
      exec-server run ws://127.0.0.1:41181 -- uname -a

  In a directory, with a variable, for at most one minute:
      exec-server run --cwd /srv/app --env CI=1 --timeout 60 ws://127.0.0.1:41181 -- make test

  Read a file of this machine, and write one:
      exec-server run ws://127.0.0.1:41181 -- gzip -c < notes.txt > notes.gz

  On a terminal, for shells and editors:
      exec-server run --tty ws://127.0.0.1:41181 -- bash -l

  On a server that requires a token:
      exec-server run --token-file token wss://build.example.net -- make

  Over ssh; nothing listens on the far side:
      exec-server run 'stdio:ssh build exec-server --listen stdio' -- uname -a

  Detach, and come back later, also after the server was restarted or upgraded:
      id=$(exec-server run --detach ws://127.0.0.1:41181 -- make world)
      exec-server ps
      exec-server logs -f $id

  In a sandbox that can write to one directory:
      exec-server run --sandbox workspace-write=/srv/app ws://127.0.0.1:41181 -- npm test

  The same, and ask when something is refused:
      exec-server run --sandbox workspace-write=/srv/app --ask ws://127.0.0.1:41181 -- npm test

  With limits for the command and all that it starts:
      exec-server run --limit memory=2G --limit pids=200 ws://127.0.0.1:41181 -- make -j4

  With the time and the memory that it has used:
      exec-server run --stats ws://127.0.0.1:41181 -- make test

  As JSON, for a program:
      exec-server run -o json ws://127.0.0.1:41181 -- git status --porcelain
"""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A command, and the server that runs it."""

    # A URL or the name of an environment.
    server: str
    argv: list[str]
    cwd: str | None = None
    env: dict[str, str] = {}
    tty: bool = False
    stdin: bool = True
    time_limit: float | None = None
    # True if the end tells what the command used.
    stats: bool = False
    # How many bytes of each stream are shown or, as JSON, collected.
    max_output: int | None = None
    output: OutputFormat = "text"
    detach: bool = False
    # True if the process may outlive its server, where the server can do that.
    durable: bool = True
    # What it is called in lists.
    name: str | None = None
    # True if a shell goes on when this program ends.
    keeps: bool = False
    # True if a shell marks its prompts and commands.
    integration: bool = False
    # How many seconds a server should keep the process while it is detached.
    keep: float = DEFAULT_KEEP
    verbose: bool = False
    sandbox: Confinement | None = None
    limits: ResourceLimits | None = None
    # True if a person is asked about what the sandbox refuses.
    ask: bool = False
    # True if the command is not confined, and it is recorded what a sandbox would have to allow.
    learn: bool = False
    # The Unix user on the server; None is the server's own.
    user: str | None = None
    record: RecordChoice | None = None
    token: Token | None = None
    token_file: str | None = None
    pin: str | None = None
    log_level: str = "error"

    def __repr__(self) -> str:
        return f"RunOptions({self.server!r}, {self.argv!r})"


def parse_run(words: Sequence[str], environ: Mapping[str, str] | None = None) -> RunOptions:
    """Read the words after ``run``; wrong ones end the program with status 2.

    Raises ConfigurationError if the file of the token cannot be read.
    """
    environ = os.environ if environ is None else environ
    parser = _parser()
    arguments = parser.parse_around(words, environ)
    values = arguments.values
    parser.require(arguments, {"integration": ("tty",)})
    if values.tty and values.output == "json":
        parser.error("the argument '--tty' cannot be used with '--output json'")
    if values.tty:
        parser.refuse_together(arguments, "tty", "max_output")
        parser.refuse_together(arguments, "tty", "ask")
    if values.detach:
        parser.refuse_together(arguments, "detach", "timeout")
        parser.refuse_together(arguments, "detach", "max_output")
        parser.refuse_together(arguments, "detach", "ask")
        parser.refuse_together(arguments, "detach", "stats")
        parser.refuse_together(arguments, "detach", "record")
    else:
        parser.require(arguments, {"record": ("tty",), "record_format": ("record",)})
        parser.require(arguments, {"keep": ("detach",), "not_durable": ("detach",)})
    server, argv = _split(parser, arguments)
    return RunOptions(
        server=server,
        argv=argv,
        cwd=values.cwd,
        env=dict(values.env),
        tty=values.tty,
        # A detached command has no input; on a terminal, `attach` can type to it later.
        # A terminal on which a person is asked gives it none either.
        stdin=not (values.no_stdin or values.detach or (values.ask and os.isatty(0))),
        time_limit=values.timeout,
        stats=values.stats,
        max_output=values.max_output,
        output=values.output,
        detach=values.detach,
        durable=not values.not_durable,
        name=values.name,
        integration=values.integration,
        keep=DEFAULT_KEEP if values.keep is None else values.keep,
        verbose=values.verbose,
        sandbox=confinement(parser, arguments),
        limits=chosen_limits(values),
        ask=values.ask,
        user=values.user,
        record=record_choice(values),
        token=server_token(parser, values),
        token_file=values.token_file,
        pin=values.pin,
        log_level=values.log_level,
    )


def byte_count(text: str) -> int:
    """A number of bytes: digits, with K, M or G for 1024 bytes and so on."""
    digits, unit = (text[:-1], text[-1:].upper()) if text[-1:].isalpha() else (text, "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 15 or unit not in _UNITS:
        raise argparse.ArgumentTypeError("expected a number of bytes, such as 500, 64K or 10M")
    return int(digits) * _UNITS[unit]


def _parser() -> Parser:
    parser = Parser(
        "exec-server run",
        usage="[OPTIONS] [SERVER] -- <COMMAND> [ARGS]...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add_place_on_server(parser)
    add(
        "-t", "--tty", action=Flag, help="run the command on a terminal, and make this terminal raw"
    )
    add("-n", "--no-stdin", action=Flag, help="give the command no input")
    add(
        "--user",
        metavar="<NAME>",
        help="run the command as this user of the server's machine; the server has to run as root, "
        "and you have to be an admin there",
    )
    add("--timeout", metavar="<SECONDS>", type=seconds, help="kill the command after this time")
    add(
        "--max-output",
        metavar="<BYTES>",
        type=byte_count,
        help="show at most this much of each stream, such as 64K or 10M: the first half, and as "
        "much of the end, with a line that says how much is missing [default: everything; 64M of "
        "`-o json`]",
    )
    add(
        "--stats",
        action=Flag,
        help="print at the end, on stderr, the time, memory and disk traffic of the command",
    )
    add(
        "-d",
        "--detach",
        action=Flag,
        help="leave the command running and print its id, for `attach`, `logs`, `kill` and `ps`",
    )
    add(
        "--keep",
        metavar="<SECONDS>",
        type=seconds,
        help="with --detach: how long the server should keep a process that is not durable while "
        f"it is detached, if the server supports this [default: {DEFAULT_KEEP:g}]",
    )
    add_name(parser)
    add_integration(parser, "with --tty: ")
    add_not_durable(parser, "with --detach: ")
    add_record(parser, "with --tty: ")
    add_output(
        parser, "text passes output through; json prints one object at the end [default: text]"
    )
    add_sandbox_options(parser)
    add_limit(parser)
    add_verbose(parser)
    add_connection_options(parser)
    return parser


def add_name(parser: Parser) -> None:
    """The option to call a process something that people remember."""
    parser.add_argument(
        "--name",
        metavar="<NAME>",
        type=_name,
        help="call the process this in `ps`; `attach`, `logs` and `kill` take the name as an id",
    )


def add_integration(parser: Parser, when: str = "") -> None:
    """The option to learn from a shell what its commands are; *when* begins its help."""
    parser.add_argument(
        "--integration",
        action=Flag,
        help=f"{when}let bash, zsh or fish mark prompts and commands by sequences that terminals "
        "do not show; `exec-server screen --command` then tells the last command, its directory, "
        "exit status and output",
    )


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
        raise argparse.ArgumentTypeError("expected up to 64 letters, digits, dots, - and _")
    return text


def add_not_durable(parser: Parser, when: str = "") -> None:
    """The option to leave no trace on the server's disk; *when* begins its help."""
    parser.add_argument(
        "--not-durable",
        action=Flag,
        help=f"{when}let the process end with the server, even if the server could keep it; its "
        "output is then not written to the server's disk",
    )


def _split(parser: Parser, arguments: Arguments) -> tuple[str, list[str]]:
    """The server and the command; the ``--`` between them may be left out."""
    if not arguments.rest:
        parser.error("the following required arguments were not provided:\n  <SERVER>\n  <COMMAND>")
    server, argv = split_server(parser, arguments)
    if not argv:
        parser.error("the following required arguments were not provided:\n  <COMMAND>")
    return server, argv


def split_server(parser: Parser, arguments: Arguments) -> tuple[str, list[str]]:
    """The server and the words after it; wrong ones are a usage error.

    The server is the default if it is left out: if there are no words, or a ``--`` is before them.
    Raises ConfigurationError if environments.toml is wrong.
    """
    rest = arguments.rest
    if not rest or (arguments.is_ended and not is_url(rest[0])):
        default = default_server()
        if default is None:
            parser.error(
                "the following required arguments were not provided:\n  <SERVER>\n\n"
                "  tip: it may be left out if environments.toml has a `default` on another machine"
            )
        return default, rest
    server, *argv = rest
    if not is_server(server):
        tip = f"\n\n  tip: did you mean '{meant}'?" if (meant := url_meant_by(server)) else ""
        if getattr(arguments.values, "record", None) == "":
            tip = f"\n\n  tip: a file for --record is written '--record={server}'"
        parser.error(f"invalid value '{server}' for '<SERVER>': expected {expected_server()}{tip}")
    if argv[:1] == ["--"]:
        del argv[0]
    elif argv and argv[0].startswith("-"):
        parser.error(
            f"unexpected argument '{argv[0]}' found; options come before the server, or between it "
            "and a `--` before the command"
        )
    return server, argv

"""The options, errors and exit status that the commands for files share."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from exec_server.cli import exit_codes
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.files.targets import TARGET_HELP, Servers, Target, not_remote, parse_remote
from exec_server.cli.log_setup import errors_told, print_error, print_warning
from exec_server.cli.options import TOKEN_HELP, add_connection_options, server_token
from exec_server.cli.os_error_text import without_os_error
from exec_server.cli.parser import Flag, Parser
from exec_server.cli.tables import failure_teller, print_json, print_json_failure
from exec_server.errors import ExecServerError, RpcError

# A name must not move the cursor or set the title of a window.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\udc80-\udcff]")

_TARGET = "<SERVER:/PATH>"

Action = Callable[[argparse.Namespace, Servers], Awaitable[int]]
# Handles one target.
Work = Callable[[argparse.Namespace, Servers, Target], Awaitable[None]]


def file_parser(name: str, *, usage: str, description: str, examples: str) -> Parser:
    parser = Parser(
        f"exec-server {name}",
        usage=usage,
        description=description,
        epilog=f"{TARGET_HELP}\n{TOKEN_HELP}\nexamples:\n{examples}",
    )
    add_connection_options(parser)
    return parser


def targets_parser(
    name: str, *, what: str, description: str, examples: str, takes_many: bool = True
) -> Parser:
    """A parser whose positional words are files on servers; *what* is their help text."""
    usage = f"[OPTIONS] {_TARGET}{'...' if takes_many else ''}"
    parser = file_parser(name, usage=usage, description=description, examples=examples)
    parser.add_argument("targets", metavar=_TARGET, nargs="+" if takes_many else 1, help=what)
    return parser


def add_habits(parser: Parser, **options: str) -> None:
    """Accept options that people type for programs of the same name; each says what holds here.

    The short name of an option is the first letter of its name.
    """
    for name, text in options.items():
        parser.add_argument(f"-{name[0]}", f"--{name}", action=Flag, help=f"accepted: {text}")


def name_pattern(text: str) -> str:
    """A pattern of the command line, as the line of a .gitignore that means the same.

    Only a file has comments, and lines that end in blanks by accident. Raises ArgumentTypeError for
    a pattern that can match nothing: what it should protect would be removed.
    """
    sign, pattern = text[: text.startswith("!")], text[text.startswith("!") :]
    if pattern.startswith("./"):
        pattern = pattern[1:]
    if not pattern.strip("/"):
        raise argparse.ArgumentTypeError(f"`{text}` matches no name; give a name such as `build/`")
    if pattern.startswith("#") and not sign:
        pattern = f"\\{pattern}"
    kept = pattern.rstrip(" ")
    if not kept.endswith("\\"):
        pattern = kept + (len(pattern) - len(kept)) * "\\ "
    return sign + pattern


def run_file_command(parser: Parser, words: list[str], action: Action) -> int:
    """Run *action* with the options in *words* and return the exit status.

    A wrong command line ends the program with status 2.
    """
    values = parser.parse_words(words)

    async def work() -> int:
        token = server_token(parser, values)
        async with Servers(token=token, pin=values.pin, client_name=parser.prog) as servers:
            status = await action(values, servers)
            sys.stdout.flush()
            return status

    tell = failure_teller(getattr(values, "output", "text"))
    return run_to_exit_status(work, log_level=values.log_level, complain=complain, tell=tell)


def run_for_targets(parser: Parser, words: list[str], work: Work) -> int:
    """Run *work* for each target of a parser of `targets_parser`."""

    async def act(values: argparse.Namespace, servers: Servers) -> int:
        return await each_target(remote_targets(parser, values), partial(work, values, servers))

    return run_file_command(parser, words, act)


async def each_target(targets: list[Target], work: Callable[[Target], Awaitable[None]]) -> int:
    """Await *work* for every target; after a failure it continues with the next one."""
    status = exit_codes.OK
    for target in targets:
        try:
            await work(target)
        except BrokenPipeError:
            raise
        except (ExecServerError, OSError) as exc:
            if getattr(exc, "retryable", False):
                # The connection is lost for the other targets, too.
                raise
            complain(f"{target}: {reason(exc)}")
            status = exit_codes.FAILED
    return status


def remote_targets(parser: Parser, values: argparse.Namespace) -> list[Target]:
    """The targets of a parser of `targets_parser`; each must be on a server."""
    targets = []
    for text in values.targets:
        target = parse_remote(text)
        if target is None:
            parser.error(not_remote(text))
        targets.append(target)
    return targets


def reason(exc: BaseException) -> str:
    """The reason of an error, for people."""
    if isinstance(exc, OSError) and not isinstance(exc, RpcError) and exc.strerror:
        return exc.strerror
    # The command names the path itself.
    return without_os_error(exc.message if isinstance(exc, RpcError) else str(exc))


def complain(text: str) -> None:
    print_error(readable(text))


def warn(text: str) -> None:
    print_warning(readable(text))


def readable(text: str) -> str:
    """A name for a message, with "?" for bytes that are not text and for control characters."""
    return _CONTROLS.sub("?", text)


def say(text: str) -> None:
    """Print a line: unchanged into a pipe, and without control characters on a terminal."""
    if sys.stdout.isatty():
        text = readable(text)
    sys.stdout.buffer.write(encoded(text) + b"\n")


def encoded(text: str) -> bytes:
    """*text* in the encoding of this machine's names, or in UTF-8 if that has not all of it."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def say_json(entries: list[dict[str, Any]], *, is_list: bool) -> None:
    """Print *entries*, or the only one of them; after an error, the object of a failure."""
    if errors_told():
        print_json_failure(exit_codes.FAILED, entries=entries)
    elif entries or is_list:
        print_json(entries if is_list else entries[0])

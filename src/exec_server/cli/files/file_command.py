"""What the commands for files have in common: options, errors, exit status."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from exec_server.cli import exit_codes
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.files.targets import TARGET_HELP, Servers, Target, parse_target
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import TOKEN_HELP, add_connection_options, server_token
from exec_server.cli.os_error_text import without_os_error
from exec_server.cli.parser import Parser
from exec_server.errors import ExecServerError

# A name must not be able to move the cursor or to set the title of a window.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\udc80-\udcff]")

_TARGET = "<URL:/PATH>"

Action = Callable[[argparse.Namespace, Servers], Awaitable[int]]
# What is done with each target.
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
    """For a command that is about files of servers and nothing else; *what* it does with them."""
    usage = f"[OPTIONS] {_TARGET}{'...' if takes_many else ''}"
    parser = file_parser(name, usage=usage, description=description, examples=examples)
    parser.add_argument("targets", metavar=_TARGET, nargs="+" if takes_many else 1, help=what)
    return parser


def run_file_command(parser: Parser, words: list[str], action: Action) -> int:
    """Do as *words* say and return the exit status; wrong ones end the program with status 2."""
    values = parser.parse_words(words)

    async def work() -> int:
        token = server_token(parser, values)
        async with Servers(token=token, pin=values.pin, client_name=parser.prog) as servers:
            status = await action(values, servers)
            sys.stdout.flush()
            return status

    return run_to_exit_status(work, log_level=values.log_level, complain=complain)


def run_for_targets(parser: Parser, words: list[str], work: Work) -> int:
    """As `run_file_command`, for a parser of `targets_parser`."""

    async def act(values: argparse.Namespace, servers: Servers) -> int:
        return await each_target(remote_targets(parser, values), partial(work, values, servers))

    return run_file_command(parser, words, act)


async def each_target(targets: list[Target], work: Callable[[Target], Awaitable[None]]) -> int:
    """Await *work* for every target; one that fails does not keep the others from their turn."""
    status = exit_codes.OK
    for target in targets:
        try:
            await work(target)
        except BrokenPipeError:
            raise
        except (ExecServerError, OSError) as exc:
            if getattr(exc, "retryable", False):
                # The connection is gone, for the others as well.
                raise
            complain(f"{target}: {reason(exc)}")
            status = exit_codes.FAILED
    return status


def remote_targets(parser: Parser, values: argparse.Namespace) -> list[Target]:
    """Those of a parser of `targets_parser`, each of which must be on a server."""
    targets = [parse_target(text) for text in values.targets]
    for target in targets:
        if not target.is_remote:
            parser.error(f"'{target.path}' is not on a server: expected URL:/PATH")
    return targets


def reason(exc: BaseException) -> str:
    """Why something failed, for people."""
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return without_os_error(str(exc))


def complain(text: str) -> None:
    print_error(readable(text))


def warn(text: str) -> None:
    print(f"Warning: {readable(text)}", file=sys.stderr)


def readable(text: str) -> str:
    """A name in a message: what is not text, or would act on a terminal, is a question mark."""
    return _CONTROLS.sub("?", text)


def say(text: str) -> None:
    """A line of output: as it is for programs, and harmless on a terminal."""
    if sys.stdout.isatty():
        text = readable(text)
    sys.stdout.buffer.write(os.fsencode(text) + b"\n")


def say_json(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")

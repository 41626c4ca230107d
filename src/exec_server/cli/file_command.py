"""What the commands for files have in common: options, errors, exit status."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from exec_server.cli import logs
from exec_server.cli.arguments import Parser
from exec_server.cli.connecting import TOKEN_HELP, add_connection_options, in_loop, read_token
from exec_server.cli.targets import TARGET_HELP, Servers, Target, parse_target
from exec_server.errors import ExecServerError

_FAILED = 1
_BY_SIGNAL = 128

_OS_ERROR = re.compile(r" \(os error \d+\)\Z")
# A name must not be able to move the cursor or to set the title of a window.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\udc80-\udcff]")

Action = Callable[[argparse.Namespace, Servers], Awaitable[int]]


def file_parser(name: str, *, usage: str, description: str, examples: str) -> Parser:
    parser = Parser(
        f"exec-server {name}",
        usage=usage,
        description=description,
        epilog=f"{TARGET_HELP}\n{TOKEN_HELP}\nexamples:\n{examples}",
    )
    add_connection_options(parser)
    return parser


def add_output(parser: Parser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="<FORMAT>",
        choices=("text", "json"),
        default="text",
        help="text for people, json for programs [default: text]",
    )


def run_file_command(parser: Parser, words: list[str], action: Action) -> int:
    """Do as *words* say and return the exit status; wrong ones end the program with status 2."""
    values = parser.parse_args(words)
    if values.token is not None and values.token_file is not None:
        parser.error("the argument '--token <TOKEN>' cannot be used with '--token-file <PATH>'")
    logs.configure(values.log_level, "text")
    try:
        return in_loop(_connected(parser.prog, values, action))
    except KeyboardInterrupt:
        return _BY_SIGNAL + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has had enough, as after `| head`; so has the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BY_SIGNAL + signal.SIGPIPE
    except ExecServerError as exc:
        complain(str(exc))
        return _FAILED


async def _connected(prog: str, values: argparse.Namespace, action: Action) -> int:
    token = read_token(values, os.environ)
    async with Servers(token=token, client_name=prog) as servers:
        status = await action(values, servers)
        sys.stdout.flush()
        return status


async def each_target(targets: list[Target], work: Callable[[Target], Awaitable[None]]) -> int:
    """Await *work* for every target; one that fails does not keep the others from their turn."""
    status = 0
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
            status = _FAILED
    return status


def remote_targets(parser: Parser, texts: list[str]) -> list[Target]:
    """Words that must each name something on a server."""
    targets = [parse_target(text) for text in texts]
    for target in targets:
        if not target.is_remote:
            parser.error(f"'{target.path}' is not on a server: expected URL:/PATH")
    return targets


def reason(exc: BaseException) -> str:
    """Why something failed, for people."""
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return _OS_ERROR.sub("", str(exc))


def complain(text: str) -> None:
    print(f"Error: {readable(text)}", file=sys.stderr)


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

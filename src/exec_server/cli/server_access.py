"""What every command that talks to a server has: its URL or name, a token, an event loop."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from exec_server.cli import exit_codes, log_setup
from exec_server.cli.parser import Flag, Parser, path
from exec_server.errors import ConfigurationError, ExecServerError
from exec_server.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.environments.manager import EnvironmentManager
    from exec_server.client.session_link import ConnectionState

TOKEN_VARIABLE = "EXEC_SERVER_TOKEN"
SCHEMES = ("ws://", "wss://", "unix://", "stdio:", "noise+https://", "noise+http://")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

SERVER_HELP = """\
SERVER is a URL, as `exec-server` prints it, unix://PATH, or stdio:PROGRAM for a server that is
started for this one command; or the name of an environment, which `exec-server env` lists.
"""

TOKEN_HELP = f"""\
environment:
  {TOKEN_VARIABLE}  the bearer token, when neither --token nor --token-file is given and none
                     is configured
"""


def add_connection_options(parser: Parser) -> None:
    """The token, and what to tell on stderr."""
    add = parser.add_argument
    add("--token", metavar="<TOKEN>", help="bearer token; others may see it in process lists")
    add("--token-file", metavar="<PATH>", type=path, help="file that holds the bearer token")
    add(
        "--pin",
        metavar="<PIN>",
        type=pin,
        help="only an executor behind a registry whose key has this fingerprint; first-use: the "
        "one that is seen first, from then on [default: EXEC_SERVER_PIN]",
    )
    add(
        "--log-level",
        metavar="<LEVEL>",
        choices=("error", "warning", "info", "debug"),
        default="error",
        help="what to tell on stderr: error, warning, info or debug [default: error]",
    )


def pin(text: str) -> str:
    """A `type`: the fingerprint of a key, or `first-use`."""
    from exec_server.remote.executor_trust import check_pin

    try:
        return check_pin(text)
    except ConfigurationError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def add_output(parser: Parser) -> None:
    """Whether facts are for people or for programs."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="<FORMAT>",
        choices=("text", "json"),
        default="text",
        help="text for people, json for programs [default: text]",
    )


def add_verbose(parser: Parser) -> None:
    """Whether to tell of lost connections where nobody watches."""
    parser.add_argument(
        "-v",
        "--verbose",
        action=Flag,
        help="tell of lost connections even when stderr is not a terminal",
    )


def read_token(values: argparse.Namespace) -> str | None:
    """The token that the command line gives. Raises ConfigurationError for a file without one."""
    if values.token is not None:
        return str(values.token)
    return None if values.token_file is None else read_token_file(values.token_file)


def read_token_file(name: str) -> str:
    try:
        with open(name, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise ConfigurationError(f"cannot read `{name}`: {why}") from None


# Servers, by URL or name.


def is_url(text: str) -> bool:
    return text.startswith(SCHEMES)


def is_server(text: str) -> bool:
    """Whether *text* has the form of a URL or of a name."""
    return is_url(text) or _NAME.fullmatch(text) is not None


def expected_server() -> str:
    """What a server may be written as, for an error."""
    return ", ".join(f"{scheme}..." for scheme in SCHEMES) + " or the name of an environment"


def environments(environ: Mapping[str, str] | None = None) -> EnvironmentManager:
    """What `environments.toml` and the variables name. Raises ConfigurationError."""
    from exec_server.local_server import environments

    return environments(env=os.environ if environ is None else environ)


def open_server(
    server: str,
    *,
    client_name: str,
    token: str | None = None,
    pin: str | None = None,
    session_token: str | None = None,
    on_state: Callable[[ConnectionState], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> AbstractAsyncContextManager[ExecServerClient]:
    """A client of the *server* of that URL or name, for the length of a block.

    *token* comes before the one that is configured, and that before the variable's. Raises
    ConfigurationError for a name that is not known, else what `exec_server.connect` does.
    """
    variable = os.environ.get(TOKEN_VARIABLE) or None
    if is_url(server):
        from exec_server.client_urls import connect

        return connect(
            server,
            token=token or variable,
            pin=pin,
            client_name=client_name,
            session_token=session_token,
            on_state=on_state,
            limits=limits,
        )
    manager = environments()
    if getattr(manager.resolve(server), "token", None) is None:
        token = token or variable
    return manager.connect(
        server,
        token=token,
        pin=pin,
        client_name=client_name,
        session_token=session_token,
        on_state=on_state,
        limits=limits,
    )


def can_be_resumed(server: str) -> bool:
    """Whether a session there can outlive the program that began it."""
    from exec_server.transport.dial import is_program

    if is_url(server):
        return not is_program(server)
    return environments().resolve(server).kind in ("websocket", "rendezvous")


def shown(server: str) -> str:
    """A server for people: without the query of its URL, where credentials may stand."""
    return server if server.startswith("stdio:") else server.partition("?")[0]


# Running.


def in_loop(main: Coroutine[Any, Any, int]) -> int:
    """Run *main* on the fastest event loop that is there."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def run_command(main: Callable[[], Coroutine[Any, Any, int]], *, log_level: str) -> int:
    """Run a whole command: what goes wrong is told in one line, and the status says so."""
    log_setup.configure(log_level, "text")
    try:
        status = in_loop(main())
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return exit_codes.BY_SIGNAL + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has had enough, as after `| head`; so has the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.BY_SIGNAL + signal.SIGPIPE
    except ExecServerError as exc:
        print(f"Error: {exc}", file=sys.stderr)
        return exit_codes.FAILED

"""Options that several commands have, each declared once.

This module loads little: the server's parser uses it, too.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Sequence

from exec_server.access.quantities import read_duration
from exec_server.cli.parser import Append, Flag, Parser, label, path
from exec_server.errors import ConfigurationError

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, TypedDict, TypeVar

    T = TypeVar("T")

    class TlsFiles(TypedDict):
        """Keyword arguments of `connect`."""

        ca_file: str | None
        client_cert: str | None
        client_key: str | None


# A token, or a function that reads it again for each connection.
Token = str | Callable[[], str]
# An option can be declared on a parser, or on a group of one.
Options = Parser | argparse._ArgumentGroup

TOKEN_VARIABLE = "EXEC_SERVER_TOKEN"
CA_FILE_VARIABLE = "EXEC_SERVER_CA_FILE"
CLIENT_CERT_VARIABLE = "EXEC_SERVER_CLIENT_CERT"
CLIENT_KEY_VARIABLE = "EXEC_SERVER_CLIENT_KEY"
LOG_LEVELS = ("error", "warning", "info", "debug")
FORMATS = ("text", "json")

TOKEN_HELP = f"""\
environment:
  {TOKEN_VARIABLE}  the bearer token, used if neither --token nor --token-file is given and none
                     is configured
"""


def add_connection_options(parser: Parser) -> None:
    """The token, the pinned key, and the log level: every command that connects has them."""
    add = parser.add_argument
    add("--token", metavar="<TOKEN>", help="bearer token; others may see it in process lists")
    add("--token-file", metavar="<PATH>", type=path, help="file that holds the bearer token")
    add(
        "--pin",
        metavar="<PIN>",
        type=_pin,
        help="accept only an executor behind a registry whose key has this fingerprint; "
        "first-use: accept the key that is seen first, and no other one later "
        "[default: EXEC_SERVER_PIN]",
    )
    parser.suggestions["pin"] = ("first-use",)
    add_tls_files(parser)
    add(
        "--log-level",
        metavar="<LEVEL>",
        choices=LOG_LEVELS,
        default="error",
        help="what to log to stderr: error, warning, info or debug [default: error]",
    )


def add_tls_files(parser: Parser) -> None:
    """The files for TLS. Each option sets a variable, which `tls_files` reads."""
    for option, variable, text in (
        ("--ca-file", CA_FILE_VARIABLE, "authorities of servers' certificates (PEM)"),
        ("--client-cert", CLIENT_CERT_VARIABLE, "certificate for servers that ask for one (PEM)"),
        ("--client-key", CLIENT_KEY_VARIABLE, "key of --client-cert, if it is in its own file"),
    ):
        parser.add_argument(
            option,
            metavar="<PATH>",
            action=_SetVariable,
            variable=variable,
            type=path,
            help=f"{text} [default: {variable}]",
        )


class _SetVariable(argparse.Action):
    """An option that sets a variable of this process, which is another way to give its value."""

    def __init__(self, option_strings: Sequence[str], dest: str, variable: str, **rest: Any):
        super().__init__(option_strings, dest, **rest)
        self._variable = variable

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        os.environ[self._variable] = str(values)


def tls_files() -> TlsFiles:
    """The files for TLS that options or variables name."""
    return {
        "ca_file": os.environ.get(CA_FILE_VARIABLE) or None,
        "client_cert": os.environ.get(CLIENT_CERT_VARIABLE) or None,
        "client_key": os.environ.get(CLIENT_KEY_VARIABLE) or None,
    }


def server_token(parser: Parser, values: argparse.Namespace) -> Token | None:
    """The token that the command line gives, by `add_connection_options`; a file is read again.

    Giving it in both ways is a usage error. Raises ConfigurationError for a file that cannot be
    read.
    """
    if values.token is not None and values.token_file is not None:
        parser.error("the argument '--token <TOKEN>' cannot be used with '--token-file <PATH>'")
    if values.token is not None:
        return str(values.token)
    return None if values.token_file is None else token_in_file(values.token_file)


def token_in_file(name: str) -> Callable[[], str]:
    """A function that reads the token in a file. Raises ConfigurationError if it fails now."""
    read_token_file(name)
    return functools.partial(read_token_file, os.path.abspath(name))


def read_token_file(name: str) -> str:
    """The text of a file without the white space around it. Raises ConfigurationError."""
    try:
        with open(name, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise ConfigurationError(f"cannot read `{name}`: {why}") from None


def add_output(
    parser: Parser, help: str = "text for people, json for programs [default: text]"
) -> None:
    """The format of what a command prints."""
    parser.add_argument(
        "-o", "--output", metavar="<FORMAT>", choices=FORMATS, default="text", help=help
    )


def add_verbose(parser: Parser) -> None:
    """The option to report lost connections even if stderr is not a terminal."""
    parser.add_argument(
        "-v",
        "--verbose",
        action=Flag,
        help="report lost connections even if stderr is not a terminal",
    )


def add_place(parser: Parser, *, directory: str, environment: str) -> None:
    """Where a command runs: its directory, and variables on top of an environment."""
    parser.add_argument("--cwd", metavar="<DIR>", type=path, help=directory)
    parser.add_argument(
        "-e",
        "--env",
        metavar="<NAME=VALUE>",
        action=Append,
        type=_variable,
        help=f"set a variable on top of {environment}; may be repeated",
    )


def add_place_on_server(parser: Parser) -> None:
    """`add_place` for a command that runs on a server."""
    add_place(
        parser,
        directory="directory on the server [default: its own]",
        environment="the server's environment",
    )


def add_labels(options: Options) -> None:
    """The labels of an environment at a registry."""
    options.add_argument(
        "--label",
        metavar="<KEY=VALUE>",
        dest="labels",
        action=Append,
        type=label,
        help="a label that the registry shows for this environment; may be repeated",
    )


def _pin(text: str) -> str:
    from exec_server.remote.executor_trust import check_pin

    try:
        return check_pin(text)
    except ConfigurationError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def duration(text: str) -> float:
    """A length of time in seconds: ``90``, or a number with ``s``, ``m``, ``h`` or ``d``."""
    return quantity(read_duration)(text)


def quantity(read: Callable[[str], T]) -> Callable[[str], T]:
    """The type of an option whose value *read* understands; a ValueError says what is expected."""

    def convert(text: str) -> T:
        try:
            return read(text)
        except ValueError as exc:
            raise argparse.ArgumentTypeError(str(exc)) from None

    return convert


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    return name, value

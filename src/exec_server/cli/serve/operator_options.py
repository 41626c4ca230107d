"""Options for those who run a server for others: TLS, reload, metrics, a Unix socket."""

from __future__ import annotations

import argparse
import re

from exec_server.cli.options import LOG_LEVELS
from exec_server.cli.parser import Flag, Parser, path
from exec_server.errors import ConfigurationError

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from exec_server.cli.serve.option_records import OperatorOptions
    from exec_server.transport.binding import UnixAccess
    from exec_server.transport.certificate import Certificate


# The word for the file that `exec-server token` uses without --file.
DEFAULT_FILE = "default"


def add_operator_options(parser: Parser) -> None:
    _add_principals(parser)
    _add_tls(parser)
    _add_reload(parser)
    _add_metrics(parser)
    _add_unix_socket(parser)


def operator_options(values: argparse.Namespace) -> OperatorOptions:
    from exec_server.cli.serve.option_records import OperatorOptions

    return OperatorOptions(
        principals=values.principals,
        tls_cert=values.tls_cert,
        tls_key=values.tls_key,
        tls_client_ca=values.tls_client_ca,
        log_level_file=values.log_level_file,
        metrics=values.metrics,
        unix_socket_mode=values.unix_socket_mode,
        unix_socket_group=values.unix_socket_group,
    )


def read_log_level(path: str) -> str:
    """The level in a file. Raises ConfigurationError."""
    try:
        with open(path, encoding="utf-8") as file:
            level = file.read(100).strip().lower()
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise ConfigurationError(f"cannot read the log level in {path}: {why}") from None
    if level not in LOG_LEVELS:
        raise ConfigurationError(f"{path} has to hold one of {', '.join(LOG_LEVELS)}")
    return level


def certificate(options: OperatorOptions) -> Certificate | None:
    """The certificate of the listener, if there is to be TLS. Raises ConfigurationError."""
    if options.tls_cert is None or options.tls_key is None:
        return None
    from exec_server.transport.certificate import Certificate

    return Certificate(options.tls_cert, options.tls_key, client_ca=options.tls_client_ca)


def unix_access(options: OperatorOptions, listen: str) -> UnixAccess:
    """The permissions of the Unix socket. Raises ConfigurationError if there is none of ours."""
    from exec_server.transport.binding import PRIVATE, UnixAccess

    mode, group = options.unix_socket_mode, options.unix_socket_group
    if mode is None and group is None:
        return PRIVATE
    if not listen.startswith("unix:"):
        raise ConfigurationError(
            "--unix-socket-mode and --unix-socket-group need --listen unix://PATH; a .socket unit "
            "has SocketMode= and SocketGroup= for this"
        )
    # A group that is given is meant to use the socket.
    return UnixAccess(mode=0o660 if mode is None else mode, group=group)


def _mode(text: str) -> int:
    if not re.fullmatch(r"0?[0-7]{3}", text):
        raise argparse.ArgumentTypeError("expected an octal mode such as 0660")
    return int(text, 8)


def _add_principals(parser: Parser) -> None:
    group = parser.add_argument_group("principals: who may do what")
    group.add_argument(
        "--principals",
        metavar="<PATH>",
        type=path,
        help="serve only the principals in this file, which `exec-server token` makes and changes, "
        "besides those whom --ws-auth lets in; default: the file that it uses without --file",
    )
    parser.suggestions["principals"] = (DEFAULT_FILE,)


def _add_tls(parser: Parser) -> None:
    group = parser.add_argument_group("TLS of the WebSocket listener")
    group.add_argument(
        "--tls-cert",
        metavar="<PATH>",
        type=path,
        help="certificate chain of the server (PEM); it is read again when it changes. "
        "`exec-server cert` makes one for a lab",
    )
    group.add_argument(
        "--tls-key", metavar="<PATH>", type=path, help="private key of the certificate (PEM)"
    )
    group.add_argument(
        "--tls-client-ca",
        metavar="<PATH>",
        type=path,
        help="accept only clients that have a certificate by one of these authorities (PEM)",
    )


def _add_reload(parser: Parser) -> None:
    group = parser.add_argument_group(
        "reload: SIGHUP reads the files of tokens, principals and certificates again, and this one"
    )
    group.add_argument(
        "--log-level-file",
        metavar="<PATH>",
        type=path,
        help="file with the log level, in place of --log-level",
    )


def _add_metrics(parser: Parser) -> None:
    group = parser.add_argument_group("metrics")
    group.add_argument(
        "--metrics",
        action=Flag,
        help="serve /metrics for Prometheus, to clients that have the token, and /healthz",
    )


def _add_unix_socket(parser: Parser) -> None:
    group = parser.add_argument_group("permissions of a Unix socket: who can open it may connect")
    group.add_argument(
        "--unix-socket-mode",
        metavar="<MODE>",
        type=_mode,
        help="mode in octal [default: 0600, or 0660 with a group]",
    )
    group.add_argument(
        "--unix-socket-group", metavar="<GROUP>", help="name or number of the socket's group"
    )

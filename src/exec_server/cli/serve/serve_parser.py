"""The options of the server, and its help.

The module is long because every option of one command line is declared here, with its words.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from exec_server import defaults
from exec_server.cli.commands import commands_help
from exec_server.cli.options import FORMATS, LOG_LEVELS, add_labels
from exec_server.cli.parser import (
    Append,
    Flag,
    Parser,
    count,
    path,
    pid_namespace,
    positive_count,
    seconds,
)
from exec_server.cli.program_name import PROG, version_line
from exec_server.cli.serve.audit_options import add_audit
from exec_server.cli.serve.operator_options import add_operator_options
from exec_server.cli.serve.process_limit_options import add_process_limits
from exec_server.cli.serve.quota_options import add_quota_options
from exec_server.cli.serve.record_options import add_record_options
from exec_server.cli.serve.state_options import add_state
from exec_server.cli.serve.stream_options import add_stream_rules
from exec_server.defaults import DEFAULT_CLOCK_SKEW, DEFAULT_LISTEN_URL

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

_DESCRIPTION = """\
Run processes, terminals and files on one machine for clients on another one. Without a command
this starts a server, which prints its URL; the commands use such a server.

"""

_SERVER_WORD = """
SERVER is a URL as a server prints it, unix://PATH, stdio:PROGRAM, or a name that `exec-server env`
lists. `exec-server help COMMAND` explains a command. The options below are those of the server.
"""

_EPILOG = """\
examples:
  Start a server on a free port of this machine. It prints its URL, for example
  ws://127.0.0.1:41181, and serves until Ctrl-C or SIGTERM:
      exec-server

  Use it from another terminal:
      exec-server run ws://127.0.0.1:41181 -- uname -a
      exec-server cp -r src ws://127.0.0.1:41181:/tmp/

  Accept only clients that send a token, as `Authorization: Bearer TOKEN`:
      openssl rand -hex 32 > token
      exec-server --listen ws://0.0.0.0:8765 --ws-auth capability-token --ws-token-file token

  The same over TLS, with the URL wss://...:
      exec-server --listen ws://0.0.0.0:8765 --ws-auth capability-token --ws-token-file token \\
          --tls-cert server.pem --tls-key server-key.pem

  Keep what `run --detach` has started, whatever becomes of the server:
      exec-server --listen ws://127.0.0.1:8765 --state ~/jobs

  Listen on a Unix socket, whose file permissions decide who may connect:
      exec-server --listen unix:///run/user/1000/exec.sock

  Serve one client over ssh; nothing listens on the far side:
      ssh HOST exec-server --listen stdio

exit status:
  0 after SIGTERM, SIGINT or, with --listen stdio, the end of input; 1 if the server cannot
  start; 2 if the command line is wrong.
"""

_FORWARD_EPILOG = """\
exit status:
  0    stopped by a signal
  1    the registry refused, or the options cannot be used together
  2    the command line is wrong

examples:
  Offer a server of this machine, which clients outside cannot reach, at a registry:
      exec-server forward --remote https://registry.example.net --environment-id build-1 \\
          --connect ws://127.0.0.1:41181
"""


def serve_parser() -> Parser:
    """The parser of the server, whose help lists the commands first."""
    parser = Parser(
        PROG,
        usage="[OPTIONS] [COMMAND]",
        description=_DESCRIPTION + commands_help() + _SERVER_WORD,
        epilog=_EPILOG,
        add_help=False,
    )
    _add_listening(parser)
    _add_authentication(parser)
    add_operator_options(parser)
    add_audit(parser)
    add_quota_options(parser)
    add_state(parser)
    add_record_options(parser)
    add_process_limits(parser)
    _add_limits(parser)
    _add_logging(parser)
    _add_compatibility(parser)
    _add_network(parser)
    _add_remote(parser)
    _add_information(parser)
    return parser


def forward_parser() -> Parser:
    parser = Parser(
        f"{PROG} forward",
        usage="[OPTIONS] --remote <URL> --environment-id <ID> --connect <URL>",
        description="Register a WebSocket server that is already running as an environment of a "
        "registry.",
        epilog=_FORWARD_EPILOG,
        add_help=False,
    )
    parser.add_argument("--connect", metavar="<URL>", help="the server to register")
    _add_compatibility(parser)
    _add_network(parser)
    _add_remote(parser)
    _add_information(parser)
    return parser


def _add_listening(parser: Parser) -> None:
    group = parser.add_argument_group("listening")
    group.add_argument(
        "--listen",
        metavar="<URL>",
        default=DEFAULT_LISTEN_URL,
        help="where to listen: ws://IP:PORT, unix://PATH, stdio, or systemd for the socket of a "
        ".socket unit; port 0 is any free port, and "
        "the first line of output is the URL in use [default: %(default)s]",
    )


def _add_authentication(parser: Parser) -> None:
    group = parser.add_argument_group("authentication of WebSocket clients")
    group.add_argument(
        "--ws-auth",
        metavar="<MODE>",
        choices=("capability-token", "signed-bearer-token"),
        help="capability-token: clients send one fixed token; signed-bearer-token: they send a "
        "JWT (HS256) that expires",
    )
    group.add_argument(
        "--ws-token-file", metavar="<PATH>", type=path, help="file that holds the capability token"
    )
    group.add_argument(
        "--ws-token-sha256",
        metavar="<HEX>",
        help="SHA-256 digest of the capability token, in place of a file",
    )
    group.add_argument(
        "--ws-shared-secret-file",
        metavar="<PATH>",
        type=path,
        help="file with the secret, of at least 32 bytes, that signs the JWTs",
    )
    group.add_argument(
        "--ws-issuer", metavar="<ISSUER>", help="the value that `iss` of a JWT must have"
    )
    group.add_argument(
        "--ws-audience",
        metavar="<AUDIENCE>",
        help="the value that `aud` of a JWT must be or contain",
    )
    group.add_argument(
        "--ws-max-clock-skew-seconds",
        metavar="<SECONDS>",
        type=count,
        help=f"allowed clock difference to the issuer of a JWT [default: {DEFAULT_CLOCK_SKEW}]",
    )
    group.add_argument(
        "--insecure-no-auth",
        action=Flag,
        help="serve other machines without --ws-auth: every program that reaches the port can run "
        "commands",
    )
    group.add_argument(
        "--allow-other-users",
        action=Flag,
        help="without --ws-auth, accept connections of other users of this machine, too: they can "
        "run commands as you",
    )


def _add_limits(parser: Parser) -> None:
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--concurrent-requests",
        metavar="<COUNT>",
        type=positive_count,
        default=defaults.CONCURRENT_REQUESTS,
        help="requests of one connection that run at the same time [default: %(default)s]",
    )
    group.add_argument(
        "--max-concurrent-requests",
        metavar="<COUNT>",
        type=positive_count,
        default=defaults.MAX_CONCURRENT_REQUESTS,
        help="the most that a client may ask for in `initialize`; never less than "
        "--concurrent-requests [default: %(default)s]",
    )
    group.add_argument(
        "--retain-bytes",
        metavar="<BYTES>",
        type=positive_count,
        default=defaults.RETAINED_BYTES,
        help="how much output of each process is retained for late readers; older output is "
        "dropped [default: %(default)s]",
    )
    group.add_argument(
        "--detached-session-seconds",
        metavar="<SECONDS>",
        type=seconds,
        default=defaults.DETACHED_SESSION_SECONDS,
        help="how long a session can be resumed after its connection was lost; its processes run "
        "on meanwhile [default: %(default)g]",
    )
    group.add_argument(
        "--max-detached-session-seconds",
        metavar="<SECONDS>",
        type=seconds,
        default=defaults.MAX_DETACHED_SESSION_SECONDS,
        help="the most that a client may ask for, as `run --detach` does; never less than "
        "--detached-session-seconds [default: %(default)g]",
    )
    group.add_argument(
        "--closed-process-seconds",
        metavar="<SECONDS>",
        type=seconds,
        default=defaults.CLOSED_PROCESS_SECONDS,
        help="how long the output of an ended process can be read [default: %(default)g]",
    )


def _add_logging(parser: Parser) -> None:
    group = parser.add_argument_group("logging, to standard error")
    group.add_argument(
        "--log-level",
        metavar="<LEVEL>",
        choices=LOG_LEVELS,
        help="error, warning, info or debug [default: the level in RUST_LOG, else error and, on "
        "a terminal or in a log file, the most important warnings]",
    )
    group.add_argument(
        "--log-format",
        metavar="<FORMAT>",
        choices=FORMATS,
        default="text",
        help="text, or json with one object per line [default: %(default)s]",
    )


def _add_compatibility(parser: Parser) -> None:
    group = parser.add_argument_group("accepted for compatibility, without effect")
    group.add_argument(
        "-c", "--config", metavar="<key=value>", action=Append, help="override a setting"
    )
    group.add_argument("--enable", metavar="<FEATURE>", action=Append, help="enable a feature")
    group.add_argument("--disable", metavar="<FEATURE>", action=Append, help="disable a feature")
    group.add_argument(
        "--strict-config",
        action=Flag,
        help="refuse to start if Codex's config.toml is not valid TOML; nothing else in it matters",
    )
    group.add_argument(
        "--linux-sandbox-pid-namespace",
        metavar="<MODE>",
        type=pid_namespace,
        default="isolate",
        help="isolate or inherit; a sandboxed process never sees other processes here "
        "[default: %(default)s]",
    )


def _add_network(parser: Parser) -> None:
    group = parser.add_argument_group("network of processes that a proxy manages")
    group.add_argument(
        "--proxy-private-ips-via-upstream",
        action=Flag,
        env="CODEX_EXEC_SERVER_PROXY_PRIVATE_IPS_VIA_UPSTREAM",
        help="reach private addresses through the upstream proxy "
        "[env: CODEX_EXEC_SERVER_PROXY_PRIVATE_IPS_VIA_UPSTREAM]",
    )
    add_stream_rules(parser)


def _add_remote(parser: Parser) -> None:
    group = parser.add_argument_group("remote mode: serve through a registry instead of a port")
    group.add_argument("--remote", metavar="<URL>", help="the registry to register with")
    group.add_argument(
        "--remote-transport",
        metavar="<REMOTE_TRANSPORT>",
        choices=("noise", "direct"),
        default="noise",
        help="noise; direct exists in other servers and is refused here [default: %(default)s]",
    )
    group.add_argument("--environment-id", metavar="<ID>", help="the environment to serve")
    group.add_argument("--executor-id", metavar="<ID>", help="the former name of --environment-id")
    group.add_argument(
        "--relay",
        metavar="<RELAY>",
        choices=("noise", "plaintext"),
        default="noise",
        help="noise is encrypted from end to end; plaintext is for old peers "
        "[default: %(default)s]",
    )
    group.add_argument(
        "--registry-token-file",
        metavar="<PATH>",
        type=path,
        help="file with the bearer token for a registry of your own "
        "[default: EXEC_SERVER_REGISTRY_TOKEN, else Codex's own credentials]",
    )
    group.add_argument(
        "--identity",
        metavar="<PATH>",
        type=path,
        help="file with the key by which clients recognize this executor, made by `exec-server "
        "keygen` [default: a new key each time]",
    )
    group.add_argument(
        "--authorized-harness",
        metavar="<PATH>",
        type=path,
        help="serve only the clients whose key fingerprints are in this file, one on each line, "
        "whatever the registry says [default: the registry decides]",
    )
    group.add_argument(
        "--audit-log",
        metavar="<PATH>",
        type=path,
        help="append an event to this file for each client that --authorized-harness refuses, one "
        "line of JSON each; it may be rotated",
    )
    add_labels(group)
    group.add_argument(
        "--name",
        metavar="<NAME>",
        help="a name that you can recognize in a list of processes; the registry does not get it",
    )
    _add_credentials(group)
    group.add_argument(
        "--exit-on-stdin-close",
        action=Flag,
        env="CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
        help="exit at the end of standard input [env: CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE]",
    )


def _add_credentials(group: argparse._ArgumentGroup) -> None:
    """The credentials for Codex's own registry."""
    group.add_argument(
        "--use-agent-identity-auth",
        action=Flag,
        help="register with the agent identity in CODEX_ACCESS_TOKEN",
    )
    group.add_argument(
        "--executor-credential-stdin", action=Flag, help="read rotating tokens from standard input"
    )
    group.add_argument("--aws-sigv4", action=Flag, help="sign requests with AWS SigV4")
    group.add_argument("--aws-profile", metavar="<PROFILE>", help="the AWS profile to sign with")
    group.add_argument("--aws-region", metavar="<REGION>", help="the AWS region to sign for")
    group.add_argument(
        "--aws-service",
        metavar="<SERVICE>",
        default="execute-api",
        help="the AWS service to sign for [default: %(default)s]",
    )


def _add_information(parser: Parser) -> None:
    group = parser.add_argument_group("information")
    group.add_argument("-h", "--help", action="help", help="print this text and exit")
    group.add_argument("-V", "--version", action=_ShowVersion, help="print the version and exit")


class _ShowVersion(argparse.Action):
    """Prints the version, without the line breaks that argparse makes in long texts."""

    def __init__(self, option_strings: Sequence[str], dest: str, **rest: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **rest)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        print(version_line())
        parser.exit()

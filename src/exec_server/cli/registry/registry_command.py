"""`exec-server registry`: run a registry, through which clients reach executors."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from difflib import get_close_matches
from typing import Any

import msgspec

from exec_server.cli import exit_codes, log_setup
from exec_server.cli.commands import REGISTRY_COMMANDS, entries_help
from exec_server.cli.event_loop import in_loop, raise_descriptor_limit
from exec_server.cli.options import FORMATS, LOG_LEVELS
from exec_server.cli.parser import Parser, positive_count, similar_tip
from exec_server.cli.registry.registry_options import add_state, private_file
from exec_server.cli.standard_streams import print_or_log
from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS
from exec_server.protocol.registry import REGISTRY_BUS_VARIABLE

logger = logging.getLogger(__name__)

_DESCRIPTION = """\
Run a registry and rendezvous. Executors that accept no connections register here and keep one
WebSocket open; clients reach them through it. Their messages are encrypted from end to end: the
registry cannot read them. It works with unmodified Codex on either side.
"""

_EPILOG = """\
exit status:
  0    stopped by a signal
  1    the registry could not be started
  2    the command line is wrong

examples:
  Start a registry on this machine, and make a token for an executor and one for a client:
      exec-server registry --listen ws://127.0.0.1:8700
      exec-server registry token create enrol build-1 --env build-1 > build-1.token
      exec-server registry token create harness alice --env 'build-*' > alice.token

  Start the executor, and use it from a client:
      exec-server --remote http://127.0.0.1:8700 --environment-id build-1 \\
          --registry-token-file build-1.token
      exec-server run --token-file alice.token noise+http://127.0.0.1:8700/build-1 -- uname -a

  Serve other machines, with TLS:
      exec-server registry --listen ws://0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem

  Connect two machines with a code, without any token (see `exec-server pair --help`):
      exec-server registry --listen ws://127.0.0.1:8700 --open-pairing
      exec-server pair --registry http://127.0.0.1:8700 big-1
"""


def registry_command(words: list[str]) -> int:
    """Run the command that the first word names; without one, serve."""
    for entry in REGISTRY_COMMANDS:
        if words[:1] == [entry.name]:
            return entry.load()(words[1:])
    if words and not words[0].startswith("-"):
        near = get_close_matches(words[0], [entry.name for entry in REGISTRY_COMMANDS], n=1)
        tip = similar_tip(near[0] if near else None, "subcommand")
        serve_parser().error(f"unrecognized subcommand '{words[0]}'{tip}")
    return _serve_command(words)


def serve_parser() -> Parser:
    commands = f"commands, each with a --help:\n{entries_help(REGISTRY_COMMANDS)}"
    parser = Parser(
        "exec-server registry",
        usage="[OPTIONS] [COMMAND]",
        description=f"{_DESCRIPTION}\n{commands}",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add(
        "--listen",
        metavar="<URL>",
        default="ws://127.0.0.1:0",
        help="where to listen: ws://IP:PORT; port 0 is any free port [default: %(default)s]",
    )
    add_state(parser)
    add(
        "--public-url",
        metavar="<URL>",
        help="the URL by which others reach this registry, if a proxy is in front of it",
    )
    add("--tls-cert", metavar="<FILE>", help="certificate chain; it is read again when it changes")
    add("--tls-key", metavar="<FILE>", help="private key of the certificate")
    add("--behind-proxy", action="store_true", help="a proxy in front of the registry handles TLS")
    add(
        "--allow-plaintext",
        action="store_true",
        help="allow the plaintext relay of old peers, too; this registry can read it",
    )
    add(
        "--open-pairing",
        action="store_true",
        help="give pairing codes to machines without a token, for names that are not taken",
    )
    add(
        "--bus",
        metavar="<URL>",
        help="nats://HOST:PORT[,HOST:PORT...]: run as one of several nodes with the same --state; "
        f"put a URL with a password into {REGISTRY_BUS_VARIABLE} instead",
    )
    add(
        "--node-url",
        metavar="<URL>",
        help="the URL of this node; clients are sent to the node of their executor",
    )
    add("--bus-credentials", metavar="<FILE>", help="a NATS credentials file for --bus")
    add(
        "--audit-log",
        metavar="<FILE>",
        help="append events to this file, one line of JSON each; it may be rotated",
    )
    add(
        "--audit-days",
        metavar="<N>",
        type=positive_count,
        default=DEFAULT_LIMITS.hub_audit_days,
        help="how many days events are kept in the state [default: %(default)s]",
    )
    add(
        "--log-level",
        metavar="<LEVEL>",
        choices=LOG_LEVELS,
        default="info",
        help="error, warning, info or debug [default: %(default)s]",
    )
    add(
        "--log-format",
        metavar="<FORMAT>",
        choices=FORMATS,
        default="text",
        help="text, or json with one object per line [default: %(default)s]",
    )
    return parser


def _serve_command(words: list[str]) -> int:
    values = serve_parser().parse_words(words)
    log_setup.configure(values.log_level, values.log_format)
    try:
        return in_loop(_serve(vars(values)))
    except ConfigurationError as exc:
        log_setup.report_failure(exc, values.log_format)
        return exit_codes.FAILED


async def _serve(given: dict[str, Any]) -> int:
    from exec_server.hub.registry_service import HubOptions, serve_hub
    from exec_server.transport.address import TcpAddress, parse_listen_url

    listen = given["listen"]
    address = parse_listen_url(listen) if listen.startswith("ws://") else None
    if not isinstance(address, TcpAddress):
        raise ConfigurationError(f"a registry listens on ws://IP:PORT, not on `{listen}`")
    options = HubOptions(
        listen=address,
        state=private_file(given["state"]),
        public_url=given["public_url"],
        tls_certificate=given["tls_cert"],
        tls_key=given["tls_key"],
        is_behind_proxy=given["behind_proxy"],
        allows_plaintext=given["allow_plaintext"],
        allows_open_pairing=given["open_pairing"],
        audit_log=given["audit_log"],
        node_url=given["node_url"],
        bus=given["bus"] or os.environ.get(REGISTRY_BUS_VARIABLE) or None,
        bus_credentials=given["bus_credentials"],
    )
    raise_descriptor_limit()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_audit_days=given["audit_days"])
    async with serve_hub(options, limits=limits) as hub:
        loop.add_signal_handler(signal.SIGHUP, hub.reopen_files)
        print_or_log(hub.url)
        if not options.allows_open_pairing and not await hub.store.tokens():
            logger.warning(
                "there are no tokens yet: see `exec-server registry token create --help`"
            )
        await stopped.wait()
    return exit_codes.OK

"""The options of ``exec-server mcp``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from exec_server.cli.options import TOKEN_HELP, add_connection_options, duration
from exec_server.cli.parser import Append, Flag, Parser, path, seconds
from exec_server.cli.process.run_options import byte_count
from exec_server.cli.sandbox.sandbox_options import SANDBOX_HELP, add_sandbox_options
from exec_server.cli.server_access import SERVER_HELP

if TYPE_CHECKING:
    from exec_server.integrations.mcp.mcp_settings import McpSettings

_DESCRIPTION = """\
Give agents that speak the Model Context Protocol tools to work on a server: run commands, start
jobs and read their output, read, write, edit and search files. It speaks MCP on standard input and
output, or over HTTP with --http. It needs the extra `mcp`: pip install 'exec-server[mcp]'.
"""

_EPILOG = f"""\
{SERVER_HELP}
What the model may do is decided here. It can choose neither the sandbox nor the size of answers,
unless --model-may allows it; --timeout and --max-timeout bound its commands. It may name any
directory to run in, and workspace-write still means --cwd, or the server's own directory.

Commands of the tool `run` end when this program ends, or 30 seconds later if it is killed. Jobs of
the tool `start` run on for --keep; a later `exec-server mcp` of this user for the same server, with
the same sandbox and --cwd if there is a sandbox, continues with them.

{SANDBOX_HELP}
{TOKEN_HELP}
exit status:
  0    the client has closed the connection, or SIGINT or SIGTERM has come
  1    the options cannot be used, or the extra is not installed
  2    the command line is wrong
A server that cannot be reached is reported by each tool, and the next call tries again.

examples:
  Tools for the server that environments.toml calls `build`:
      exec-server mcp build

  For Codex, and for Claude Code:
      codex mcp add build -- exec-server mcp build
      claude mcp add --transport stdio build -- exec-server mcp build

  Confined to one directory, without a network:
      exec-server mcp --cwd /srv/app --sandbox workspace-write build

  Look, but change nothing:
      exec-server mcp --read-only --sandbox read-only build

  Over HTTP, for several clients; the URL is printed:
      exec-server mcp --http 127.0.0.1:8000 build
"""

# The members of `integrations.mcp.mcp_settings.CHOICES`; this module is read without the extra.
_CHOICES = ("sandbox", "output")


def mcp_parser() -> Parser:
    parser = Parser(
        "exec-server mcp",
        usage="[OPTIONS] [SERVER]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("--cwd", metavar="<DIR>", type=path, help="directory on the server [default: its own]")
    add(
        "--http",
        metavar="<IP:PORT>",
        type=address,
        help="serve streamable HTTP at this address, and print the URL; port 0 is a free one",
    )
    add(
        "--http-token-file",
        metavar="<PATH>",
        type=path,
        help="file with the bearer token that HTTP clients must send; needed if IP is not a "
        "loopback address",
    )
    add("--read-only", action=Flag, help="offer only the tools that change nothing")
    add_sandbox_options(parser, has_person=False)
    add(
        "--max-output",
        metavar="<BYTES>",
        type=byte_count,
        default=24 * 1024,
        help="size of each output in an answer, such as 16K: the first half, and as much of the "
        "end [default: 24K]",
    )
    add(
        "--timeout",
        metavar="<SECONDS>",
        type=seconds,
        default=50.0,
        help="time limit of `run` if the model gives none [default: 50]",
    )
    add(
        "--max-timeout",
        metavar="<SECONDS>",
        type=seconds,
        default=3600.0,
        help="the longest time limit that the model can give [default: 3600]",
    )
    add(
        "--keep",
        metavar="<TIME>",
        type=duration,
        default=86400.0,
        help="how long jobs are kept without this program, such as 90m or 2d [default: 1d]",
    )
    add(
        "--model-may",
        metavar="<CHOICE>",
        action=Append,
        choices=_CHOICES,
        help="let the model choose: the sandbox of a command (or none), or the size of the output "
        "in an answer; may be repeated",
    )
    add_connection_options(parser)
    return parser


def address(text: str) -> tuple[str, int]:
    """An IP address and a port."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise argparse.ArgumentTypeError("expected IP:PORT, such as 127.0.0.1:8000")
    return host, int(port)


def settings_of(values: argparse.Namespace, server: str) -> McpSettings:
    """The settings that the options mean; the command adds the sandbox and the records."""
    from exec_server.integrations.mcp.mcp_settings import McpSettings

    return McpSettings(
        server=server,
        cwd=values.cwd,
        read_only=values.read_only,
        max_output=values.max_output,
        time_limit=values.timeout,
        max_time_limit=max(values.timeout, values.max_timeout),
        keep=values.keep,
        model_may=frozenset(values.model_may),
    )

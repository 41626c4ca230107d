"""`exec-server env`: list the environments that have names, and check that they answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.log_setup import print_warning
from exec_server.cli.options import add_connection_options, add_output, server_token
from exec_server.cli.parser import Parser
from exec_server.cli.tables import failure_teller, print_json, print_table
from exec_server.errors import ExecServerError

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.environments.manager import EnvironmentFacts

# How many servers are checked at the same time.
_AT_ONCE = 16

_DESCRIPTION = """\
List the environments: servers with a name, which can be used wherever a SERVER is expected.
`check` connects to each of them, asks for its status, and prints how long the answer took.
"""

_EPILOG = """\
The names are read from environments.toml in $CODEX_HOME (by default ~/.codex). Without this file,
`remote` is the server of CODEX_EXEC_SERVER_URL, and `local` is a server inside the command itself.
The names that `exec-server pair` has added come last.

      default = "build"
      [[environments]]
      id = "build"
      url = "wss://build.example.net"
      [[environments]]
      id = "lab"
      program = "ssh"
      args = ["lab", "exec-server", "--listen", "stdio"]

Codex reads this file, too, and refuses keys that it does not know. A token that is in a file of its
own, or in a variable (auth_bearer_token_env), is named in exec-server.toml beside it:

      [environments.build]
      auth_bearer_token_file = "build.token"

exit status:
  0    listed; with `check`: all environments are ready
  1    one of them is not ready, or the configuration is wrong
  2    the command line is wrong

examples:
  List all:
      exec-server env

  Check two of them:
      exec-server env check build lab

  Check a server that has no name:
      exec-server env check ws://127.0.0.1:41181

  Check all, as JSON:
      exec-server env check -o json

  List the environments of a registry; the token is in a file or in EXEC_SERVER_REGISTRY_TOKEN:
      exec-server env list --registry https://registry.example.net --token-file alice.token
"""


# Connects to the environment with the given name.
Opening = Callable[[str], "AbstractAsyncContextManager[ExecServerClient]"]


class Checked(msgspec.Struct, frozen=True):
    """The result of connecting to an environment."""

    facts: EnvironmentFacts
    seconds: float | None = None
    version: str | None = None
    problem: str | None = None

    @property
    def as_json(self) -> dict[str, object]:
        return {
            **as_json(self.facts),
            "ready": self.problem is None,
            "latencyMs": None if self.seconds is None else round(self.seconds * 1000, 1),
            "version": self.version,
            "problem": self.problem,
        }

    @property
    def row(self) -> list[str]:
        state = self.problem or "ready"
        latency = "-" if self.seconds is None else f"{self.seconds * 1000:.1f} ms"
        return [*_row(self.facts), latency, state]


def env_parser() -> Parser:
    parser = Parser(
        "exec-server env",
        usage="[OPTIONS] [list | check] [SERVER]...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument(
        "action",
        metavar="list | check",
        nargs="?",
        choices=("list", "check"),
        default="list",
        help="what to do [default: list]",
    )
    parser.add_argument(
        "names", metavar="SERVER", nargs="*", help="only these names, or URLs [default: all]"
    )
    parser.add_argument(
        "--registry",
        metavar="<URL>",
        help="list the environments of this registry that the token may see",
    )
    add_output(parser)
    add_connection_options(parser)
    return parser


def env_command(words: list[str]) -> int:
    """List or check the environments that *words* name."""
    parser = env_parser()
    values = parser.parse_words(words)
    is_json = values.output == "json"
    if values.registry is not None and values.action != "list":
        parser.error("--registry can be used with list only; pair an environment to check it")

    for name in values.names:
        if values.registry is None and not server_access.is_server(name):
            expected = server_access.expected_server()
            parser.error(f"invalid value '{name}' for '[SERVER]': expected {expected}")

    async def env() -> int:
        if values.registry is not None:
            token = server_token(parser, values)
            token = token() if callable(token) else token
            return await _list_registry(values.registry, token, values.names, is_json=is_json)
        manager = server_access.environments()
        for text in manager.warnings:
            print_warning(text)
        chosen = manager.describe(values.names or manager.names)
        if values.action == "check":
            opening = partial(
                server_access.open_server,
                token=server_token(parser, values),
                pin=values.pin,
                client_name="exec-server env",
            )
            return await _check_all(chosen, opening, is_json=is_json)
        _list(chosen, is_json=is_json)
        return exit_codes.OK

    return run_to_exit_status(env, log_level=values.log_level, tell=failure_teller(values.output))


async def _list_registry(
    registry: str, token: str | None, names: list[str], *, is_json: bool
) -> int:
    from exec_server.cli.registry.registry_options import token_in_variable
    from exec_server.cli.registry.registry_queries import list_environments

    token = token or token_in_variable()
    return await list_environments(registry, token, names, is_json=is_json)


async def _check_all(facts: list[EnvironmentFacts], opening: Opening, *, is_json: bool) -> int:
    slots = asyncio.Semaphore(_AT_ONCE)
    checked = await asyncio.gather(*(_check(each, opening, slots) for each in facts))
    if is_json:
        print_json([each.as_json for each in checked])
    else:
        headings = ["NAME", "KIND", "WHERE", "LATENCY", "STATE"]
        print_table(headings, [each.row for each in checked])
    is_ready = all(each.problem is None for each in checked)
    return exit_codes.OK if is_ready else exit_codes.FAILED


def _list(facts: list[EnvironmentFacts], *, is_json: bool) -> None:
    if is_json:
        print_json([as_json(each) for each in facts])
    else:
        print_table(["NAME", "KIND", "WHERE"], [_row(each) for each in facts])


def as_json(facts: EnvironmentFacts) -> dict[str, object]:
    return {
        "name": server_access.shown(facts.name),
        "kind": facts.kind,
        "where": facts.where,
        "default": facts.is_default,
    }


def _row(facts: EnvironmentFacts) -> list[str]:
    name = server_access.shown(facts.name)
    return [name + ("*" if facts.is_default else ""), facts.kind, facts.where]


async def _check(facts: EnvironmentFacts, opening: Opening, slots: asyncio.Semaphore) -> Checked:
    """Connect and time one request; a program that was started for it is ended again."""
    try:
        async with slots, opening(facts.name) as client:
            info = await client.environment_info()
            before = time.perf_counter()
            status = await client.environment_status()
            seconds = time.perf_counter() - before
    except (ExecServerError, OSError) as exc:
        return Checked(facts, problem=str(exc))
    problem = None if status == "ready" else f"the server reports the status {status}"
    return Checked(facts, seconds, info.executor_version, problem)

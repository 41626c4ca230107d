"""`exec-server whoami`: what a server takes this client for, and what it may do there."""

from __future__ import annotations

from msgspec import to_builtins

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import TOKEN_HELP, add_connection_options, add_output, server_token
from exec_server.cli.parser import Parser
from exec_server.cli.tables import failure_teller, print_json, readable
from exec_server.cli.token.token_facts import shown_restrictions
from exec_server.errors import ConfigurationError, MethodNotFound
from exec_server.protocol.lifecycle import WhoamiResult

_DESCRIPTION = """\
Print the principal that a server takes this client for, its scopes, and what restricts its
requests. `exec-server token` on the server's machine decides about them.
"""

_EPILOG = f"""\
{TOKEN_HELP}
exit status:
  0    printed
  1    the server cannot be reached, or cannot tell
  2    the command line is wrong

examples:
  With a token:
      exec-server whoami --token-file ci.token wss://build-1.lab:8765
"""


def whoami_command(words: list[str]) -> int:
    """Ask the server that *words* name."""
    parser = Parser(
        "exec-server whoami",
        usage="[OPTIONS] <SERVER>",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("server", metavar="<SERVER>", help="the server to ask")
    add_output(parser)
    add_connection_options(parser)
    values = parser.parse_words(words)
    if not server_access.is_server(values.server):
        expected = server_access.expected_server()
        parser.error(f"invalid value '{values.server}' for '<SERVER>': expected {expected}")

    async def ask() -> int:
        opening = server_access.open_server(
            values.server,
            token=server_token(parser, values),
            pin=values.pin,
            client_name=parser.prog,
        )
        async with opening as client:
            try:
                found = await client.whoami()
            except MethodNotFound:
                place = server_access.shown(values.server)
                raise ConfigurationError(f"{place} has no principals") from None
        if values.output == "json":
            print_json(to_builtins(found))
        else:
            _show(found)
        return exit_codes.OK

    return run_to_exit_status(ask, log_level=values.log_level, tell=failure_teller(values.output))


def _show(found: WhoamiResult) -> None:
    shown = {"principal": found.principal, "may": ",".join(found.may) or "nothing"}
    if found.kind is not None:
        shown["kind"] = found.kind
    shown |= shown_restrictions(found.floors) | shown_restrictions(found.quotas)
    width = max(map(len, shown))
    for name, value in shown.items():
        print(readable(f"{name.ljust(width)}  {value}"))

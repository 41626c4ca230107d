"""`exec-server port`: forward ports between this machine and a server."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import (
    TOKEN_HELP,
    add_connection_options,
    add_output,
    add_verbose,
    server_token,
)
from exec_server.cli.parser import Append, Flag, Parser
from exec_server.cli.port.port_records import PortRecords
from exec_server.cli.port.port_runner import PortRunner, ended_by_signals
from exec_server.cli.port.port_specs import (
    ForwardSpec,
    local_spec,
    preview_port,
    preview_spec,
    remote_spec,
    socks_spec,
)
from exec_server.cli.process.own_terminal.connection_notices import Notices
from exec_server.cli.server_access import open_server
from exec_server.cli.tables import (
    failure_teller,
    print_json,
    print_json_entries,
    print_table,
    readable,
)
from exec_server.client.client import ExecServerClient
from exec_server.errors import ConfigurationError, ExecServerError, MethodNotFound

_DESCRIPTION = """\
Forward ports between this machine and a server, until Ctrl-C. A lost connection interrupts nothing:
the streams wait, and go on where they were. `port list` shows what is forwarded on this machine,
`port list SERVER` what is open on a server, and `port close ID` ends what `port list` shows.

By default a server lets clients reach its loopback alone; its operator allows more with
--stream-allow.
"""

_EPILOG = f"""\
{TOKEN_HELP}
exit status:
  0    ended by Ctrl-C or `port close`
  1    the server cannot be reached, a port is taken, or the server does not allow it
  2    the command line is wrong

examples:
  Reach port 3000 of a server as port 8080 of this machine:
      exec-server port build -L 8080:localhost:3000

  See a web page that runs there, at an address of its own:
      exec-server port build --open 3000

  Let programs there reach port 5432 of this machine:
      exec-server port build -R 5432:localhost:5432

  Several at once, with a SOCKS5 proxy and a Unix socket:
      exec-server port build -L 3000 -D 1080 -L /tmp/docker.sock:/var/run/docker.sock

  Which ports do my processes there listen on?
      exec-server port build --ports
"""


def port_command(words: list[str]) -> int:
    """Forward what *words* ask for, or list or close what is forwarded."""
    parser = _parser()
    values = parser.parse_words(words)
    action, *rest = values.words
    if action == "list":
        return _list(parser, values, rest)
    if action == "close":
        return _close(parser, values, rest)
    if rest:
        parser.error(f"unexpected argument '{rest[0]}' found; forwards need -L, -R, -D or --open")
    if not server_access.is_server(action):
        expected = server_access.expected_server()
        parser.error(f"invalid value '{action}' for '<SERVER>': expected {expected}")
    specs = [*values.local, *values.remote, *values.socks, *values.open]
    if not specs and not values.ports:
        parser.error("nothing to forward: give -L, -R, -D or --open, or --ports for a list")
    if (values.as_localhost or values.preview_port) and not values.open:
        given = "--as-localhost" if values.as_localhost else "--preview-port"
        parser.error(f"'{given}' is for the pages of '--open <PORT>', and there is none")
    return _run(parser, values, lambda: _forward(parser, values, action, specs))


def _parser() -> Parser:
    parser = Parser(
        "exec-server port",
        usage="[OPTIONS] <SERVER> | list [SERVER] | close <ID>...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("words", metavar="<SERVER>", nargs="+", help="the server; or `list`, or `close` with ids")
    for option, name, kind, text in (
        ("-L", "local", local_spec, "listen here, connect there: [BIND:]PORT:HOST:PORT, or paths"),
        ("-R", "remote", remote_spec, "listen there, connect here"),
        ("-D", "socks", socks_spec, "a SOCKS5 proxy here; names are resolved there: [BIND:]PORT"),
    ):
        add(
            option,
            f"--{name}",
            metavar="<FORWARD>",
            action=Append,
            type=kind,
            help=f"{text}; may be repeated",
        )
    add(
        "--open",
        metavar="<PORT>",
        action=Append,
        type=preview_spec,
        help="a web page that runs on this port there, at http://pPORT.SERVER.localhost; "
        "may be repeated",
    )
    add(
        "--preview-port",
        metavar="<PORT>",
        type=preview_port,
        default=0,
        help="the port of this machine for --open [default: any that is free]",
    )
    add(
        "--as-localhost",
        action=Flag,
        help="programs of --open see the name `localhost`; some, such as Jupyter, refuse others",
    )
    add(
        "--allow-other-users",
        action=Flag,
        help="let other users of this machine use what is open on its loopback, too",
    )
    add("--ports", action=Flag, help="list the ports that your processes there listen on")
    add_output(parser)
    add_verbose(parser)
    add_connection_options(parser)
    return parser


def _run(parser: Parser, values: argparse.Namespace, main: Any) -> int:
    return run_to_exit_status(main, log_level=values.log_level, tell=failure_teller(values.output))


# Forwards.


async def _forward(
    parser: Parser, values: argparse.Namespace, server: str, specs: list[ForwardSpec]
) -> int:
    token = server_token(parser, values)
    notices = Notices(is_verbose=values.verbose)

    def open_client() -> Any:
        return open_server(
            server,
            token=token,
            pin=values.pin,
            client_name="exec-server port",
            on_state=notices.on_state,
        )

    if values.ports:
        async with open_client() as client:
            return await _show_ports(client, values.output)
    records = PortRecords()
    ready: asyncio.Future[list[dict[str, str]]] = asyncio.get_running_loop().create_future()
    runner = PortRunner(
        open_client,
        specs,
        server=server_access.shown(server),
        say=_say,
        on_ready=ready.set_result,
        preview_port=values.preview_port,
        as_localhost=values.as_localhost,
        allow_other_users=values.allow_other_users,
    )
    running = asyncio.get_running_loop().create_task(runner.run())
    with ended_by_signals(running):
        waiting: list[asyncio.Future[Any]] = [running, ready]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return _outcome(running)
        with records.kept(server_access.shown(server), ready.result()):
            _tell(ready.result(), values.output, server_access.shown(server))
            await asyncio.wait([running])
            return _outcome(running)


def _say(text: str) -> None:
    # The server may have written a part of it.
    print(f"exec-server port: {readable(text)}", file=sys.stderr, flush=True)


def _outcome(running: asyncio.Task[None]) -> int:
    if not running.cancelled():
        running.result()
    return exit_codes.OK


def _tell(facts: list[dict[str, str]], output: str, server: str) -> None:
    if output == "json":
        print_json(facts)
    else:
        for each in facts:
            print(readable(_line(each, server)))
    sys.stdout.flush()


def _line(facts: dict[str, str], server: str) -> str:
    if facts["kind"] == "remote":
        return f"{facts['listen']} on {server} -> {facts['to']} here"
    if facts["kind"] == "socks":
        return f"{facts['listen']} -> SOCKS5 proxy through {server}"
    if facts["kind"] == "preview":
        return f"{facts['url']} -> {facts['to']} on {server}"
    return f"{facts['listen']} -> {facts['to']} on {server}"


async def _show_ports(client: ExecServerClient, output: str) -> int:
    try:
        found = await client.listening_ports(all_sessions=True)
    except MethodNotFound as exc:
        raise ConfigurationError(exc.message) from exc
    if output == "json":
        print_json(found)
    else:
        rows = [
            (str(each.port), ",".join(each.addresses), str(each.pid), each.command or "")
            for each in found
        ]
        print_table(("PORT", "ADDRESS", "PID", "COMMAND"), rows)
    return exit_codes.OK


# What is forwarded.


def _list(parser: Parser, values: argparse.Namespace, rest: list[str]) -> int:
    if len(rest) > 1:
        parser.error(f"unexpected argument '{rest[1]}' found")

    async def show() -> int:
        if rest:
            await _list_server(parser, values, rest[0])
            return exit_codes.OK
        records = PortRecords().running()
        if values.output == "json":
            print_json(records)
        else:
            rows = [
                (str(record.pid), record.server, _line(facts, record.server))
                for record in records
                for facts in record.forwards
            ]
            print_table(("ID", "SERVER", "FORWARD"), rows)
        return exit_codes.OK

    return _run(parser, values, show)


async def _list_server(parser: Parser, values: argparse.Namespace, server: str) -> None:
    token = server_token(parser, values)
    opening = open_server(server, token=token, pin=values.pin, client_name="exec-server port")
    async with opening as client:
        found = await client.list_streams(all_sessions=True)
    if values.output == "json":
        print_json(found)
        return
    rows = [
        (each.kind, each.address, str(each.bytes_in), str(each.bytes_out), each.session)
        for each in found
    ]
    print_table(("KIND", "ADDRESS", "IN", "OUT", "SESSION"), rows)


def _close(parser: Parser, values: argparse.Namespace, rest: list[str]) -> int:
    if not rest:
        parser.error("`port close` needs the ids that `port list` shows")

    async def close() -> int:
        closed = []
        for text in rest:
            try:
                if not text.isdigit():
                    raise ConfigurationError(f"`{text}` is not an id that `port list` shows")
                closed.append(PortRecords().close(int(text)))
            except ExecServerError as exc:
                print_error(str(exc))
        if values.output == "json":
            print_json_entries(closed)
        return exit_codes.OK if len(closed) == len(rest) else exit_codes.FAILED

    return _run(parser, values, close)

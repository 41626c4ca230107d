"""`exec-server web`: a page on this machine for terminals, processes and files of all servers."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import raise_descriptor_limit, run_to_exit_status
from exec_server.cli.log_setup import print_warning
from exec_server.cli.options import Token, add_connection_options, add_output, server_token
from exec_server.cli.parser import Flag, Parser, path
from exec_server.cli.tables import failure_teller, print_json
from exec_server.errors import ConfigurationError, ExecServerListenUrlParseError
from exec_server.limits import DEFAULT_LIMITS, KIB, Limits

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.session_link import ConnectionState
    from exec_server.web.page_program import PageOptions, ServedPage
    from exec_server.web.places import PlaceFacts

_DESCRIPTION = """\
Serve a page on this machine for a browser: terminals, processes, files and ports of your servers,
and the recordings of this machine. The page uses the same client and the same environments as the
other commands, so what is encrypted from end to end is decrypted here. It works without the
internet. Ctrl-C ends it.
"""

_EPILOG = """\
NAME is the name of an environment or a URL. Without one, all environments of environments.toml are
on the page. Nothing is connected before you choose it there.

The printed URL lets one browser in, once. When it was used, a new one is printed to stderr.
Terminals that were opened on the page end with the program; durable jobs run on.

exit status:
  0    stopped by Ctrl-C or a signal
  1    the page cannot be served, or the configuration is wrong
  2    the command line is wrong

examples:
  Open the page in a browser:
      exec-server web --open

  Only two servers, one of them without a name:
      exec-server web build ws://127.0.0.1:41181

  On a fixed port, and the URL as JSON:
      exec-server web --listen 127.0.0.1:8080 -o json

  Keep recordings of what its terminals show; the page lists, searches and plays them:
      exec-server web --record

  For other machines: with TLS, and for an admin among the principals of a file:
      exec-server token create me --may all > me.token
      exec-server web --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem \\
          --principals default
"""

_LISTEN = "127.0.0.1:0"
# The word for the file that `exec-server token` uses without --file.
_DEFAULT_FILE = "default"
# A terminal answers sooner if less output is under way to it; on a fast link this is fast enough.
_FLOW_WINDOW = 128 * KIB


def web_parser() -> Parser:
    parser = Parser(
        "exec-server web",
        usage="[OPTIONS] [NAME]...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("names", metavar="NAME", nargs="*", help="only these environments, or URLs [default: all]")
    add("--open", action=Flag, help="open the page in the browser of this machine")
    add(
        "--listen",
        metavar="<IP:PORT>",
        default=_LISTEN,
        help="where to serve the page; port 0 is any free port [default: %(default)s]",
    )
    add("--tls-cert", metavar="<FILE>", type=path, help="certificate chain, for --listen elsewhere")
    add("--tls-key", metavar="<FILE>", type=path, help="private key of the certificate")
    add(
        "--principals",
        metavar="<FILE>",
        type=path,
        help="let in only who signs in with the token of an admin in this file, which "
        "`exec-server token` makes; `default` is the file that it uses without --file",
    )
    parser.suggestions["principals"] = (_DEFAULT_FILE,)
    add(
        "--record",
        action=Flag,
        help="keep recordings of the terminals of the page; without it one can go back in a "
        "terminal as long as it is open",
    )
    add(
        "--recordings",
        metavar="<DIR>",
        type=path,
        help="the directory of the recordings [default: ~/.local/state/exec-server/recordings]",
    )
    add_output(parser)
    add_connection_options(parser)
    return parser


def web_command(words: list[str]) -> int:
    """Serve the page until a signal comes."""
    parser = web_parser()
    values = parser.parse_words(words)
    options = partial(_page_options, values)

    async def web() -> int:
        token = server_token(parser, values)
        facts = _places(values.names, token=token, pin=values.pin)
        return await _serve(options(), facts, values)

    return run_to_exit_status(web, log_level=values.log_level, tell=failure_teller(values.output))


def _page_options(values: argparse.Namespace) -> PageOptions:
    from exec_server.cli.recordings.recording_choice import default_directory
    from exec_server.transport.address import TcpAddress, parse_listen_url
    from exec_server.web.page_program import PageOptions, check_options

    try:
        address = parse_listen_url(f"ws://{values.listen}")
    except ExecServerListenUrlParseError:
        address = None
    if not isinstance(address, TcpAddress):
        raise ConfigurationError(f"invalid value '{values.listen}' for --listen: expected IP:PORT")
    principals = values.principals
    if principals == _DEFAULT_FILE:
        from exec_server.cli.token.token_options import principals_path

        principals = principals_path(None)
    options = PageOptions(
        listen=address,
        tls_certificate=values.tls_cert,
        tls_key=values.tls_key,
        principals=principals,
        recordings=values.recordings or str(default_directory()),
        is_recording=bool(values.record),
        secrets=_secrets(),
    )
    check_options(options)
    return options


def _secrets() -> tuple[str, ...]:
    """The values of variables of this program that have the name of a secret."""
    from exec_server.audit.masking import is_secret_name

    return tuple(value for name, value in os.environ.items() if is_secret_name(name))


def _forwards_elsewhere(server: str) -> list[dict[str, str]]:
    """What `exec-server port` commands on this machine forward to *server*."""
    from exec_server.cli.port.port_records import PortRecords

    found = [record for record in PortRecords().running() if record.server == server]
    return [facts | {"pid": str(record.pid)} for record in found for facts in record.forwards]


def _places(names: list[str], *, token: Token | None, pin: str | None) -> list[PlaceFacts]:
    """The environments of the page. Raises ConfigurationError."""
    from exec_server.web.places import PlaceFacts

    manager = server_access.environments()
    for text in manager.warnings:
        print_warning(text)
    known = {each.name: each for each in manager.describe()}
    found = []
    for number, name in enumerate(dict.fromkeys(names or known)):
        kind, where, is_default = "url", server_access.shown(name), False
        if not server_access.is_url(name):
            # This refuses a name that is not configured.
            manager.resolve(name)
            facts = known[name]
            kind, where, is_default = facts.kind, facts.where, facts.is_default
        found.append(
            PlaceFacts(
                id=f"p{number}",
                name=server_access.shown(name),
                kind=kind,
                where=where,
                is_default=is_default or len(names) == 1,
                open=partial(_open, name, token=token, pin=pin),
            )
        )
    if not found:
        raise ConfigurationError(
            "there are no environments: give a URL, or see `exec-server env --help`"
        )
    return found


def _open(
    name: str,
    *,
    token: Token | None,
    pin: str | None,
    session_token: str | None = None,
    take_over: bool = False,
    on_state: Callable[[ConnectionState], None] | None = None,
) -> AbstractAsyncContextManager[ExecServerClient]:
    return server_access.open_server(
        name,
        client_name="exec-server web",
        token=token,
        pin=pin,
        session_token=session_token,
        take_over=take_over,
        on_state=on_state,
        limits=_limits(),
    )


def _limits() -> Limits:
    return msgspec.structs.replace(DEFAULT_LIMITS, flow_window=_FLOW_WINDOW)


async def _serve(options: PageOptions, facts: list[PlaceFacts], values: argparse.Namespace) -> int:
    from exec_server.web.page_program import serve_page

    raise_descriptor_limit()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, stopped.set)
    serving: list[ServedPage] = []

    def tell_next(session: object) -> None:
        """Print the next link, because a link works once."""
        if serving and not options.principals:
            link = serving[0].new_link()
            print(f"opened; for another browser: {link}", file=sys.stderr, flush=True)

    async with serve_page(
        options, facts, on_sign_in=tell_next, forwards_elsewhere=_forwards_elsewhere
    ) as page:
        serving.append(page)
        link = page.new_link()
        if values.output == "json":
            print_json({"url": link, "address": page.url, "signIn": _sign_in_of(options)})
            sys.stdout.flush()
        else:
            print(link, flush=True)
        if values.open:
            await _open_browser(link)
        await stopped.wait()
    return exit_codes.OK


def _sign_in_of(options: PageOptions) -> str:
    return "link" if options.principals is None else "token"


async def _open_browser(url: str) -> None:
    import webbrowser

    if not await asyncio.to_thread(webbrowser.open, url):
        print_warning("no browser can be opened from here; open the URL yourself")

"""`exec-server conformance`: check any server that speaks the protocol."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentTypeError
from importlib.util import find_spec
from typing import TYPE_CHECKING

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_error
from exec_server.cli.parser import Flag, Parser
from exec_server.cli.tables import print_json, print_json_failure
from exec_server.protocol.registry import NOISE_SCHEMES

if TYPE_CHECKING:
    from argparse import Namespace

    from exec_server.conformance.check import CheckResult, ConformanceCheck, ServerUnderTest

_SUITES = ("core", "files", "http", "sandbox", "remote", "extensions")
_NO_URL = "ws://none"
_PATIENCE = 10.0
# A client may wait 10 seconds for an answer, and try 25 seconds to resume a session.
_CLIENT_PATIENCE = 30.0
_FORMATS = ("text", "json", "junit", "html")
_DESCRIPTION = """\
Check a server that speaks this protocol from the outside, with a small client of its own. Each
check has an id and one requirement, and says what was seen. Commands run and files are made on the
server, so it should be one for tests, on this machine.

With --client, check a client instead: CMD is run once for each check, and has to start one process
at {url}, copy its output to standard output, and end with its exit status. A scripted server sees
what it does when connections are lost, and when events come twice, late or in another order.
"""

_EPILOG = """\
exit status:
  0    no check failed
  1    a check failed, or the server cannot be reached
  2    the command line is wrong

examples:
      exec-server conformance ws://127.0.0.1:41181
      exec-server conformance --suite core -o junit 'stdio:codex exec-server --listen stdio'
      exec-server conformance --suite remote --token-file token noise+http://127.0.0.1:8700/laptop
      exec-server conformance --client 'exec-server run {url} -- true'
"""


def conformance_command(words: list[str]) -> int:
    """Run the checks that *words* choose."""
    parser = _parser()
    values = parser.parse_words(words)
    if values.client is not None and (values.url != _NO_URL or values.suite):
        parser.error("the argument '--client' cannot be used with a URL or '--suite'")
    if values.client is not None and not values.client.strip():
        parser.error("the argument '--client <CMD>' needs a command")
    if values.url == _NO_URL and values.client is None and not values.list:
        parser.error("the following arguments are required: URL, or --client <CMD>")
    chosen = _chosen(parser, values)
    if values.list and values.output == "json":
        print_json(
            [{"id": it.id, "suite": it.suite, "requirement": it.requirement} for it in chosen]
        )
        return exit_codes.OK
    if values.list:
        print("\n".join(f"{each.id:26} {each.suite:10} {each.requirement}" for each in chosen))
        return exit_codes.OK
    if not values.url.startswith(("ws://", "wss://", "stdio:", *NOISE_SCHEMES)):
        parser.error(f"`{values.url}` is not a ws://, wss://, stdio: or noise+https:// URL")
    if "remote" in (values.suite or ()) and not values.url.startswith(NOISE_SCHEMES):
        parser.error("the suite `remote` needs noise+https://REGISTRY/ENVIRONMENT")
    if not values.url.startswith("stdio:") and find_spec("websockets") is None:
        return _failed(
            "this needs websockets: pip install 'exec-server[conformance]'", values.output
        )
    if values.client is not None:
        patience = values.timeout or _CLIENT_PATIENCE
        return asyncio.run(_client_checked(chosen, values.client, patience, values.output))
    headers = {}
    if values.token_file is not None:
        try:
            with open(values.token_file, encoding="utf-8") as file:
                headers["Authorization"] = f"Bearer {file.read().strip()}"
        except OSError as exc:
            return _failed(f"{values.token_file}: {exc.strerror}", values.output)
    from exec_server.conformance.check import ServerUnderTest

    is_old = values.dialect == "first"
    target = ServerUnderTest(values.url, headers, values.timeout or _PATIENCE, is_old)
    return asyncio.run(_checked(chosen, target, values.output))


def _parser() -> Parser:
    parser = Parser(
        "exec-server conformance",
        usage="[OPTIONS] (URL | --client CMD)",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add(
        "url",
        metavar="URL",
        nargs="?",
        default=_NO_URL,
        help="ws://HOST:PORT, stdio:PROGRAM or noise+https://REGISTRY/NAME",
    )
    add("--client", metavar="<CMD>", help="check a client instead; {url} in CMD is the server")
    add("--suite", action="append", choices=_SUITES, help="run only this suite; may be repeated")
    add("--check", action="append", metavar="<ID>", help="run only this check; may be repeated")
    add("--list", action=Flag, help="print the ids and requirements, and run nothing")
    add("--timeout", type=_seconds, metavar="<SECONDS>", help="the longest wait [10; clients: 30]")
    add(
        "--dialect",
        choices=("newest", "first"),
        default="newest",
        help="`first` speaks to the first releases of Codex: paths instead of URIs [newest]",
    )
    add("--token-file", metavar="<PATH>", help="a file with the server's or registry's token")
    add("-o", "--output", choices=_FORMATS, default="text", help="the format [text]")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ArgumentTypeError(f"`{text}` is no number of seconds above 0")
    return seconds


def _chosen(parser: Parser, values: Namespace) -> list[ConformanceCheck]:
    from exec_server.conformance.all_checks import CHECKS, CLIENT_CHECKS

    checks = CHECKS if values.client is None else CLIENT_CHECKS
    if values.list and values.client is None:
        checks = [*CHECKS, *CLIENT_CHECKS]
    known = {each.id for each in checks}
    for name in values.check or ():
        if name not in known:
            parser.error(f"there is no check `{name}`; --list shows all")
    if values.check:
        return [each for each in checks if each.id in values.check]
    is_left_out = not values.list and not values.url.startswith(NOISE_SCHEMES)
    return [
        each
        for each in checks
        if (
            each.suite in values.suite
            if values.suite
            else not is_left_out or each.suite != "remote"
        )
    ]


async def _checked(chosen: list[ConformanceCheck], target: ServerUnderTest, output: str) -> int:
    from exec_server.conformance.check import (
        ServerUnreachable,
        judged_by_version,
        run_checks,
        version_of,
    )

    try:
        version = await version_of(target)
    except ServerUnreachable as exc:
        return _failed(f"{target.url} does not answer: {_why_unreachable(exc)}", output)
    results = _Results(output, len(chosen))
    await run_checks(
        chosen, target, on_result=lambda result: results.add(judged_by_version(result, version))
    )
    return results.told(target.url, version)


def _why_unreachable(error: Exception) -> str:
    from exec_server.transport.dial_target import describe

    cause = error.__cause__
    if isinstance(cause, json.JSONDecodeError):
        return "what it sends is not JSON"
    return describe(cause) if isinstance(cause, OSError) and cause.errno else str(error)


async def _client_checked(
    chosen: list[ConformanceCheck], command: str, patience: float, output: str
) -> int:
    from exec_server.conformance.clients.client_check import client_command, run_client_checks

    try:
        run = client_command(command)
    except ValueError as exc:
        return _failed(f"the command of the client: {exc}", output)
    results = _Results(output, len(chosen))
    name = await run_client_checks(chosen, run, patience=patience, on_result=results.add)
    return results.told(command, name)


class _Results:
    """Results, which are printed as they come or at the end."""

    def __init__(self, output: str, expected: int) -> None:
        self._output = output
        self._expected = expected
        self._found: list[CheckResult] = []

    def add(self, result: CheckResult) -> None:
        from exec_server.conformance import report

        self._found.append(result)
        if self._output == "text":
            print(report.line(result), flush=True)
        elif sys.stderr.isatty():
            count = f"\r{len(self._found)} of {self._expected}"
            print(count, end="", file=sys.stderr, flush=True)

    def told(self, target: str, version: str) -> int:
        """Print what is printed at the end, and return the exit status."""
        from exec_server.conformance import report

        if self._output == "json":
            print(report.as_json(self._found, target, version))
        elif self._output == "junit":
            print(report.as_junit(self._found))
        elif self._output == "html":
            print(report.as_html(self._found, target, version))
        else:
            print(report.last_line(self._found, target, version))
        is_failed = any(result.verdict == "failed" for result in self._found)
        return exit_codes.FAILED if is_failed else exit_codes.OK


def _failed(text: str, output: str) -> int:
    print_error(text)
    if output == "json":
        print_json_failure(exit_codes.FAILED)
    return exit_codes.FAILED

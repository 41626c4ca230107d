"""`exec-server conformance`: check any server that speaks the protocol."""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_error
from exec_server.cli.parser import Flag, Parser
from exec_server.cli.tables import print_json_failure

if TYPE_CHECKING:
    from exec_server.conformance.check import CheckResult, ConformanceCheck, ServerUnderTest

_SUITES = ("core", "files", "http", "sandbox", "remote", "extensions")
_REMOTE = ("noise+http://", "noise+https://")
_FORMATS = ("text", "json", "junit", "html")
_DESCRIPTION = """\
Check a server that speaks this protocol from the outside, with a small client of its own. Each
check has an id and one requirement, and says what was seen. Commands run and files are made on the
server, so it should be one for tests, on this machine.
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
"""


def conformance_command(words: list[str]) -> int:
    """Run the checks that *words* choose."""
    parser = Parser(
        "exec-server conformance",
        usage="[OPTIONS] URL",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add(
        "url",
        metavar="URL",
        help="ws://HOST:PORT, stdio:PROGRAM or noise+https://REGISTRY/ENVIRONMENT",
    )
    add("--suite", action="append", choices=_SUITES, help="run only this suite; may be repeated")
    add("--check", action="append", metavar="<ID>", help="run only this check; may be repeated")
    add("--list", action=Flag, help="print the ids and requirements, and run nothing")
    add("--timeout", type=float, default=10.0, metavar="<SECONDS>", help="the longest wait [10]")
    add(
        "--dialect",
        choices=("newest", "first"),
        default="newest",
        help="`first` speaks to the first releases of Codex: paths instead of URIs [newest]",
    )
    add(
        "--token-file",
        metavar="<PATH>",
        help="a file with the bearer token of the server or registry",
    )
    add("-o", "--output", choices=_FORMATS, default="text", help="the format [text]")
    values = parser.parse_words(words if "--list" not in words else [*words, "ws://none"])
    from exec_server.conformance.all_checks import CHECKS

    known = {each.id for each in CHECKS}
    for name in values.check or ():
        if name not in known:
            parser.error(f"there is no check `{name}`; --list shows all")
    is_remote = values.url.startswith(_REMOTE)
    usual = [name for name in _SUITES if name != "remote" or is_remote or values.list]
    suites = values.suite or (_SUITES if values.check else usual)
    chosen = [
        each for each in CHECKS if each.suite in suites and each.id in (values.check or known)
    ]
    if values.list:
        print("\n".join(f"{each.id:26} {each.suite:10} {each.requirement}" for each in chosen))
        return exit_codes.OK
    if not values.url.startswith(("ws://", "wss://", "stdio:", *_REMOTE)):
        parser.error(f"`{values.url}` is not a ws://, wss://, stdio: or noise+https:// URL")
    if "remote" in suites and values.suite and not is_remote:
        parser.error("the suite `remote` needs noise+https://REGISTRY/ENVIRONMENT")
    if not values.url.startswith("stdio:") and find_spec("websockets") is None:
        return _failed(
            "this needs websockets: pip install 'exec-server[conformance]'", values.output
        )
    headers = {}
    if values.token_file is not None:
        try:
            with open(values.token_file, encoding="utf-8") as file:
                headers["Authorization"] = f"Bearer {file.read().strip()}"
        except OSError as exc:
            return _failed(f"{values.token_file}: {exc.strerror}", values.output)
    from exec_server.conformance.check import ServerUnderTest

    target = ServerUnderTest(values.url, headers, values.timeout, values.dialect == "first")
    return asyncio.run(_checked(chosen, target, values.output))


async def _checked(chosen: list[ConformanceCheck], target: ServerUnderTest, output: str) -> int:
    from exec_server.conformance import report
    from exec_server.conformance.check import Unreachable, judged_by_version, run_checks, version_of

    try:
        version = await version_of(target)
    except Unreachable as exc:
        return _failed(f"{target.url} does not answer: {exc}", output)
    results: list[CheckResult] = []

    def on_result(result: CheckResult) -> None:
        results.append(judged_by_version(result, version))
        if output == "text":
            print(report.line(results[-1]), flush=True)
        elif sys.stderr.isatty():
            print(f"\r{len(results)} of {len(chosen)}", end="", file=sys.stderr, flush=True)

    await run_checks(chosen, target, on_result=on_result)
    if output == "json":
        print(report.as_json(results, target.url, version))
    elif output == "junit":
        print(report.as_junit(results))
    elif output == "html":
        print(report.as_html(results, target.url, version))
    else:
        print(f"{target.url} ({version or 'unknown version'}): {report.summary(results)}")
    return exit_codes.FAILED if any(r.verdict == "failed" for r in results) else exit_codes.OK


def _failed(text: str, output: str) -> int:
    print_error(text)
    if output == "json":
        print_json_failure(exit_codes.FAILED)
    return exit_codes.FAILED

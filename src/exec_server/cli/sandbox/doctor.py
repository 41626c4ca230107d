"""`exec-server doctor`: show which sandboxes work, and how to repair what does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import (
    TOKEN_HELP,
    Token,
    add_connection_options,
    add_output,
    server_token,
)
from exec_server.cli.parser import Parser, path
from exec_server.cli.server_access import SERVER_HELP
from exec_server.cli.tables import failure_teller, print_json, readable
from exec_server.errors import ConfigurationError

if TYPE_CHECKING:
    from exec_server.cli.sandbox.doctor_checks import Check
    from exec_server.cli.sandbox.hard_links import HardLinks
    from exec_server.protocol.environment import SandboxInfo

_DESCRIPTION = """\
Show which backends of the sandbox work on this machine. For each that does not, show what stops it
and the command that repairs it. Then check the other things that a server needs. If a SERVER is
given, show the backends that work there instead.
"""

_EPILOG = f"""\
{SERVER_HELP}
backends, the strongest first:
  bubblewrap  confines files and network, by every policy
  landlock    confines files and network, by read-only policies and by policies without protected
              names in writable directories
  seccomp     confines the network only; the other two need it

{TOKEN_HELP}
exit status:
  0    access to files can be confined: bubblewrap or landlock works
  1    neither works; or commands cannot be run at all; or --hard-links found some, or could not
       read everything; or the server cannot be reached, or does not report its backends
  2    the command line is wrong

examples:
  Check this machine:
      exec-server doctor

  Check a server:
      exec-server doctor ws://127.0.0.1:41181

  Before a sandbox may write to a directory: do files in it have other names outside of it?
      exec-server doctor --hard-links .

  For a program:
      exec-server doctor -o json
"""

# The backends that can confine access to files.
_FILE_BACKENDS = ("bubblewrap", "landlock")
# How many of the files with other names are listed in the text output.
_SHOWN_LINKS = 20


class Diagnosis(msgspec.Struct, frozen=True):
    """The results of all checks."""

    sandbox: SandboxInfo
    checks: list[Check] = []
    hard_links: HardLinks | None = None

    @property
    def is_well(self) -> bool:
        is_clean = self.hard_links is None or self.hard_links.is_clean
        has_needed = all(each.works or not each.is_needed for each in self.checks)
        return self.sandbox.rung in _FILE_BACKENDS and has_needed and is_clean

    @property
    def as_json(self) -> dict[str, object]:
        facts: dict[str, object] = {"ok": self.is_well, "sandbox": self.sandbox}
        if self.checks:
            facts["checks"] = self.checks
        if self.hard_links is not None:
            facts["hardLinks"] = self.hard_links
        return facts


def doctor_parser() -> Parser:
    parser = Parser(
        "exec-server doctor",
        usage="[OPTIONS] [SERVER]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("server", metavar="SERVER", nargs="?", help="check this server [default: this machine]")
    add(
        "--hard-links",
        metavar="<DIR>",
        type=path,
        help="find files below DIR that have other names outside of it",
    )
    add_output(parser)
    add_connection_options(parser)
    return parser


def doctor_command(words: list[str]) -> int:
    """Run the checks that *words* ask for; the status is 0 if all is well."""
    parser = doctor_parser()
    values = parser.parse_words(words)
    server: str | None = values.server
    if server is not None and not server_access.is_server(server):
        expected = server_access.expected_server()
        parser.error(f"invalid value '{server}' for 'SERVER': expected {expected}")
    if server is not None and values.hard_links is not None:
        parser.error("the argument '--hard-links <DIR>' cannot be used with 'SERVER'")

    async def doctor() -> int:
        if server is None:
            diagnosis = await _here(values.hard_links)
        else:
            diagnosis = await _there(server, server_token(parser, values), values.pin)
        if values.output == "json":
            print_json(diagnosis.as_json)
        else:
            _show(diagnosis)
        return exit_codes.OK if diagnosis.is_well else exit_codes.FAILED

    return run_to_exit_status(
        doctor, log_level=values.log_level, tell=failure_teller(values.output)
    )


async def _here(directory: str | None) -> Diagnosis:
    from exec_server.cli.sandbox.doctor_checks import checks
    from exec_server.server.sandbox_info import sandbox_info

    links = None
    if directory is not None:
        from exec_server.cli.sandbox.hard_links import find_hard_links

        try:
            links = find_hard_links(directory)
        except OSError as exc:
            raise ConfigurationError(f"cannot read `{directory}`: {exc.strerror}") from None
    return Diagnosis(sandbox_info(), await checks(), links)


async def _there(server: str, token: Token | None, pin: str | None) -> Diagnosis:
    opening = server_access.open_server(
        server, token=token, pin=pin, client_name="exec-server doctor"
    )
    async with opening as client:
        found = await client.sandbox_info()
    if found is None:
        raise ConfigurationError(
            f"`{server_access.shown(server)}` does not report how it enforces sandboxes"
        )
    return Diagnosis(found)


# Text output.


class _Finding(Protocol):
    @property
    def works(self) -> bool: ...
    @property
    def found(self) -> str | None: ...
    @property
    def obstacle(self) -> str | None: ...
    @property
    def remedy(self) -> str | None: ...


def _show(diagnosis: Diagnosis) -> None:
    sandbox = diagnosis.sandbox
    findings: list[tuple[str, _Finding]] = [(each.rung, each) for each in sandbox.rungs]
    print("sandbox")
    _show_findings(findings)
    print(f"  in force: {readable(sandbox.rung)}")
    if diagnosis.checks:
        print("machine")
        _show_findings([(each.name, each) for each in diagnosis.checks])
    if diagnosis.hard_links is not None:
        _show_links(diagnosis.hard_links)


def _show_findings(findings: Sequence[tuple[str, _Finding]]) -> None:
    width = max((len(name) for name, _ in findings), default=0)
    for name, each in findings:
        mark = "ok " if each.works else "NO "
        detail = (each.found if each.works else each.obstacle or each.found) or ""
        print(f"  {mark} {readable(name).ljust(width)}  {readable(detail)}".rstrip())
        if not each.works and each.remedy:
            print(f"      {' ' * width}  fix: {readable(each.remedy)}")


def _show_links(links: HardLinks) -> None:
    print("hard links")
    where = readable(links.directory)
    if links.is_clean:
        print(f"  ok  nothing below {where} has a name outside of it")
    if links.outside:
        print(f"  NO  {links.outside} files below {where} have other names outside of it:")
        for each in links.paths[:_SHOWN_LINKS]:
            print(f"      {readable(each)}")
        if links.outside > _SHOWN_LINKS:
            print(f"      and {links.outside - _SHOWN_LINKS} more")
        print("      fix: replace each by a copy: cp -p FILE FILE.new && mv FILE.new FILE")
    if links.unreadable:
        print(f"  NO  {links.unreadable} directories could not be read")
    if links.is_partial:
        print("  NO  there are too many files to look at all of them")

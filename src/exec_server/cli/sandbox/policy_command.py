"""`exec-server sandbox policy`: what was allowed for good, and how to take it back."""

from __future__ import annotations

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import add_output
from exec_server.cli.parser import Parser
from exec_server.cli.tables import print_json, print_json_failure, print_table
from exec_server.errors import ConfigurationError
from exec_server.printable import printable
from exec_server.sandbox.grant_file import grant_file, load_grants, remove_grant

_DESCRIPTION = """\
List what was allowed for good to sandboxed commands, with `always` at a question of --ask, and take
it back. It holds for the commands that `run --sandbox` and `sandbox` start from now on, on the
server where it was allowed, and for no other client of that server.
"""

_EPILOG = """\
The file is exec-server/grants.toml in $XDG_CONFIG_HOME (by default ~/.config). It is read for each
command. Protected names, the files of a server, and the floors of a principal cannot be allowed.

exit status:
  0    done
  1    there is no such grant, or the file cannot be used
  2    the command line is wrong

examples:
  List everything:
      exec-server sandbox policy list

  Take one back, on all servers; on one:
      exec-server sandbox policy remove write=/srv/cache
      exec-server sandbox policy remove write=/srv/cache --server ws://127.0.0.1:41181
"""


def policy_parser() -> Parser:
    parser = Parser(
        "exec-server sandbox policy",
        usage="[OPTIONS] <list|remove> [GRANT]...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("action", metavar="ACTION", choices=("list", "remove"), help="what to do")
    add("grants", metavar="GRANT", nargs="*", default=[], help="the grants, as `list` shows them")
    add("--server", metavar="<SERVER>", help="only those of this server")
    add_output(parser)
    return parser


def policy_command(words: list[str]) -> int:
    """Do what the *words* after ``sandbox policy`` say, and return the exit status."""
    parser = policy_parser()
    values = parser.parse_words(words)
    if (values.action == "remove") != bool(values.grants):
        parser.error("`remove` needs the grants that it removes, and `list` has none")
    try:
        if values.action == "list":
            _list(values.server, is_json=values.output == "json")
        else:
            _remove(values.grants, values.server, is_json=values.output == "json")
    except ConfigurationError as exc:
        print_error(str(exc))
        if values.output == "json":
            print_json_failure(exit_codes.FAILED)
        return exit_codes.FAILED
    return exit_codes.OK


def _list(server: str | None, *, is_json: bool) -> None:
    found = [
        (name, grant)
        for name, grants in sorted(load_grants(grant_file()).items())
        for grant in grants
        if server in (None, name)
    ]
    if is_json:
        print_json([{"server": name, "grant": grant} for name, grant in found])
    elif found:
        print_table(("SERVER", "GRANT"), [(printable(a), printable(b)) for a, b in found])


def _remove(grants: list[str], server: str | None, *, is_json: bool) -> None:
    path = grant_file()
    removed = {grant: remove_grant(path, grant, server) for grant in grants}
    for grant, count in removed.items():
        if not count:
            where = "" if server is None else f" on `{printable(server)}`"
            raise ConfigurationError(f"`{printable(grant)}` is not allowed{where}")
    if is_json:
        print_json({"removed": sum(removed.values())})

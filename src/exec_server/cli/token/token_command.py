"""`exec-server token`: the principals of a server, and their tokens."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import msgspec

from exec_server.access.principal_record import PrincipalRecord
from exec_server.access.principals_file import PrincipalsFile
from exec_server.access.token_secrets import digest_of, expiry, new_secret
from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import add_output
from exec_server.cli.parser import Parser
from exec_server.cli.tables import print_json, print_json_failure, print_table
from exec_server.cli.token.sign_token import add_sign_options, sign
from exec_server.cli.token.token_facts import HEADINGS, facts, lines, row
from exec_server.cli.token.token_options import (
    add_credentials,
    add_expires,
    add_file,
    add_floors,
    add_kind,
    add_may,
    add_quotas,
    described_record,
    principals_path,
)
from exec_server.errors import ConfigurationError

_DESCRIPTION = """\
Say who may use a server, and for what. A principal is a person or a program; it proves who it is
with a token, a client certificate, its user at a Unix socket, or a signed token (JWT). All are in
one file, which the server gets with --principals FILE. A running server follows every change
within a second, and ends the connections of a principal that was revoked or changed.
"""

_EPILOG = """\
scopes, separated by commas:
  exec         start processes, and everything about its own processes
  files:read   read files and directories
  files:write  change them
  http         let the server make HTTP requests
  admin        all of this, also with what belongs to other principals, and stop the server
A process can read and write files itself: a principal with `exec` is bound by the user that the
server runs as, and by the floors, and not by files:read and files:write.

A token is printed once, when it is made: only its digest is stored.

exit status:
  0    done
  1    there is no such principal, there is one already, or the file cannot be used
  2    the command line is wrong

examples:
  A token for a program that runs commands and reads files, for 30 days:
      exec-server token create ci --may exec,files:read --expires 30d > ci.token

  A server for the principals in the file:
      exec-server --listen ws://127.0.0.1:8765 --principals default

  Who they are, when each was used last, and from where:
      exec-server token list

  A new token in place of the old one; no access at all:
      exec-server token rotate ci > ci.token
      exec-server token revoke ci

  Confine what a principal can do:
      exec-server token create agent --may exec --root /srv/app \\
          --sandbox-floor workspace-write=/srv/app --limit memory=2G --max-processes 50 --rate 20/s

  An agent, which can never take the keyboard from a person, and a person who may look on:
      exec-server token create bot --may exec --kind agent > bot.token
      exec-server token create ann --may all --kind person > ann.token

  By client certificate, and by user at a Unix socket:
      exec-server token create alice --certificate alice
      exec-server token create www --unix-user www-data --may files:read

  A signed token for an hour, for a server with --ws-auth signed-bearer-token:
      exec-server token sign alice --shared-secret-file secret --expires 1h
"""

# Which options each action has, besides --file and --output.
_SIGNING = {"shared_secret_file", "issuer", "audience"}
_EXPIRING = {"expires"}


def token_command(words: list[str]) -> int:
    """Do what *words* say with the principals of a file."""
    parser = token_parser()
    values = parser.parse_words(words)
    _refuse_options_of_others(parser, values)
    try:
        return _ACTIONS[values.action](parser, values)
    except ConfigurationError as exc:
        print_error(str(exc))
        if values.output == "json":
            print_json_failure(exit_codes.FAILED)
        return exit_codes.FAILED


def token_parser() -> Parser:
    parser = Parser(
        "exec-server token",
        usage=f"[OPTIONS] <{'|'.join(_ACTIONS)}> [NAME]...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("action", metavar="ACTION", choices=tuple(_ACTIONS), help="what to do")
    parser.add_argument("names", metavar="NAME", nargs="*", default=[], help="the principals")
    add_file(parser)
    add_output(parser)
    made = parser.add_argument_group("create")
    add_may(made, "what it may do [default: exec,files:read,files:write,http]; all: admin, too")
    add_expires(
        made,
        "how long: seconds, or a number with s, m, h or d; also of rotate and sign "
        "[default: without an end; of sign 1h]",
    )
    add_kind(made)
    add_credentials(made)
    add_floors(parser.add_argument_group("create: floors, which no request can lift"))
    add_quotas(parser.add_argument_group("create: quotas"))
    add_sign_options(parser.add_argument_group("sign, which also has --may, --kind and --expires"))
    return parser


def _refuse_options_of_others(parser: Parser, values: argparse.Namespace) -> None:
    """Exit if an option was given that the action has not."""
    always = {"action", "names", "file", "output"}
    own = {
        "create": set(vars(values)) - _SIGNING,
        "rotate": _EXPIRING,
        "sign": _SIGNING | _EXPIRING | {"may", "kind"},
    }.get(values.action, set())
    for dest, value in vars(values).items():
        if dest not in always | own and value not in (None, False, []):
            parser.error(f"`{values.action}` has no option '{parser.shown(dest)}'")


def _file(values: argparse.Namespace) -> PrincipalsFile:
    return PrincipalsFile(principals_path(values.file))


def _one_name(parser: Parser, values: argparse.Namespace) -> str:
    if len(values.names) != 1:
        parser.error(f"`{values.action}` needs one name")
    return str(values.names[0])


def _create(parser: Parser, values: argparse.Namespace) -> int:
    name = _one_name(parser, values)
    file = _file(values)
    now = time.time()
    record = described_record(name, values, now=now)
    is_known_otherwise = record.certificates or record.unix_users or record.subjects
    secret = None if values.no_token or is_known_otherwise else new_secret()
    if secret is not None:
        record = msgspec.structs.replace(record, digest=digest_of(secret), rotated_at=now)
    file.add(record)
    _tell_made(values, record, secret, file)
    return exit_codes.OK


def _rotate(parser: Parser, values: argparse.Namespace) -> int:
    file, name, now = _file(values), _one_name(parser, values), time.time()
    before = file.find(name)
    if before.revoked_at is not None:
        raise ConfigurationError(f"`{name}` was revoked; `remove` and `create` it again")
    ends = before.expires_at if values.expires is None else expiry(now, values.expires)
    if ends is not None and ends <= now:
        raise ConfigurationError(f"`{name}` has expired; give it a new --expires")
    secret = new_secret()
    record = msgspec.structs.replace(
        before, digest=digest_of(secret), rotated_at=now, expires_at=ends
    )
    file.replace(record, before=before)
    _tell_made(values, record, secret, file)
    return exit_codes.OK


def _tell_made(
    values: argparse.Namespace, record: PrincipalRecord, secret: str | None, file: PrincipalsFile
) -> None:
    if values.output == "json":
        print_json({**facts(record, None), "token": secret})
        return
    if secret is None:
        print(f"principal {record.name} is in {file.path}; it has no token", file=sys.stderr)
    else:
        print(secret)
        print(f"token of {record.name}, in {file.path}; it is not shown again", file=sys.stderr)


def _list(parser: Parser, values: argparse.Namespace) -> int:
    if values.names:
        parser.error("`list` has no names; `show` prints one principal")
    file = _file(values)
    records, uses = file.records(), file.last_uses()
    if values.output == "json":
        print_json([facts(record, uses.get(record.name)) for record in records])
    else:
        print_table(HEADINGS, [row(record, uses.get(record.name)) for record in records])
    return exit_codes.OK


def _show(parser: Parser, values: argparse.Namespace) -> int:
    file, name = _file(values), _one_name(parser, values)
    record, use = file.find(name), file.last_uses().get(name)
    if values.output == "json":
        print_json(facts(record, use))
    else:
        print("\n".join(lines(record, use)))
    return exit_codes.OK


def _revoke(parser: Parser, values: argparse.Namespace) -> int:
    def revoke(file: PrincipalsFile, name: str) -> None:
        before = file.find(name)
        if before.revoked_at is None:
            file.replace(msgspec.structs.replace(before, revoked_at=time.time()), before=before)

    return _for_each(parser, values, revoke)


def _remove(parser: Parser, values: argparse.Namespace) -> int:
    return _for_each(parser, values, PrincipalsFile.remove)


def _for_each(
    parser: Parser, values: argparse.Namespace, change: Callable[[PrincipalsFile, str], None]
) -> int:
    """Change every principal that is named; one that is unknown does not keep the others."""
    if not values.names:
        parser.error(f"`{values.action}` needs a name")
    file, status = _file(values), exit_codes.OK
    for name in values.names:
        try:
            change(file, name)
        except ConfigurationError as exc:
            print_error(str(exc))
            status = exit_codes.FAILED
    if status and values.output == "json":
        print_json_failure(status)
    return status


_ACTIONS = {
    "create": _create,
    "list": _list,
    "show": _show,
    "rotate": _rotate,
    "revoke": _revoke,
    "remove": _remove,
    "sign": sign,
}

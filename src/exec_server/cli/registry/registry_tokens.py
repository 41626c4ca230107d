"""`exec-server registry token`: create, list and revoke tokens."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from exec_server.cli import exit_codes
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import add_output, duration
from exec_server.cli.parser import Append, Parser
from exec_server.cli.registry.registry_options import add_state, private_file
from exec_server.cli.tables import failure_teller, print_json, print_json_failure, print_table
from exec_server.errors import ConfigurationError

if TYPE_CHECKING:
    from exec_server.hub.store import Store
    from exec_server.hub.store.entities import AccessToken, Right

_KINDS: dict[str, tuple[Right, ...]] = {
    "enrol": ("enrol",),
    "harness": ("connect", "list"),
    "observer": ("list", "observe"),
}

_DESCRIPTION = """\
Create, list and revoke the tokens of a registry. The command works on the state of the registry,
which is a file on its machine or a database. A running registry follows within a second, and ends
the connections of a revoked token.
"""

_EPILOG = """\
kinds:
  enrol      for executors: may register environments
  harness    for clients: may use and list environments
  observer   may read the status page, the metrics and the events

A token is printed once, when it is created: only its digest is stored.

examples:
  A token for all environments whose names begin with build-, without an end:
      exec-server registry token create enrol build-farm --env 'build-*'

  A token for one environment of any name, valid for an hour:
      exec-server registry token create enrol new-laptop --once --expires 1h

  List the tokens, and revoke one:
      exec-server registry token list
      exec-server registry token revoke 3f9c0a6b12de
"""


def token_command(words: list[str]) -> int:
    parser = Parser(
        "exec-server registry token",
        usage="[OPTIONS] (create KIND NAME | list | revoke ID...)",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("action", metavar="create | list | revoke", choices=("create", "list", "revoke"))
    add("rest", metavar="KIND NAME | ID", nargs="*")
    add(
        "--env",
        metavar="<PATTERN>",
        action=Append,
        help="names of environments, with * and ?; may be repeated [default: *]",
    )
    add(
        "--expires",
        metavar="<DURATION>",
        type=duration,
        help="how long the token is valid: seconds, or a number with s, m, h or d "
        "[default: without an end]",
    )
    add(
        "--once",
        action="store_true",
        help="bind the token to the first environment that it is used for",
    )
    add_state(parser)
    add_output(parser)
    values = parser.parse_words(words)

    async def work() -> int:
        from exec_server.hub.store.open_store import open_store

        store = await open_store(private_file(values.state))
        try:
            return await _ACTIONS[values.action](parser, values, store)
        finally:
            await store.close()

    return run_to_exit_status(work, log_level="warning", tell=failure_teller(values.output))


async def _create(parser: Parser, values: argparse.Namespace, store: Store) -> int:
    from exec_server.access.token_secrets import digest_of
    from exec_server.hub.access.tokens import new_token

    if len(values.rest) != 2 or values.rest[0] not in _KINDS:
        parser.error(f"`create` needs a kind ({', '.join(_KINDS)}) and a name")
    kind, principal = values.rest
    try:
        token, secret = new_token(
            principal,
            _KINDS[kind],
            values.env or ["*"],
            now=time.time(),
            lifetime=values.expires,
            is_once=values.once,
        )
    except ValueError as exc:
        raise ConfigurationError(str(exc)) from exc
    await store.add_token(token, digest_of(secret))
    if values.output == "json":
        print_json({**_as_json(token), "token": secret})
    else:
        print(secret)
        print(f"token {token.id} for {principal}; it is not shown again", file=sys.stderr)
    return exit_codes.OK


async def _list(parser: Parser, values: argparse.Namespace, store: Store) -> int:
    tokens = await store.tokens()
    if values.output == "json":
        print_json([_as_json(token) for token in tokens])
    else:
        headings = ["ID", "NAME", "RIGHTS", "ENVIRONMENTS", "CREATED", "LAST USE", "STATE"]
        print_table(headings, [_row(token) for token in tokens])
    return exit_codes.OK


async def _revoke(parser: Parser, values: argparse.Namespace, store: Store) -> int:
    if not values.rest:
        parser.error("`revoke` needs the id of a token")
    status = exit_codes.OK
    for token_id in values.rest:
        if not await store.revoke_token(token_id, now=time.time()):
            print_error(f"no token {token_id} to revoke")
            status = exit_codes.FAILED
    if status and values.output == "json":
        print_json_failure(status)
    return status


_ACTIONS = {"create": _create, "list": _list, "revoke": _revoke}


def _as_json(token: AccessToken) -> dict[str, object]:
    return {
        "id": token.id,
        "name": token.principal,
        "rights": token.rights,
        "environments": token.patterns,
        "once": token.is_once,
        "boundTo": token.bound_to,
        "createdAt": token.created_at,
        "expiresAt": token.expires_at,
        "revokedAt": token.revoked_at,
        "lastUsedAt": token.last_used_at,
        "lastUsedFrom": token.last_used_from or None,
        "device": token.label or None,
    }


def _row(token: AccessToken) -> list[str]:
    environments = " ".join(token.patterns)
    if token.is_once:
        environments += f" (once: {token.bound_to or 'not used'})"
    return [
        token.id,
        f"{token.principal} ({token.label})" if token.label else token.principal,
        " ".join(token.rights),
        environments,
        _moment(token.created_at),
        _last_use(token),
        _state(token),
    ]


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _last_use(token: AccessToken) -> str:
    if token.last_used_at is None:
        return "never"
    source = f" from {token.last_used_from}" if token.last_used_from else ""
    return _moment(token.last_used_at) + source


def _state(token: AccessToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "good" if token.is_good(time.time()) else "expired"

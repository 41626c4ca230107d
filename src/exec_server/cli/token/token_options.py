"""The options of `exec-server token`, and the principal that they describe."""

from __future__ import annotations

import argparse
import os
import posixpath
from typing import Any

from exec_server.access.principal import (
    Floors,
    Quotas,
    SandboxFloor,
    Scope,
    check_name,
    read_scopes,
)
from exec_server.access.principal_record import PrincipalRecord
from exec_server.access.quantities import read_rate
from exec_server.access.token_secrets import expiry
from exec_server.cli.options import Options, duration, quantity
from exec_server.cli.parser import Append, Flag, Parser, path, positive_count
from exec_server.errors import ConfigurationError
from exec_server.protocol.limit_words import LIMIT_NAMES, UnknownLimit, parse_limits
from exec_server.remote.state_dir import state_home

FILE_VARIABLE = "EXEC_SERVER_PRINCIPALS"
# Everything but `admin`.
_USUAL: frozenset[Scope] = frozenset(("exec", "files:read", "files:write", "http"))


def principals_path(given: str | None) -> str:
    """The file of principals that an option names, or the default. It may not exist yet."""
    named = given or os.environ.get(FILE_VARIABLE)
    return named or str(state_home() / "principals.sqlite3")


def add_file(parser: Parser) -> None:
    parser.add_argument(
        "--file",
        metavar="<PATH>",
        type=path,
        help="the file of principals, which the server has as --principals "
        f"[default: {FILE_VARIABLE}, else ~/.local/state/exec-server/principals.sqlite3]",
    )


def add_expires(options: Options, text: str) -> None:
    options.add_argument("--expires", metavar="<DURATION>", type=duration, help=text)


def add_may(options: Options, text: str) -> None:
    options.add_argument("--may", metavar="<SCOPES>", type=quantity(read_scopes), help=text)


def add_kind(options: Options) -> None:
    options.add_argument(
        "--kind",
        metavar="<agent|person>",
        choices=("agent", "person"),
        help="what it is on a terminal that is shared: an agent cannot take the keyboard from a "
        "person, whatever its client says; also of sign [default: what each client says]",
    )


def add_credentials(options: Options) -> None:
    """How a principal proves who it is."""
    add = options.add_argument
    add(
        "--certificate",
        metavar="<NAME>",
        action=Append,
        help="recognize it by a client certificate with this common or alternative name, which "
        "--tls-client-ca accepts; may be repeated",
    )
    add(
        "--unix-user",
        metavar="<USER>",
        action=Append,
        type=quantity(_user),
        help="recognize it by the user of this machine, at a Unix socket; may be repeated",
    )
    add(
        "--subject",
        metavar="<SUB>",
        action=Append,
        help="recognize it by this `sub` of a signed token, besides its name; may be repeated",
    )
    add(
        "--no-token",
        action=Flag,
        help="make no token; this is the default with one of the three options above",
    )


def add_floors(options: Options) -> None:
    """What requests of a principal cannot go beyond."""
    add = options.add_argument
    add(
        "--root",
        metavar="<DIR>",
        action=Append,
        type=quantity(_folder),
        help="file calls and commands stay below this directory; may be repeated",
    )
    add(
        "--sandbox-floor",
        metavar="<SANDBOX>",
        type=quantity(_sandbox),
        help="the widest sandbox: read-only, or workspace-write=DIR[:DIR...]",
    )
    add(
        "--sandbox-floor-net",
        metavar="<on|off>",
        choices=("on", "off"),
        help="whether that sandbox may have a network [default: off]",
    )
    add(
        "--run-as",
        metavar="<USER>",
        type=quantity(_user),
        help="run its commands as this user; the server has to run as root",
    )
    add("--keep-env", metavar="<PATTERN>", action=Append, help="variables that commands get")
    add("--hide-env", metavar="<PATTERN>", action=Append, help="variables that they do not get")
    add(
        "--host",
        metavar="<PATTERN>",
        action=Append,
        help="the only hosts that commands and http/request may reach; may be repeated",
    )
    add(
        "--limit",
        metavar="<NAME=VALUE>",
        action=Append,
        type=quantity(_limit),
        help="the most that each command may use: memory=2G, pids=100, cpuRate=1.5, "
        "cpuSeconds=10m, wall=1h, outputBytes=1G, disk=10G or openFiles=1024; may be repeated",
    )


def add_quotas(options: Options) -> None:
    """How much a principal may have at once."""
    add = options.add_argument
    for what in ("processes", "connections", "sessions"):
        add(
            f"--max-{what}",
            metavar="<COUNT>",
            type=positive_count,
            help=f"the most {what} at the same time",
        )
    add(
        "--rate",
        metavar="<RATE>",
        type=quantity(read_rate),
        help="the most requests that start work: 20/s, 90/m",
    )


def described_record(name: str, values: argparse.Namespace, *, now: float) -> PrincipalRecord:
    """The principal that the options describe, without a token. Raises ConfigurationError."""
    try:
        check_name(name)
    except ValueError as exc:
        raise ConfigurationError(str(exc)) from None
    return PrincipalRecord(
        name=name,
        may=_USUAL if values.may is None else values.may,
        floors=_floors(values),
        kind=values.kind,
        quotas=Quotas(
            max_processes=values.max_processes,
            max_connections=values.max_connections,
            max_sessions=values.max_sessions,
            rate=values.rate,
        ),
        certificates=tuple(values.certificate),
        unix_users=tuple(values.unix_user),
        subjects=tuple(values.subject),
        created_at=now,
        expires_at=expiry(now, values.expires),
    )


def _floors(values: argparse.Namespace) -> Floors:
    sandbox: SandboxFloor | None = values.sandbox_floor
    if values.sandbox_floor_net is not None:
        if sandbox is None:
            raise ConfigurationError("--sandbox-floor-net needs --sandbox-floor")
        sandbox = SandboxFloor(
            kind=sandbox.kind, folders=sandbox.folders, network=values.sandbox_floor_net == "on"
        )
    return Floors(
        roots=tuple(values.root),
        sandbox=sandbox,
        run_as=values.run_as,
        keep_env=tuple(values.keep_env),
        hide_env=tuple(values.hide_env),
        hosts=tuple(values.host) or None,
        limits=parse_limits(values.limit) if values.limit else None,
    )


def _folder(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("expected an absolute path")
    return posixpath.normpath(text)


def _limit(text: str) -> str:
    """A limit that is a value; `require` is for those who ask for one."""
    try:
        is_value = not parse_limits([text]).require
    except UnknownLimit:
        is_value = False
    if not is_value:
        raise ValueError(f"expected NAME=VALUE, where NAME is one of {', '.join(LIMIT_NAMES)}")
    return text


def _sandbox(text: str) -> SandboxFloor:
    if text == "read-only":
        return SandboxFloor(kind="read-only")
    name, equals, rest = text.partition("=")
    if name != "workspace-write" or not equals:
        raise ValueError("expected read-only or workspace-write=DIR[:DIR...]")
    return SandboxFloor(kind="workspace-write", folders=tuple(map(_folder, rest.split(":"))))


def _user(text: str) -> str:
    import pwd

    try:
        known: Any = pwd.getpwuid(int(text)) if text.isdecimal() else pwd.getpwnam(text)
    except (KeyError, OverflowError):
        raise ValueError("this machine has no such user") from None
    return str(known.pw_name)

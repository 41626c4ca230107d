"""A principal: who a connection belongs to, what it may do, and the floors it cannot lift."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from exec_server.protocol.participants import Kind
from exec_server.protocol.resources import ResourceLimits

Scope = Literal["exec", "files:read", "files:write", "http", "admin"]
SCOPES: frozenset[Scope] = frozenset(get_args(Scope))

# A name has no colon: `uid:1000` and `sub:ann` are principals that are in no file.
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,62}"
# The bearers of the one token of `--ws-auth capability-token` are this principal.
TOKEN_BEARER = "token"


class SandboxFloor(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    """The widest sandbox that a principal's commands and file calls may have."""

    kind: Literal["read-only", "workspace-write"]
    folders: tuple[str, ...] = ()
    network: bool = False


class Floors(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="kebab",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What a request of a principal cannot go beyond, whatever it says."""

    # Directories that file calls and working directories stay below; none means everywhere.
    roots: tuple[str, ...] = ()
    sandbox: SandboxFloor | None = None
    # The Unix user that commands run as; only a server that runs as root can do that.
    run_as: str | None = None
    # Patterns of variables of the server that commands get, or do not get, in addition to policy.
    keep_env: tuple[str, ...] = ()
    hide_env: tuple[str, ...] = ()
    # Hosts that commands and `http/request` may reach; None means no rule.
    hosts: tuple[str, ...] | None = None
    # What each command may use at the most.
    limits: ResourceLimits | None = None


NO_FLOORS = Floors()


class Quotas(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="kebab",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """How much a principal may have at once; None means the server's own limits."""

    max_processes: int | None = None
    max_connections: int | None = None
    max_sessions: int | None = None
    # Requests that start work, per second.
    rate: float | None = None
    # Bytes of output that the server keeps for its processes, ended ones included.
    max_held_bytes: int | None = None


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """One principal, as tokens, certificates and users of the machine are mapped to it."""

    name: str
    may: frozenset[Scope] = SCOPES
    floors: Floors = NO_FLOORS
    quotas: Quotas = Quotas()
    # What it is: an agent cannot call itself a person. None means what each client says.
    kind: Kind | None = None

    def has(self, scope: Scope) -> bool:
        """True if it has *scope*; `admin` includes every other one."""
        return scope in self.may or self.is_admin

    @property
    def is_admin(self) -> bool:
        """True if it may do everything, also with what belongs to other principals."""
        return "admin" in self.may

    def kind_of(self, asked: Kind) -> Kind:
        """What a client of it is that calls itself *asked*."""
        return "agent" if self.kind == "agent" else asked

    def narrowed(self, may: Iterable[Scope]) -> Principal:
        """The same principal with those of its scopes that are among *may*."""
        kept = frozenset(scope for scope in may if self.has(scope))
        return msgspec.structs.replace(self, may=kept)


def unrestricted(name: str) -> Principal:
    """A principal that may do everything, as the bearer of the server's only token may."""
    return Principal(name=name)


def check_name(name: str) -> str:
    """*name*, if it can name a principal of a file. Raises ValueError."""
    if not re.fullmatch(_NAME, name):
        raise ValueError(
            f"`{name}` cannot name a principal: use letters, digits and . _ @ -, at most 63"
        )
    if name == TOKEN_BEARER:
        raise ValueError(f"`{name}` is the name of those who use --ws-token-file; choose another")
    return name


def read_scopes(text: str) -> frozenset[Scope]:
    """The scopes in a text such as `exec,files:read`; `all` is every one. Raises ValueError."""
    words = [word.strip() for word in text.split(",")]
    if words == ["all"]:
        return SCOPES
    found = known_scopes(words)
    for word in words:
        if word not in found:
            raise ValueError(f"`{word}` is no scope; there are {', '.join(get_args(Scope))}")
    return found


def known_scopes(words: Iterable[str]) -> frozenset[Scope]:
    """Those of *words* that are scopes."""
    given = frozenset(words)
    return frozenset(scope for scope in SCOPES if scope in given)


def in_order(scopes: Iterable[Scope]) -> list[Scope]:
    """*scopes* in the order in which they are always shown."""
    given = frozenset(scopes)
    return [scope for scope in get_args(Scope) if scope in given]

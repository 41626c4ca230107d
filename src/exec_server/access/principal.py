"""A principal: who a connection belongs to, what it may do, and the floors it cannot lift."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from exec_server.protocol.resources import ResourceLimits

Scope = Literal["exec", "files:read", "files:write", "http", "admin"]
SCOPES: frozenset[Scope] = frozenset(get_args(Scope))


class SandboxFloor(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The widest sandbox that a principal's commands and file calls may have."""

    kind: Literal["read-only", "workspace-write"]
    folders: tuple[str, ...] = ()
    network: bool = False


class Floors(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
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


class Quotas(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
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
    floors: Floors = Floors()
    quotas: Quotas = Quotas()

    def has(self, scope: Scope) -> bool:
        return scope in self.may

    @property
    def is_admin(self) -> bool:
        return "admin" in self.may


def unrestricted(name: str) -> Principal:
    """A principal that may do everything, as the bearer of the server's only token may."""
    return Principal(name=name)

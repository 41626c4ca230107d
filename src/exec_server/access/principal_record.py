"""One principal with its credentials, as the file of principals keeps it."""

from __future__ import annotations

import msgspec

from exec_server.access.principal import Floors, Principal, Quotas, Scope
from exec_server.access.token_secrets import is_good
from exec_server.protocol.participants import Kind


class PrincipalRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A principal, how it proves who it is, and until when it may.

    A record of a newer release, which may know of further restrictions, is not understood.
    """

    name: str
    may: frozenset[Scope]
    floors: Floors = Floors()
    quotas: Quotas = Quotas()
    # As in `Principal`.
    kind: Kind | None = None
    # The digest of its token; None if it has none.
    digest: bytes | None = None
    # Names in client certificates: the common name, or a DNS name, address or URI among the others.
    certificates: tuple[str, ...] = ()
    # Users of this machine, who are recognized at a Unix socket.
    unix_users: tuple[str, ...] = ()
    # Subjects of signed tokens, besides its name.
    subjects: tuple[str, ...] = ()
    created_at: float
    # When its token was made.
    rotated_at: float | None = None
    expires_at: float | None = None
    revoked_at: float | None = None

    def is_good(self, now: float) -> bool:
        """True if it is neither revoked nor expired."""
        return is_good(now, expires_at=self.expires_at, revoked_at=self.revoked_at)

    @property
    def all_subjects(self) -> tuple[str, ...]:
        """The subjects of signed tokens that mean this principal."""
        return (self.name, *self.subjects)

    @property
    def principal(self) -> Principal:
        return Principal(
            name=self.name, may=self.may, floors=self.floors, quotas=self.quotas, kind=self.kind
        )


class LastUse(msgspec.Struct, frozen=True):
    """When a principal has connected the last time, and from where."""

    at: float
    source: str

"""The store: the records that a registry keeps, in SQLite or PostgreSQL.

    entities.py   the records
    names.py      which names environments may have, and which patterns match them
    open_store.py opens the store that `--state` names
    sql_store.py  all statements, in the SQL that both databases share
    rows.py       turns rows into records
    batching.py   reads rows that many ask for at the same time with one statement
    ranges.py     the ranges of names that patterns can match
    disk_reserve.py  disk space for a registry whose disk is full
    sqlite.py     the engine of a single node, with its migrations
    postgres.py   the engine that several nodes share, with its migrations

`Store` is the interface. Every call is one atomic step.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from exec_server.audit.event import AuditEvent
from exec_server.errors import ExecServerError
from exec_server.hub.store.entities import (
    AccessToken,
    Authorization,
    Environment,
    ExecutorFacts,
    Pairing,
)


class StoreUnavailable(ExecServerError):
    """The database cannot be reached now. It is not known whether the call has taken effect."""

    retryable = True


class Store(Protocol):
    """Times are seconds since 1970. Secrets are passed as their SHA-256 digests.

    Any call may raise StoreUnavailable, after `Limits.hub_store_timeout` seconds at most.
    """

    async def signing_key(self) -> bytes:
        """The key of this registry. The first call makes it."""

    # Tokens.

    async def add_token(self, token: AccessToken, digest: bytes) -> None: ...

    async def tokens(self) -> list[AccessToken]: ...

    async def find_token(self, digest: bytes) -> AccessToken | None:
        """The token with this digest, even if it is revoked or expired."""

    async def token(self, token_id: str) -> AccessToken | None: ...

    async def tokens_for(self, environment_id: str, *, now: float) -> list[AccessToken]:
        """Good tokens with a pattern that may match the name. The caller has to check it."""

    async def note_use(self, token: AccessToken, *, now: float, address: str) -> None:
        """Keep when and from where a token was used last, to the minute."""

    async def bind_token(
        self, token: AccessToken, environment_id: str, *, now: float, address: str = ""
    ) -> bool:
        """Use a token for an environment; False if it is for one only and was used for another.

        *token* was read a moment ago. The time of its last use is kept to the minute.
        """

    async def revoke_token(self, token_id: str, *, now: float) -> bool:
        """Revoke a token; False if there is none that is not revoked."""

    async def ended_tokens(self, token_ids: Collection[str], *, now: float) -> set[str]:
        """Those of *token_ids* that are revoked, expired or unknown."""

    # Environments.

    async def count_environments(self) -> int:
        """The number of environments that are registered, connected or not."""

    async def register(
        self,
        environment_id: str,
        *,
        registration_id: str,
        executor_key: str | None,
        token: AccessToken,
        facts: ExecutorFacts,
        now: float,
    ) -> int | None:
        """Make this the newest registration and return its generation.

        Returns None if the name belongs to another principal whose token is still good.
        """

    async def set_facts(
        self, environment_id: str, *, registration_id: str, facts: ExecutorFacts
    ) -> bool:
        """Keep the facts; False if this is not the newest registration."""

    async def environment(self, environment_id: str) -> Environment | None: ...

    async def environments(
        self, patterns: Collection[str], *, after: str = "", limit: int
    ) -> list[Environment]:
        """The first *limit* environments after the name *after* that match a pattern, by name.

        Names that begin unlike all patterns are not read.
        """

    # Authorizations.

    async def add_authorization(self, authorization: Authorization, digest: bytes) -> None: ...

    async def open_authorization(self, authorization_id: str, *, now: float) -> bool:
        """Use the authorization for its one socket; False if that was done or it has expired."""

    async def use_authorization(
        self, digest: bytes, *, registration_id: str, harness_key: str, now: float
    ) -> Authorization | None:
        """Use the authorization for its one handshake.

        Returns None if that was done, it has expired, or the key or registration is another one.
        """

    # Audit events.

    async def add_events(self, events: Sequence[AuditEvent]) -> None:
        """Keep all of the events or none. StoreUnavailable if the disk is full."""

    async def events(
        self,
        *,
        environment_id: str | None = None,
        principal: str | None = None,
        since: float = 0.0,
        limit: int = 100,
    ) -> list[AuditEvent]:
        """Events, the newest first."""

    # Pairing.

    async def add_pairing(
        self, pairing: Pairing, *, most: int, now: float, of_token: int | None = None
    ) -> bool:
        """Keep a code; False if *most* wait already, or *of_token* of the same token.

        Nodes that call this at the same moment may exceed the limits by one each.
        """

    async def take_pairing(self, digest: bytes, *, now: float) -> Pairing | None:
        """Use a code. Its record is kept a minute longer, so that the offering machine sees it."""

    async def drop_pairing(self, digest: bytes) -> bool:
        """Remove a code; False if there is none or it was used."""

    async def reply_to_pairing(self, digest: bytes, reply: str, *, now: float) -> Pairing | None:
        """Keep the reply of the machine that has used a code; None if there is one already."""

    async def pairings_of(self, environment_id: str, *, now: float) -> list[Pairing]:
        """The codes of an environment that have not expired, used or not."""

    # Housekeeping.

    async def forget(self, *, now: float, events_before: float) -> None:
        """Remove expired records in several statements, which may take longer than other calls."""

    async def close(self) -> None: ...

"""Durable facts: what any store of the registry keeps. Every call is one atomic step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from exec_server.errors import ExecServerError
from exec_server.hub.store.entities import (
    AccessToken,
    AuditEvent,
    Authorization,
    Environment,
    ExecutorFacts,
    Pairing,
)


class StoreUnavailable(ExecServerError):
    """The state cannot be reached now. What was asked for may have happened all the same."""

    retryable = True


class Store(Protocol):
    """Times are seconds since 1970; secrets come as their SHA-256 digests.

    Any call may raise StoreUnavailable, within `Limits.hub_store_timeout` of being made.
    """

    async def signing_key(self) -> bytes:
        """The key of this registry; made when it is first asked for."""

    # Tokens.

    async def add_token(self, token: AccessToken, digest: bytes) -> None: ...

    async def tokens(self) -> list[AccessToken]: ...

    async def find_token(self, digest: bytes) -> AccessToken | None:
        """Whatever its state; that is for the caller to judge."""

    async def token(self, token_id: str) -> AccessToken | None: ...

    async def tokens_for(self, environment_id: str, *, now: float) -> list[AccessToken]:
        """Good tokens of which a pattern may match that name; the caller has to look."""

    async def bind_token(self, token: AccessToken, environment_id: str, *, now: float) -> bool:
        """Use a token for an environment; False when it enrols once and has enrolled another.

        When one that may enrol many was used last is known to the minute; *token* is what was found
        just now.
        """

    async def revoke_token(self, token_id: str, *, now: float) -> bool:
        """Whether there was one to revoke."""

    async def ended_tokens(self, token_ids: Collection[str], *, now: float) -> set[str]:
        """Which of these are no longer good."""

    # Environments.

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
        """Make this the newest registration; its generation is returned.

        None when the name is another principal's, whose token is still good.
        """

    async def set_facts(
        self, environment_id: str, *, registration_id: str, facts: ExecutorFacts
    ) -> bool:
        """False when that is not the newest registration."""

    async def environment(self, environment_id: str) -> Environment | None: ...

    async def environments(
        self, patterns: Collection[str], *, after: str = "", limit: int
    ) -> list[Environment]:
        """The first *limit* by name, after that name, that fit a pattern with `*` and `?`.

        What does not begin like one of the patterns is not even looked at.
        """

    # Authorizations.

    async def add_authorization(self, authorization: Authorization, digest: bytes) -> None: ...

    async def open_authorization(self, authorization_id: str, *, now: float) -> bool:
        """Take its one socket; False when that is taken or too late."""

    async def use_authorization(
        self, digest: bytes, *, registration_id: str, harness_key: str, now: float
    ) -> Authorization | None:
        """Take its one handshake; None when that is taken, too late, or another's."""

    # What happened.

    async def add_events(self, events: Sequence[AuditEvent]) -> None:
        """All of them or none."""

    async def events(
        self,
        *,
        environment_id: str | None = None,
        principal: str | None = None,
        since: float = 0.0,
        limit: int = 100,
    ) -> list[AuditEvent]:
        """The newest first."""

    # Pairing.

    async def add_pairing(self, pairing: Pairing, *, most: int, now: float) -> bool:
        """False when too many wait already; of nodes that ask at once each may add one more."""

    async def take_pairing(self, digest: bytes, *, now: float) -> Pairing | None:
        """The code is spent afterwards; what became of it is remembered a minute longer."""

    async def drop_pairing(self, digest: bytes) -> bool:
        """Whether there was one that nobody has taken."""

    async def pairings_of(self, environment_id: str, *, now: float) -> list[Pairing]:
        """Those of a name that have not expired, taken or not."""

    # House.

    async def forget(self, *, now: float, events_before: float) -> None:
        """Drop what has expired, some at a time, which together may take longer than one call."""

    async def close(self) -> None: ...

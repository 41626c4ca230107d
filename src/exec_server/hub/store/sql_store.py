"""All statements of the registry, in the SQL that SQLite and PostgreSQL share.

Each statement is atomic, so single use also holds between nodes. In PostgreSQL a statement that
finds a row locked by another one waits for it, and then reads the row again. The module is long
because every statement stands here once, beside those it must agree with.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Awaitable, Collection, Iterable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from exec_server.audit.event import AuditEvent
from exec_server.hub.store import StoreUnavailable
from exec_server.hub.store.batching import Lookups
from exec_server.hub.store.entities import (
    AccessToken,
    Authorization,
    Environment,
    ExecutorFacts,
    Pairing,
)
from exec_server.hub.store.ranges import Span, spans
from exec_server.hub.store.rows import (
    PAIRING_FLAGS,
    Row,
    environment_of,
    pairing_of,
    record_of,
    to_json,
    token_of,
)

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_KEY_BYTES = 32
# How much longer a used code is kept, so that the offering machine can ask about it.
_CLAIMED_SECONDS = 60.0
# The precision of a token's last use.
_USED_SECONDS = 60.0
# The rows that one statement removes. Other statements wait meanwhile.
_FORGOTTEN_AT_ONCE = 5000


class Engine(Protocol):
    """A database. Statements have `?` in place of values. All calls raise StoreUnavailable."""

    # A query that returns the texts of a JSON array, which is its one value.
    listed: ClassVar[str]
    # A condition after a column: its one value is a pattern with `*` and `?`.
    fits: ClassVar[str]

    async def read(self, statement: str, values: Sequence[Any]) -> list[Row]:
        """The rows that a statement returns. The statement may also change rows."""

    async def write(self, statement: str, values: Sequence[Any]) -> int:
        """The number of rows that a statement has changed."""

    async def has_space(self) -> bool:
        """False if only what clients wait for should be written, because the disk is full."""

    async def close(self) -> None: ...


class SqlStore:
    """A `Store` in a database."""

    def __init__(self, engine: Engine, *, seconds: float) -> None:
        """*seconds* is the timeout of each call, the same as that of the engine."""
        self._engine = engine
        self._is_away = False
        self._answers = 0
        self._tokens = Lookups(self._tokens_by_id, seconds=seconds)
        self._secrets = Lookups(self._tokens_by_digest, seconds=seconds)
        self._environments = Lookups(self._environments_by_id, seconds=seconds)

    async def close(self) -> None:
        for lookups in (self._tokens, self._secrets, self._environments):
            await lookups.close()
        await self._engine.close()

    async def signing_key(self) -> bytes:
        await self._write(
            "INSERT INTO secrets (name, value) VALUES ('signing', ?) ON CONFLICT DO NOTHING",
            os.urandom(_KEY_BYTES),
        )
        rows = await self._read("SELECT value FROM secrets WHERE name = 'signing'")
        return bytes(rows[0]["value"])

    # Tokens.

    async def add_token(self, token: AccessToken, digest: bytes) -> None:
        row = {
            **msgspec.structs.asdict(token),
            "rights": to_json(token.rights),
            "patterns": to_json(token.patterns),
            "is_once": int(token.is_once),
            "digest": digest,
        }
        await self._insert("tokens", [row])

    async def tokens(self) -> list[AccessToken]:
        rows = await self._read("SELECT * FROM tokens ORDER BY created_at, id")
        return [token_of(row) for row in rows]

    async def find_token(self, digest: bytes) -> AccessToken | None:
        return await self._secrets.find(digest)

    async def token(self, token_id: str) -> AccessToken | None:
        return await self._tokens.find(token_id)

    async def tokens_for(self, environment_id: str, *, now: float) -> list[AccessToken]:
        rows = await self._read(
            "SELECT * FROM tokens WHERE revoked_at IS NULL"
            " AND (expires_at IS NULL OR expires_at > ?)"
            " AND (patterns LIKE ? OR patterns LIKE ? OR patterns LIKE ?)",
            now,
            f'%"{environment_id}"%',
            "%*%",
            "%?%",
        )
        return [token_of(row) for row in rows]

    async def note_use(self, token: AccessToken, *, now: float, address: str) -> None:
        if not _was_used_just_now(token, now):
            statement = "UPDATE tokens SET last_used_at = ?, last_used_from = ? WHERE id = ?"
            await self._write(statement, now, address, token.id)

    async def bind_token(
        self, token: AccessToken, environment_id: str, *, now: float, address: str = ""
    ) -> bool:
        if not token.is_once and _was_used_just_now(token, now):
            return True
        changed = await self._write(
            "UPDATE tokens SET last_used_at = ?, last_used_from = ?,"
            " bound_to = CASE is_once WHEN 1 THEN ? END"
            " WHERE id = ? AND (is_once = 0 OR bound_to IS NULL OR bound_to = ?)",
            now,
            address,
            environment_id,
            token.id,
            environment_id,
        )
        return changed == 1

    async def revoke_token(self, token_id: str, *, now: float) -> bool:
        statement = "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL"
        return await self._write(statement, now, token_id) == 1

    async def ended_tokens(self, token_ids: Collection[str], *, now: float) -> set[str]:
        # All ids are one value, and only the few ended ones come back as rows. This runs every
        # second for thousands of ids.
        rows = await self._read(
            f"WITH given (id) AS ({self._engine.listed}) SELECT given.id FROM given"
            " LEFT JOIN tokens ON tokens.id = given.id AND tokens.revoked_at IS NULL"
            " AND (tokens.expires_at IS NULL OR tokens.expires_at > ?) WHERE tokens.id IS NULL",
            to_json(list(token_ids)),
            now,
        )
        return {row["id"] for row in rows}

    # Environments.

    async def count_environments(self) -> int:
        rows = await self._read("SELECT count(*) AS count FROM environments")
        return int(rows[0]["count"])

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
        rows = await self._read(
            "INSERT INTO environments (id, registration_id, generation, executor_key, token_id,"
            " principal, registered_at, facts) VALUES (?, ?, 1, ?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET registration_id = excluded.registration_id,"
            " generation = environments.generation + 1, executor_key = excluded.executor_key,"
            " token_id = excluded.token_id, principal = excluded.principal,"
            " registered_at = excluded.registered_at, facts = excluded.facts"
            " WHERE environments.principal = excluded.principal OR NOT EXISTS (SELECT 1 FROM tokens"
            " WHERE id = environments.token_id AND revoked_at IS NULL"
            " AND (expires_at IS NULL OR expires_at > ?)) RETURNING generation",
            environment_id,
            registration_id,
            executor_key,
            token.id,
            token.principal,
            now,
            to_json(facts),
            now,
        )
        return int(rows[0]["generation"]) if rows else None

    async def set_facts(
        self, environment_id: str, *, registration_id: str, facts: ExecutorFacts
    ) -> bool:
        changed = await self._write(
            "UPDATE environments SET facts = ? WHERE id = ? AND registration_id = ?",
            to_json(facts),
            environment_id,
            registration_id,
        )
        return changed == 1

    async def environment(self, environment_id: str) -> Environment | None:
        return await self._environments.find(environment_id)

    async def environments(
        self, patterns: Collection[str], *, after: str = "", limit: int
    ) -> list[Environment]:
        left = [span for span in spans(patterns) if span.last > after]
        if not left:
            return []
        # Each part follows the index and stops at its limit.
        parts, values = zip(*(self._span(span, after, limit) for span in left), strict=True)
        statement = f"{' UNION ALL '.join(parts)} ORDER BY id LIMIT ?"
        rows = await self._read(statement, *itertools.chain(*values), limit)
        return [environment_of(row) for row in rows]

    def _span(self, span: Span, after: str, limit: int) -> tuple[str, list[Any]]:
        is_begun = after >= span.first
        fits = " OR ".join(f"id {self._engine.fits}" for _ in span.patterns)
        return (
            f"SELECT * FROM (SELECT * FROM environments WHERE id {'>' if is_begun else '>='} ?"
            f" AND id <= ? AND ({fits}) ORDER BY id LIMIT ?) AS span",
            [after if is_begun else span.first, span.last, *span.patterns, limit],
        )

    # Authorizations.

    async def add_authorization(self, authorization: Authorization, digest: bytes) -> None:
        row = {**msgspec.structs.asdict(authorization), "digest": digest}
        await self._insert("authorizations", [row])

    async def open_authorization(self, authorization_id: str, *, now: float) -> bool:
        changed = await self._write(
            "UPDATE authorizations SET opened_at = ?"
            " WHERE id = ? AND opened_at IS NULL AND expires_at > ?",
            now,
            authorization_id,
            now,
        )
        return changed == 1

    async def use_authorization(
        self, digest: bytes, *, registration_id: str, harness_key: str, now: float
    ) -> Authorization | None:
        rows = await self._read(
            "UPDATE authorizations SET used_at = ? WHERE digest = ? AND used_at IS NULL"
            " AND expires_at > ? AND registration_id = ? AND harness_key = ? RETURNING *",
            now,
            digest,
            now,
            registration_id,
            harness_key,
        )
        return record_of(Authorization, rows[0]) if rows else None

    # Audit events.

    async def add_events(self, events: Sequence[AuditEvent]) -> None:
        if not await self._engine.has_space():
            raise StoreUnavailable("the disk is full")
        await self._insert("events", [msgspec.structs.asdict(event) for event in events])

    async def events(
        self,
        *,
        environment_id: str | None = None,
        principal: str | None = None,
        since: float = 0.0,
        limit: int = 100,
    ) -> list[AuditEvent]:
        wanted = {"environment_id": environment_id, "principal": principal}
        given = {name: value for name, value in wanted.items() if value is not None}
        conditions = " AND ".join(["at >= ?", *(f"{name} = ?" for name in given)])
        rows = await self._read(
            f"SELECT * FROM events WHERE {conditions} ORDER BY at DESC, rowid DESC LIMIT ?",
            since,
            *given.values(),
            limit,
        )
        return [record_of(AuditEvent, row) for row in rows]

    # Pairing.

    async def add_pairing(
        self, pairing: Pairing, *, most: int, now: float, of_token: int | None = None
    ) -> bool:
        row = msgspec.structs.asdict(pairing)
        row.update({name: int(row[name]) for name in PAIRING_FLAGS})
        changed = await self._write(
            f"INSERT INTO pairings ({', '.join(row)}) SELECT {_marks(row)}"
            " WHERE (SELECT count(*) FROM pairings WHERE expires_at > ?) < ?"
            " AND (SELECT count(*) FROM pairings WHERE expires_at > ? AND token_id = ?) < ?",
            *row.values(),
            now,
            most,
            now,
            pairing.token_id,
            most if of_token is None else of_token,
        )
        return changed == 1

    async def take_pairing(self, digest: bytes, *, now: float) -> Pairing | None:
        rows = await self._read(
            "UPDATE pairings SET claimed_at = ?, expires_at = expires_at + ?"
            " WHERE digest = ? AND expires_at > ? AND claimed_at IS NULL RETURNING *",
            now,
            _CLAIMED_SECONDS,
            digest,
            now,
        )
        return pairing_of(rows[0]) if rows else None

    async def drop_pairing(self, digest: bytes) -> bool:
        statement = "DELETE FROM pairings WHERE digest = ? AND claimed_at IS NULL"
        return await self._write(statement, digest) == 1

    async def reply_to_pairing(self, digest: bytes, reply: str, *, now: float) -> Pairing | None:
        rows = await self._read(
            "UPDATE pairings SET reply = ? WHERE digest = ? AND expires_at > ?"
            " AND claimed_at IS NOT NULL AND reply = '' RETURNING *",
            reply,
            digest,
            now,
        )
        return pairing_of(rows[0]) if rows else None

    async def pairings_of(self, environment_id: str, *, now: float) -> list[Pairing]:
        rows = await self._read(
            "SELECT * FROM pairings WHERE environment_id = ? AND expires_at > ?",
            environment_id,
            now,
        )
        return [pairing_of(row) for row in rows]

    # Housekeeping.

    async def forget(self, *, now: float, events_before: float) -> None:
        await self._forget("authorizations", "id", "expires_at", now)
        await self._forget("pairings", "digest", "expires_at", now)
        await self._forget("events", "rowid", "at", events_before)

    async def _forget(self, table: str, key: str, time: str, before: float) -> None:
        """Remove rows in portions, because millions at once would exceed the timeout each time."""
        statement = (
            f"DELETE FROM {table} WHERE {key} IN"
            f" (SELECT {key} FROM {table} WHERE {time} < ? ORDER BY {time} LIMIT ?)"
        )
        while await self._write(statement, before, _FORGOTTEN_AT_ONCE) == _FORGOTTEN_AT_ONCE:
            pass

    # Rows by their keys.

    async def _tokens_by_id(self, ids: Collection[str]) -> dict[str, AccessToken]:
        return {row["id"]: token_of(row) for row in await self._rows_of("tokens", "id", ids)}

    async def _tokens_by_digest(self, digests: Collection[bytes]) -> dict[bytes, AccessToken]:
        rows = await self._rows_of("tokens", "digest", digests)
        return {bytes(row["digest"]): token_of(row) for row in rows}

    async def _environments_by_id(self, ids: Collection[str]) -> dict[str, Environment]:
        rows = await self._rows_of("environments", "id", ids)
        return {row["id"]: environment_of(row) for row in rows}

    async def _rows_of(self, table: str, column: str, keys: Collection[Any]) -> list[Row]:
        statement = f"SELECT * FROM {table} WHERE {column} IN ({_marks(keys)})"
        return await self._read(statement, *keys)

    # Statements.

    async def _insert(self, table: str, rows: Sequence[Row]) -> None:
        names = ", ".join(rows[0])
        marks = ", ".join(f"({_marks(row)})" for row in rows)
        values = itertools.chain.from_iterable(row.values() for row in rows)
        await self._write(f"INSERT INTO {table} ({names}) VALUES {marks}", *values)

    async def _write(self, statement: str, *values: Any) -> int:
        return await self._watched(self._engine.write(statement, values))

    async def _read(self, statement: str, *values: Any) -> list[Row]:
        return await self._watched(self._engine.read(statement, values))

    async def _watched(self, work: Awaitable[_T]) -> _T:
        """Log the beginning and the end of an outage, once each for all callers."""
        before = self._answers
        try:
            answer = await work
        except StoreUnavailable as exc:
            if before != self._answers:
                # Another call has succeeded meanwhile, so this is no outage, or it is over.
                logger.info("a statement failed: %s", exc)
            elif not self._is_away:
                self._is_away = True
                logger.warning("the registry's state is away: %s", exc)
            raise
        self._answers += 1
        if self._is_away:
            self._is_away = False
            logger.warning("the registry's state is back")
        return answer


def _was_used_just_now(token: AccessToken, now: float) -> bool:
    """True if the use need not be written.

    Thousands of executors may share a token, and writes to one row wait for each other.
    """
    return token.last_used_at is not None and token.last_used_at > now - _USED_SECONDS


def _marks(values: Iterable[Any]) -> str:
    return ", ".join("?" for _ in values)

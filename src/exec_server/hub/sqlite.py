"""The store of one node: a SQLite file.

The standard library's driver runs in one thread of its own, so statements queue up there and the
loop never waits for the disk. Each is atomic by itself, and hardly differs in PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from exec_server.errors import ConfigurationError
from exec_server.hub.records import Authorization, Environment, Event, Facts, Pairing, Token

_T = TypeVar("_T")
_S = TypeVar("_S", bound=msgspec.Struct)

_KEY_BYTES = 32
# How long another process may hold the file, such as `registry token revoke`.
_BUSY_SECONDS = 10.0

# Applied in order, each once; `user_version` counts them. Never change one that was released.
MIGRATIONS = (
    """
    CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL);
    CREATE TABLE tokens (
        id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, principal TEXT NOT NULL,
        rights TEXT NOT NULL, patterns TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL,
        is_once INTEGER NOT NULL, bound_to TEXT, revoked_at REAL, last_used_at REAL
    );
    CREATE TABLE environments (
        id TEXT PRIMARY KEY, registration_id TEXT NOT NULL, generation INTEGER NOT NULL,
        executor_key TEXT, token_id TEXT NOT NULL, principal TEXT NOT NULL,
        registered_at REAL NOT NULL, facts TEXT NOT NULL
    );
    CREATE TABLE authorizations (
        id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, environment_id TEXT NOT NULL,
        registration_id TEXT NOT NULL, harness_key TEXT NOT NULL, token_id TEXT NOT NULL,
        expires_at REAL NOT NULL, opened_at REAL, used_at REAL
    );
    CREATE INDEX authorizations_expire ON authorizations (expires_at);
    CREATE TABLE events (
        at REAL NOT NULL, name TEXT NOT NULL, principal TEXT NOT NULL, token_id TEXT NOT NULL,
        environment_id TEXT NOT NULL, address TEXT NOT NULL, detail TEXT NOT NULL
    );
    CREATE INDEX events_at ON events (at);
    CREATE INDEX events_of ON events (environment_id, at);
    CREATE TABLE pairings (
        digest BLOB PRIMARY KEY, environment_id TEXT NOT NULL, token_id TEXT NOT NULL,
        principal TEXT NOT NULL, expires_at REAL NOT NULL, fingerprint TEXT NOT NULL,
        proof TEXT NOT NULL
    );
    """,
)


class SqliteStore:
    """A `Store` in the file at *path*, which only its owner can read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry store")

    @classmethod
    async def open(cls, path: str) -> SqliteStore:
        """ConfigurationError when the file is not ours to use."""
        store = cls(path)
        try:
            store._db = await store._in_thread(lambda: _connect(path))
        except (sqlite3.Error, OSError) as exc:
            store._thread.shutdown()
            raise ConfigurationError(f"cannot open the registry's state {path}: {exc}") from exc
        except ConfigurationError:
            store._thread.shutdown()
            raise
        return store

    _db: sqlite3.Connection

    async def close(self) -> None:
        await self._in_thread(lambda: self._db.close())
        self._thread.shutdown()

    async def signing_key(self) -> bytes:
        await self._write(
            "INSERT INTO secrets VALUES ('signing', ?) ON CONFLICT DO NOTHING",
            os.urandom(_KEY_BYTES),
        )
        rows = await self._read("SELECT value FROM secrets WHERE name = 'signing'")
        return bytes(rows[0]["value"])

    # Tokens.

    async def add_token(self, token: Token, digest: bytes) -> None:
        await self._insert(
            "tokens",
            {
                **msgspec.structs.asdict(token),
                "rights": _json(token.rights),
                "patterns": _json(token.patterns),
                "is_once": int(token.is_once),
                "digest": digest,
            },
        )

    async def tokens(self) -> list[Token]:
        rows = await self._read("SELECT * FROM tokens ORDER BY created_at, id")
        return [_token(row) for row in rows]

    async def find_token(self, digest: bytes) -> Token | None:
        rows = await self._read("SELECT * FROM tokens WHERE digest = ?", digest)
        return _token(rows[0]) if rows else None

    async def token(self, token_id: str) -> Token | None:
        rows = await self._read("SELECT * FROM tokens WHERE id = ?", token_id)
        return _token(rows[0]) if rows else None

    async def bind_token(self, token_id: str, environment_id: str, *, now: float) -> bool:
        changed = await self._write(
            "UPDATE tokens SET last_used_at = ?, bound_to = CASE is_once WHEN 1 THEN ? END"
            " WHERE id = ? AND (is_once = 0 OR bound_to IS NULL OR bound_to = ?)",
            now,
            environment_id,
            token_id,
            environment_id,
        )
        return changed == 1

    async def revoke_token(self, token_id: str, *, now: float) -> bool:
        statement = "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL"
        return await self._write(statement, now, token_id) == 1

    async def ended_tokens(self, token_ids: Collection[str], *, now: float) -> set[str]:
        rows = await self._read(
            "SELECT value FROM json_each(?) WHERE NOT EXISTS (SELECT 1 FROM tokens WHERE id = value"
            " AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?))",
            _json(list(token_ids)),
            now,
        )
        return {row["value"] for row in rows}

    # Environments.

    async def register(
        self,
        environment_id: str,
        *,
        registration_id: str,
        executor_key: str | None,
        token: Token,
        facts: Facts,
        now: float,
    ) -> int | None:
        rows = await self._read(
            "INSERT INTO environments VALUES (?, ?, 1, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
            " SET registration_id = excluded.registration_id,"
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
            _json(facts),
            now,
        )
        return int(rows[0]["generation"]) if rows else None

    async def set_facts(self, environment_id: str, *, registration_id: str, facts: Facts) -> bool:
        changed = await self._write(
            "UPDATE environments SET facts = ? WHERE id = ? AND registration_id = ?",
            _json(facts),
            environment_id,
            registration_id,
        )
        return changed == 1

    async def environment(self, environment_id: str) -> Environment | None:
        rows = await self._read("SELECT * FROM environments WHERE id = ?", environment_id)
        return _environment(rows[0]) if rows else None

    async def environments(self) -> list[Environment]:
        rows = await self._read("SELECT * FROM environments ORDER BY id")
        return [_environment(row) for row in rows]

    # Authorizations.

    async def add_authorization(self, authorization: Authorization, digest: bytes) -> None:
        values = msgspec.structs.asdict(authorization)
        await self._insert("authorizations", {**values, "digest": digest})

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
        return _record(Authorization, rows[0]) if rows else None

    # What happened.

    async def add_event(self, event: Event) -> None:
        await self._insert("events", msgspec.structs.asdict(event))

    async def events(
        self,
        *,
        environment_id: str | None = None,
        principal: str | None = None,
        since: float = 0.0,
        limit: int = 100,
    ) -> list[Event]:
        rows = await self._read(
            "SELECT * FROM events WHERE at >= ? AND (? IS NULL OR environment_id = ?)"
            " AND (? IS NULL OR principal = ?) ORDER BY at DESC LIMIT ?",
            since,
            environment_id,
            environment_id,
            principal,
            principal,
            limit,
        )
        return [_record(Event, row) for row in rows]

    # Pairing.

    async def add_pairing(self, pairing: Pairing, *, most: int, now: float) -> bool:
        changed = await self._write(
            "INSERT INTO pairings SELECT ?, ?, ?, ?, ?, ?, ?"
            " WHERE (SELECT count(*) FROM pairings WHERE expires_at > ?) < ?",
            *msgspec.structs.astuple(pairing),
            now,
            most,
        )
        return changed == 1

    async def take_pairing(self, digest: bytes, *, now: float) -> Pairing | None:
        rows = await self._read(
            "DELETE FROM pairings WHERE digest = ? AND expires_at > ? RETURNING *", digest, now
        )
        return _record(Pairing, rows[0]) if rows else None

    # House.

    async def forget(self, *, now: float, events_before: float) -> None:
        await self._write("DELETE FROM authorizations WHERE expires_at < ?", now)
        await self._write("DELETE FROM pairings WHERE expires_at < ?", now)
        await self._write("DELETE FROM events WHERE at < ?", events_before)

    # Statements.

    async def _insert(self, table: str, values: dict[str, Any]) -> None:
        marks = ", ".join("?" * len(values))
        await self._write(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", *values.values()
        )

    async def _write(self, statement: str, *values: Any) -> int:
        """How many rows have changed."""
        return await self._in_thread(lambda: self._db.execute(statement, values).rowcount)

    async def _read(self, statement: str, *values: Any) -> Sequence[sqlite3.Row]:
        return await self._in_thread(lambda: self._db.execute(statement, values).fetchall())

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _connect(path: str) -> sqlite3.Connection:
    # Nobody else may read it, not even between its creation and a chmod.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    # Without isolation_level each statement is its own transaction, committed when it returns.
    db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    try:
        db.execute("PRAGMA journal_mode = WAL")
        # In WAL mode this loses nothing when the process is killed.
        db.execute("PRAGMA synchronous = NORMAL")
        _migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _migrate(db: sqlite3.Connection, path: str) -> None:
    # Nobody else migrates meanwhile; the version is read inside.
    db.execute("BEGIN IMMEDIATE")
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise ConfigurationError(f"the registry's state {path} is of a newer version")
        for script in MIGRATIONS[version:]:
            for statement in filter(str.strip, script.split(";")):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _record(kind: type[_S], row: sqlite3.Row) -> _S:
    return msgspec.convert({name: row[name] for name in kind.__struct_fields__}, kind)


def _token(row: sqlite3.Row) -> Token:
    values = {name: row[name] for name in Token.__struct_fields__}
    values["rights"] = msgspec.json.decode(row["rights"])
    values["patterns"] = msgspec.json.decode(row["patterns"])
    values["is_once"] = bool(row["is_once"])
    return msgspec.convert(values, Token)


def _environment(row: sqlite3.Row) -> Environment:
    values = {name: row[name] for name in Environment.__struct_fields__}
    values["facts"] = msgspec.json.decode(row["facts"])
    return msgspec.convert(values, Environment)

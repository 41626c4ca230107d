"""The engine of a single node: a SQLite file.

The driver of the standard library runs in a thread of its own. Statements queue up there, so the
event loop never waits for the disk. Each statement is a transaction.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, TypeVar

from exec_server.errors import ConfigurationError
from exec_server.hub.store import StoreUnavailable
from exec_server.hub.store.disk_reserve import DiskReserve

_T = TypeVar("_T")

# Migrations are applied in order, each once; `user_version` counts them. A migration that was
# released must never change.
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
    """
    ALTER TABLE pairings ADD COLUMN ticket BLOB NOT NULL DEFAULT x'';
    ALTER TABLE pairings ADD COLUMN is_open INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE pairings ADD COLUMN serves INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE pairings ADD COLUMN claimed_at REAL;
    """,
    """
    ALTER TABLE pairings ADD COLUMN reply TEXT NOT NULL DEFAULT '';
    """,
    """
    ALTER TABLE tokens ADD COLUMN label TEXT NOT NULL DEFAULT '';
    ALTER TABLE tokens ADD COLUMN last_used_from TEXT NOT NULL DEFAULT '';
    """,
)


class SqliteEngine:
    """Runs statements on the file at *path*, which only its owner can read."""

    listed: ClassVar[str] = "SELECT value FROM json_each(?)"
    fits: ClassVar[str] = "GLOB ?"

    def __init__(self, path: str, *, seconds: float) -> None:
        self._path = path
        self._reserve: DiskReserve | None = None
        self._seconds = seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry store")

    @classmethod
    async def open(cls, path: str, *, seconds: float, has_reserve: bool = False) -> SqliteEngine:
        """Open the file; *seconds* is the timeout of each statement.

        With *has_reserve*, disk space is set aside for the time when the disk is full.

        Raises ConfigurationError if the file cannot be used.
        """
        engine = cls(path, seconds=seconds)
        try:
            engine._db = await engine._in_thread(lambda: _connect(path, seconds))
            if has_reserve:
                engine._reserve = await engine._in_thread(lambda: DiskReserve(path))
        except (sqlite3.Error, OSError) as exc:
            engine._thread.shutdown()
            why = "the disk is full" if _is_full(exc) else exc
            raise ConfigurationError(f"cannot open the registry's state {path}: {why}") from exc
        except ConfigurationError:
            engine._thread.shutdown()
            raise
        return engine

    _db: sqlite3.Connection

    async def close(self) -> None:
        await self._in_thread(lambda: self._db.close())
        self._thread.shutdown()

    async def write(self, statement: str, values: Sequence[Any]) -> int:
        return await self._in_time(lambda: self._run(statement, values)[1])

    async def read(self, statement: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        rows, _ = await self._in_time(lambda: self._run(statement, values))
        return [dict(row) for row in rows]

    def _run(self, statement: str, values: Sequence[Any]) -> tuple[list[sqlite3.Row], int]:
        """The rows that a statement returns, and the number of those that it has changed."""
        try:
            return self._run_once(statement, values)
        except sqlite3.OperationalError as exc:
            # Full disks are also reported as failed writes, of one of SQLite's other files.
            kind = exc.sqlite_errorcode & 0xFF
            is_full = kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
            if not is_full or self._reserve is None or not self._reserve.release():
                raise
        return self._run_once(statement, values)

    def _run_once(self, statement: str, values: Sequence[Any]) -> tuple[list[sqlite3.Row], int]:
        cursor = self._db.execute(statement, values)
        return cursor.fetchall(), cursor.rowcount

    async def has_space(self) -> bool:
        reserve = self._reserve
        return reserve is None or not reserve.is_released or await self._in_time(reserve.restore)

    async def _in_time(self, work: Callable[[], _T]) -> _T:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._in_thread(work)
        except TimeoutError:
            raise StoreUnavailable(f"{self._path} is too slow") from None
        except sqlite3.OperationalError as exc:
            why = "the disk is full" if _is_full(exc) else exc
            raise StoreUnavailable(f"cannot use the registry's state {self._path}: {why}") from exc

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _connect(path: str, busy_seconds: float) -> sqlite3.Connection:
    # Other users must never be able to read it, so it is created with its final mode.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    # Without isolation_level each statement is a transaction, committed when it returns. Another
    # process, such as `registry token revoke`, may lock the file for a while.
    db = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    try:
        db.execute("PRAGMA journal_mode = WAL")
        # In WAL mode this setting loses nothing if the process is killed.
        db.execute("PRAGMA synchronous = NORMAL")
        _migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _migrate(db: sqlite3.Connection, path: str) -> None:
    # The lock keeps other processes from migrating, so the version is read inside of it.
    db.execute("BEGIN IMMEDIATE")
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise ConfigurationError(f"the registry's state {path} is of a newer version")
        for script in MIGRATIONS[version:]:
            for statement in filter(str.strip, script.split(";")):
                db.execute(statement)
        if version < len(MIGRATIONS):
            db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        db.execute("COMMIT")
    except BaseException:
        # After some errors, such as a full disk, SQLite has rolled back itself.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _is_full(exc: BaseException) -> bool:
    if isinstance(exc, OSError):
        return exc.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL

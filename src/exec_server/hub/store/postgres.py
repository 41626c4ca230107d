"""The engine that several nodes share: a PostgreSQL database.

Statements run on a few connections of a pool. Each statement is a transaction. If the server is
gone, a call tries to connect for a while, so that a quick restart is only a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import psycopg
from psycopg import conninfo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from exec_server.errors import ConfigurationError
from exec_server.hub.store import StoreUnavailable

Connection: TypeAlias = psycopg.AsyncConnection[dict[str, Any]]

_CONNECTIONS = 8
# How many statements may wait for a connection. A healthy registry never has more.
_WAITING = 4096
# The interval between attempts to connect while a statement waits.
_KNOCKING_SECONDS = 0.5
# Shares of a call's timeout: for a connection, and for the statement at the server. The server
# gives up before we do, so a call that has failed takes no effect later.
_WAITING_SHARE = 0.5
_STATEMENT_SHARE = 0.4
# A node may have to wait until another one has migrated.
_MIGRATION_SECONDS = 120.0
# The number of our advisory lock: "exec" in ASCII.
_MIGRATION_LOCK = 0x65786563
# Defaults for libpq, which the URL may override. They let us notice a machine that is gone.
_DEFAULTS = {
    "fallback_application_name": "exec-server registry",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}
# The errors of a server that is not there, or cannot work now (such as a read-only one).
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)

# Migrations are applied in order, each once; `registry_version` counts them. A migration that was
# released must never change.
MIGRATIONS = (
    """
    CREATE TABLE secrets (name TEXT PRIMARY KEY, value BYTEA NOT NULL);
    CREATE TABLE tokens (
        id TEXT PRIMARY KEY, digest BYTEA NOT NULL UNIQUE, principal TEXT NOT NULL,
        rights TEXT NOT NULL, patterns TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
        expires_at DOUBLE PRECISION, is_once INTEGER NOT NULL, bound_to TEXT,
        revoked_at DOUBLE PRECISION, last_used_at DOUBLE PRECISION
    );
    CREATE TABLE environments (
        id TEXT COLLATE "C" PRIMARY KEY, registration_id TEXT NOT NULL, generation BIGINT NOT NULL,
        executor_key TEXT, token_id TEXT NOT NULL, principal TEXT NOT NULL,
        registered_at DOUBLE PRECISION NOT NULL, facts TEXT NOT NULL
    );
    CREATE TABLE authorizations (
        id TEXT PRIMARY KEY, digest BYTEA NOT NULL UNIQUE, environment_id TEXT NOT NULL,
        registration_id TEXT NOT NULL, harness_key TEXT NOT NULL, token_id TEXT NOT NULL,
        expires_at DOUBLE PRECISION NOT NULL, opened_at DOUBLE PRECISION, used_at DOUBLE PRECISION
    );
    CREATE INDEX authorizations_expire ON authorizations (expires_at);
    CREATE TABLE events (
        rowid BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at DOUBLE PRECISION NOT NULL,
        name TEXT NOT NULL, principal TEXT NOT NULL, token_id TEXT NOT NULL,
        environment_id TEXT NOT NULL, address TEXT NOT NULL, detail TEXT NOT NULL
    );
    CREATE INDEX events_at ON events (at);
    CREATE INDEX events_of ON events (environment_id, at);
    CREATE TABLE pairings (
        digest BYTEA PRIMARY KEY, environment_id TEXT NOT NULL, token_id TEXT NOT NULL,
        principal TEXT NOT NULL, expires_at DOUBLE PRECISION NOT NULL, fingerprint TEXT NOT NULL,
        proof TEXT NOT NULL
    );
    """,
    """
    ALTER TABLE pairings ADD COLUMN ticket BYTEA NOT NULL DEFAULT '';
    ALTER TABLE pairings ADD COLUMN is_open INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE pairings ADD COLUMN serves INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE pairings ADD COLUMN claimed_at DOUBLE PRECISION;
    """,
    """
    ALTER TABLE pairings ADD COLUMN reply TEXT NOT NULL DEFAULT '';
    """,
    """
    ALTER TABLE tokens ADD COLUMN label TEXT NOT NULL DEFAULT '';
    ALTER TABLE tokens ADD COLUMN last_used_from TEXT NOT NULL DEFAULT '';
    """,
)


class PostgresEngine:
    """Runs statements on a database; *options* are those of libpq, perhaps with a password."""

    listed: ClassVar[str] = "SELECT json_array_elements_text(CAST(? AS json))"
    # This turns `*` and `?` into `%` and `_`. These characters are written as codes here, because
    # otherwise psycopg and `_native` would take them for places of values.
    fits: ClassVar[str] = (
        r"LIKE translate(replace(CAST(? AS text), '_', '\_'), '*' || chr(63), chr(37) || '_')"
    )

    async def has_space(self) -> bool:
        return True

    def __init__(self, options: dict[str, Any], *, seconds: float) -> None:
        self._seconds = seconds
        self._pool = AsyncConnectionPool(
            connection_class=psycopg.AsyncConnection[dict[str, Any]],
            kwargs=options,
            min_size=1,
            max_size=_CONNECTIONS,
            max_waiting=_WAITING,
            configure=self._configure,
            name="registry store",
            # `_take` repeats its attempts itself. The pool would do it with growing pauses.
            reconnect_timeout=0,
            open=False,
        )
        # The pool logs each failed attempt; the store logs the outage once.
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

    @classmethod
    async def open(cls, url: str, *, seconds: float) -> PostgresEngine:
        """Connect and bring the tables up to date.

        Raises ConfigurationError if the URL is wrong, the server does not answer, or the database
        cannot be used.
        """
        options = _options(url, seconds=seconds)
        try:
            await _migrate(options)
        except psycopg.Error as exc:
            reason = _without_secrets(str(exc), options)
            # A chained traceback would show the secrets that are hidden here.
            raise ConfigurationError(f"cannot open the registry's state: {reason}") from None
        engine = cls(options, seconds=seconds)
        await engine._pool.open()
        return engine

    async def close(self) -> None:
        await self._pool.close(timeout=self._seconds)

    async def write(self, statement: str, values: Sequence[Any]) -> int:
        async with self._executed(statement, values) as cursor:
            return cursor.rowcount

    async def read(self, statement: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        async with self._executed(statement, values) as cursor:
            return await cursor.fetchall()

    @contextlib.asynccontextmanager
    async def _executed(
        self, statement: str, values: Sequence[Any]
    ) -> AsyncIterator[psycopg.AsyncCursor[dict[str, Any]]]:
        now = asyncio.get_running_loop().time()
        try:
            connection = await self._take(now + self._seconds * _WAITING_SHARE)
            try:
                with _until(now + self._seconds, connection):
                    yield await connection.execute(_native(statement), [*map(_text, values)])
            finally:
                await self._pool.putconn(connection)
        except PoolTimeout:
            raise StoreUnavailable("PostgreSQL gives no connection") from None
        except _AWAY as exc:
            raise StoreUnavailable(f"PostgreSQL: {exc}") from exc

    async def _take(self, deadline: float) -> Connection:
        """A connection that the server has not closed while it was idle."""
        loop = asyncio.get_running_loop()
        while True:
            remaining = deadline - loop.time()
            try:
                connection = await self._pool.getconn(min(remaining, _KNOCKING_SECONDS))
            except PoolTimeout:
                if remaining <= _KNOCKING_SECONDS:
                    raise
                continue
            if not _has_ended(connection):
                return connection
            await connection.close()
            await self._pool.putconn(connection)

    async def _configure(self, connection: Connection) -> None:
        deadline = asyncio.get_running_loop().time() + self._seconds
        with _until(deadline, connection):
            await _limit_statements(connection, self._seconds * _STATEMENT_SHARE)


def _options(url: str, *, seconds: float) -> dict[str, Any]:
    """The options of each connection."""
    user_and_password = url.partition("://")[2].rpartition("@")[0]
    try:
        given = conninfo.conninfo_to_dict(url)
        is_clear = not set(user_and_password) & set("/?#@")
    except psycopg.Error:
        is_clear = False
    if not is_clear:
        # libpq would read the rest of a password as a host or port, and show it in its error.
        raise ConfigurationError(
            "--state is no URL of a PostgreSQL database; characters such as @ / ? # % are written "
            "as %40 and so on in a password"
        )
    return {
        **_DEFAULTS,
        "connect_timeout": str(max(2, round(seconds))),
        "tcp_user_timeout": str(round(seconds * 1000)),
        **given,
        "autocommit": True,
        "row_factory": dict_row,
        # Prepared statements fail after a migration by a newer node, and behind some proxies.
        "prepare_threshold": None,
    }


def _without_secrets(text: str, options: dict[str, Any]) -> str:
    for name in ("password", "sslpassword"):
        if options.get(name):
            text = text.replace(options[name], "***")
    return " ".join(text.split())


async def _migrate(options: dict[str, Any]) -> None:
    """Bring the tables up to date. Of nodes that start together, one does it and the rest wait."""
    deadline = asyncio.get_running_loop().time() + _MIGRATION_SECONDS
    async with await psycopg.AsyncConnection[dict[str, Any]].connect(**options) as connection:
        with _until(deadline, connection):
            async with connection.transaction():
                await _limit_statements(connection, _MIGRATION_SECONDS, is_local=True)
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_MIGRATION_LOCK])
                await _apply(connection, MIGRATIONS)


async def _apply(connection: Connection, migrations: Sequence[str]) -> None:
    version = await _version(connection)
    if version > len(migrations):
        raise ConfigurationError("the registry's state in PostgreSQL is of a newer version")
    if version == len(migrations):
        return
    for script in migrations[version:]:
        await connection.execute(script.encode())
    await connection.execute("DELETE FROM registry_version")
    await connection.execute("INSERT INTO registry_version VALUES (%s)", [len(migrations)])


async def _version(connection: Connection) -> int:
    # `CREATE TABLE IF NOT EXISTS` needs the right to create even if the table exists.
    found = await connection.execute("SELECT to_regclass('registry_version') IS NULL AS is_new")
    row = await found.fetchone()
    if row is None or row["is_new"]:
        await connection.execute("CREATE TABLE registry_version (version INTEGER NOT NULL)")
        return 0
    found = await connection.execute("SELECT version FROM registry_version")
    row = await found.fetchone()
    return int(row["version"]) if row else 0


async def _limit_statements(
    connection: Connection, seconds: float, *, is_local: bool = False
) -> None:
    """Set the statement timeout, for the current transaction alone if *is_local*."""
    values = [str(round(seconds * 1000)), is_local]
    await connection.execute("SELECT set_config('statement_timeout', %s, %s)", values)


@contextlib.contextmanager
def _until(deadline: float, connection: Connection) -> Iterator[None]:
    """End the connection at *deadline* by closing its socket.

    A cancellation would not be enough: psycopg then asks the server to cancel the statement and
    waits for it, and a server that hangs never answers.
    """
    timer = asyncio.get_running_loop().call_at(deadline, _cut, connection)
    try:
        yield
    finally:
        timer.cancel()


def _cut(connection: Connection) -> None:
    with contextlib.suppress(OSError, psycopg.Error):
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


def _has_ended(connection: Connection) -> bool:
    """True if the server has closed the connection, or has sent something unasked.

    A server sends a message when it ends the connection of an idle client.
    """
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _native(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _text(value: Any) -> Any:
    """Replace NUL, which PostgreSQL cannot store. A text with NUL matches no record anyway."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value

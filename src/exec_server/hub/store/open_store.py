"""Opens the database that holds the registry's state."""

from __future__ import annotations

from exec_server.errors import ConfigurationError
from exec_server.hub.store import Store
from exec_server.hub.store.sql_store import Engine, SqlStore
from exec_server.hub.store.sqlite import SqliteEngine
from exec_server.limits import DEFAULT_LIMITS, Limits

_POSTGRES = ("postgresql://", "postgres://")


def is_shared(state: str) -> bool:
    """True if several nodes can share the state."""
    return state.startswith(_POSTGRES)


async def open_store(
    state: str, *, limits: Limits = DEFAULT_LIMITS, has_reserve: bool = False
) -> Store:
    """The store at *state*, a file or the URL of a PostgreSQL database, with the newest tables.

    With *has_reserve*, disk space is set aside for the time when the disk of a file is full.
    Raises ConfigurationError, whose text leaves out the secrets of the URL.
    """
    seconds = limits.hub_store_timeout
    if is_shared(state):
        return SqlStore(await _postgres(state, seconds=seconds), seconds=seconds)
    if "://" in state:
        raise ConfigurationError("--state is a file, or postgresql://USER@HOST/DATABASE")
    engine = await SqliteEngine.open(state, seconds=seconds, has_reserve=has_reserve)
    return SqlStore(engine, seconds=seconds)


async def _postgres(url: str, *, seconds: float) -> Engine:
    try:
        from exec_server.hub.store.postgres import PostgresEngine
    except ImportError as exc:
        raise ConfigurationError(
            f"a state in PostgreSQL needs psycopg: pip install 'exec-server[cluster]' ({exc})"
        ) from exc
    return await PostgresEngine.open(url, seconds=seconds)

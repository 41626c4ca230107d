"""Opens the database that holds the registry's state."""

from __future__ import annotations

from exec_server.errors import ConfigurationError
from exec_server.hub.store import Store
from exec_server.hub.store.sql_store import Engine, SqlStore
from exec_server.hub.store.sqlite import SqliteEngine
from exec_server.limits import DEFAULT_LIMITS, Limits

_POSTGRES = ("postgresql://", "postgres://")


async def open_store(state: str, *, limits: Limits = DEFAULT_LIMITS) -> Store:
    """The store at *state*, a file or the URL of a PostgreSQL database, with the newest tables.

    Raises ConfigurationError, whose text leaves out the secrets of the URL.
    """
    seconds = limits.hub_store_timeout
    if state.startswith(_POSTGRES):
        return SqlStore(await _postgres(state, seconds=seconds), seconds=seconds)
    if "://" in state:
        raise ConfigurationError("--state is a file, or postgresql://USER@HOST/DATABASE")
    return SqlStore(await SqliteEngine.open(state, seconds=seconds), seconds=seconds)


async def _postgres(url: str, *, seconds: float) -> Engine:
    try:
        from exec_server.hub.store.postgres import PostgresEngine
    except ImportError as exc:
        raise ConfigurationError(
            f"a state in PostgreSQL needs psycopg: pip install 'exec-server[cluster]' ({exc})"
        ) from exc
    return await PostgresEngine.open(url, seconds=seconds)

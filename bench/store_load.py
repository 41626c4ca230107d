"""The load of a large registry on PostgreSQL, with the registry's own statements.

    python bench/store_load.py [--environments 1000000] [--events 1000000] [--tokens 20000]

The environments are made by the database itself, because registering a million takes long; all
else goes through the store. Without fsync: how long a disk takes to commit is the disk's affair.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.hub import show_machine
from bench.registries import Meter, all_of, postmaster
from exec_server.access.token_secrets import digest_of
from exec_server.audit.event import AuditEvent
from exec_server.cli.event_loop import in_loop
from exec_server.hub.access.tokens import new_token
from exec_server.hub.store import Store
from exec_server.hub.store.open_store import open_store
from tests.support.postgres import Postgres, running

_SECONDS = 900
_T = TypeVar("_T")
# As many as a node writes in one statement.
_BATCH = 500
_LOOKS = 1000
_AT_ONCE = 8
_FACTS = '{"version":"0.1.0","platform":"linux x86_64","sandbox":"bubblewrap","labels":{}}'
# A key object is two keys in base64: 1.6 KB, and no two are alike.
_KEY = "(SELECT string_agg(md5(n::text || i::text), '') FROM generate_series(1, 52) AS i)"
_ENVIRONMENTS = f"""
    INSERT INTO environments (id, registration_id, generation, executor_key, token_id, principal,
        registered_at, facts)
    SELECT 'env-' || n, left(md5(n::text), 22), 1, {_KEY}, left(md5((n / 10)::text), 12), 'bench',
        1.0, '{_FACTS}' FROM generate_series(1, COUNT) AS n
"""


class Load:
    def __init__(self, server: Postgres, store: Store, database: str) -> None:
        self._server, self._store, self._database = server, store, database

    async def environments(self, count: int) -> str:
        self._server.execute(_ENVIRONMENTS.replace("COUNT", str(count)), database=self._database)
        self._server.execute("ANALYZE", database=self._database)
        size = self._size("environments")

        async def look(number: int) -> None:
            assert await self._store.environment(f"env-{number * (count // _LOOKS) + 1}")

        found = await self._timed(lambda: all_of(map(look, range(_LOOKS)), at_once=_AT_ONCE))
        return f"{count} environments: {size / count:.0f} bytes each; {_LOOKS} found: {found[1]}"

    async def events(self, count: int) -> str:
        batches = [_events(start) for start in range(0, count, _BATCH)]
        _, spent = await self._timed(
            lambda: all_of(map(self._store.add_events, batches), at_once=_AT_ONCE)
        )
        return f"{count} events: {self._size('events') / count:.0f} bytes each; {spent}"

    async def tokens(self, count: int) -> str:
        made = [new_token("bench", ("enrol",), ["*"], now=time.time()) for _ in range(count)]
        await all_of(
            (self._store.add_token(token, digest_of(secret)) for token, secret in made),
            at_once=_AT_ONCE,
        )
        ids = [token.id for token, _ in made]
        _, spent = await self._timed(lambda: self._store.ended_tokens(ids, now=time.time()))
        return f"{count} tokens asked for at once, as a node does every second: {spent}"

    async def listing(self) -> str:
        """Read one page, and one page for which all names have to be read."""
        page = partial(self._store.environments, after="env-5", limit=1000)
        found, spent = await self._timed(lambda: page(["*"]))
        none, spent_in_vain = await self._timed(lambda: page(["*-gpu"]))
        return (
            f"a page of {len(found)} environments: {spent}; "
            f"{len(none)} that end in -gpu: {spent_in_vain}"
        )

    async def _timed(self, work: Callable[[], Awaitable[_T]]) -> tuple[_T, str]:
        meter = Meter({"postgres": [postmaster(self._server.folder)], "client": [os.getpid()]})
        result = await work()
        spent = meter.spent()
        cpu = ", ".join(f"{name} {seconds:.3f}" for name, seconds in spent.cpu.items())
        return result, f"{spent.seconds:.3f} s; processor s: {cpu}"

    def _size(self, table: str) -> int:
        statement = f"SELECT pg_total_relation_size('{table}')"
        return int(self._server.execute(statement, database=self._database)[0][0])


def _events(start: int) -> list[AuditEvent]:
    return [
        AuditEvent(
            at=time.time(),
            name="executor online",
            principal="build farm",
            token_id=f"{number % 5000:012x}",
            environment_id=f"env-{number}",
            address="192.0.2.17",
        )
        for number in range(start, start + _BATCH)
    ]


async def run(environments: int, events: int, tokens: int) -> str:
    with running() as server:
        assert server is not None, "PostgreSQL is not installed"
        url = server.create_database()
        store = await open_store(url)
        try:
            load = Load(server, store, url.rpartition("/")[2])
            return "\n".join(
                [
                    await load.environments(environments),
                    await load.events(events),
                    await load.tokens(tokens),
                    await load.listing(),
                ]
            )
        finally:
            await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environments", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--tokens", type=int, default=20_000)
    values = parser.parse_args()

    async def work() -> int:
        async with asyncio.timeout(_SECONDS):
            print(await run(values.environments, values.events, values.tokens))
        return 0

    show_machine()
    in_loop(work())


if __name__ == "__main__":
    main()

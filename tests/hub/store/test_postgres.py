"""The state in PostgreSQL: several nodes at once, passwords, and a server that goes away."""

from __future__ import annotations

import asyncio
import sys
import traceback
from contextlib import AsyncExitStack, asynccontextmanager, closing

import psycopg
import pytest
from msgspec.structs import replace

from exec_server.audit.event import AuditEvent
from exec_server.errors import ConfigurationError
from exec_server.hub.access.tokens import new_token
from exec_server.hub.registry_service import HubOptions
from exec_server.hub.store import StoreUnavailable, postgres
from exec_server.hub.store.entities import Authorization, ExecutorFacts, Pairing
from exec_server.hub.store.open_store import open_store
from exec_server.limits import DEFAULT_LIMITS
from tests.requirements import requirement
from tests.support.postgres import LOCKED, PASSWORD

SHORT = replace(DEFAULT_LIMITS, hub_store_timeout=1.0)
EVENT = AuditEvent(at=1.0, name="x")


@pytest.fixture
def database(postgres_server):
    return postgres_server.create_database()


@asynccontextmanager
async def opened(url, limits=DEFAULT_LIMITS):
    store = await open_store(url, limits=limits)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def nodes(database, no_leaks):
    """Three stores, one for each of three nodes."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(database)) for _ in range(3)]


async def add_token(store, digest=b"d", **options):
    token, _ = new_token("alice", ("enrol",), ("*",), now=1.0, **options)
    await store.add_token(token, digest)
    return token


async def unavailable(store):
    """True if every kind of call fails while the server is still away."""
    calls = (store.tokens(), store.environment("e"), store.add_events([EVENT]))
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*calls, return_exceptions=True)
    return all(isinstance(answer, StoreUnavailable) for answer in answers)


async def recovered(store):
    """The tokens, as soon as the store answers again."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.tokens()
            except StoreUnavailable:
                continue


# Several nodes.


@requirement("hub/store:races")
async def test_no_registration_of_three_nodes_is_lost(nodes):
    token = await add_token(nodes[0])

    async def register(number):
        generation = await nodes[number % 3].register(
            "e",
            registration_id=f"r{number}",
            executor_key=None,
            token=token,
            facts=ExecutorFacts(),
            now=2.0,
        )
        return generation, f"r{number}"

    registered = sorted(await asyncio.gather(*map(register, range(60))))
    assert [generation for generation, _ in registered] == list(range(1, 61))
    newest = await nodes[0].environment("e")
    assert (newest.generation, newest.registration_id) == registered[-1]


@requirement("hub/store:races")
async def test_what_is_good_once_is_taken_by_one_of_three_nodes(nodes):
    authorization = Authorization(
        id="a",
        environment_id="e",
        registration_id="r",
        harness_key="k",
        token_id="t",
        expires_at=10.0,
    )
    await nodes[0].add_authorization(authorization, b"d")
    pairing = Pairing(digest=b"c", environment_id="e", token_id="t", principal="p", expires_at=9.0)
    assert await nodes[0].add_pairing(pairing, most=1, now=1.0)
    once = await add_token(nodes[0], is_once=True)

    for attempt in (
        lambda node, number: node.open_authorization("a", now=5.0),
        lambda node, number: node.use_authorization(
            b"d", registration_id="r", harness_key="k", now=5.0
        ),
        lambda node, number: node.take_pairing(b"c", now=5.0),
        lambda node, number: node.bind_token(once, f"e{number}", now=5.0),
    ):
        attempts = (attempt(nodes[number % 3], number) for number in range(30))
        answers = await asyncio.gather(*attempts)
        assert len([answer for answer in answers if answer]) == 1
    assert len({await node.signing_key() for node in nodes}) == 1


@requirement("hub/store:migrations")
async def test_nodes_that_start_together_migrate_once(database, postgres_server, no_leaks):
    stores = await asyncio.gather(*(open_store(database) for _ in range(6)))
    keys = await asyncio.gather(*(store.signing_key() for store in stores))
    for store in stores:
        await store.close()
    assert len(set(keys)) == 1
    name = database.rpartition("/")[2]
    versions = postgres_server.execute("SELECT version FROM registry_version", database=name)
    assert versions == [(len(postgres.MIGRATIONS),)]


@requirement("hub/store:migrations")
async def test_an_older_database_is_brought_up_to_date_and_a_newer_one_refused(
    database, no_leaks, monkeypatch
):
    more = (*postgres.MIGRATIONS, "ALTER TABLE tokens ADD COLUMN note TEXT")
    async with opened(database) as older:
        await add_token(older)
        with monkeypatch.context() as patch:
            patch.setattr(postgres, "MIGRATIONS", more)
            async with opened(database) as newer:
                assert len(await newer.tokens()) == 1
        # The store that was open before continues.
        assert len(await older.tokens()) == 1
    with pytest.raises(ConfigurationError, match="newer version"):
        await open_store(database)


@requirement("hub/store:migrations")
async def test_a_migration_that_fails_changes_nothing(database, no_leaks, monkeypatch):
    async with opened(database):
        pass
    broken = (*postgres.MIGRATIONS, "CREATE TABLE half (x TEXT); CREATE TABLE tokens (y TEXT)")
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "MIGRATIONS", broken)
        with pytest.raises(ConfigurationError, match="already exists"):
            await open_store(database)
    async with opened(database) as store:
        assert await store.tokens() == []
    with closing(psycopg.connect(database)) as connection:
        assert connection.execute("SELECT to_regclass('half')").fetchone() == (None,)


# The URL and its options.


@requirement("hub/store:chosen")
@pytest.mark.parametrize("where", ["url", "PGPASSWORD", "PGPASSFILE"])
async def test_a_password_may_come_in_several_ways(
    where, database, postgres_server, tmp_path, no_leaks, monkeypatch
):
    name = database.rpartition("/")[2]
    postgres_server.execute(f"ALTER DATABASE {name} OWNER TO {LOCKED}")
    url = postgres_server.url(name, user=LOCKED).replace("postgresql://", "postgres://")
    if where == "url":
        url = url.replace("@", f":{PASSWORD}@")
    elif where == "PGPASSWORD":
        monkeypatch.setenv(where, PASSWORD)
    else:
        file = tmp_path / "pgpass"
        file.write_text(f"*:*:*:{LOCKED}:{PASSWORD}\n")
        file.chmod(0o600)
        monkeypatch.setenv(where, str(file))
    async with opened(url) as store:
        await add_token(store)
        assert len(await store.tokens()) == 1


@requirement("hub/store:secrets", "hub/store:chosen")
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://locked:WRONG-{password}@127.0.0.1:{port}/postgres", "authentication"),
        ("postgresql://x:{password}@127.0.0.1:1/x", "refused"),
        ("postgresql://x:{password}@127.0.0.1:{port}/nothing", "does not exist"),
        ("postgresql://x@127.0.0.1:{port}/nothing?password={password}", "does not exist"),
        ("postgresql://x:{password}%zz@127.0.0.1/x", "no URL"),
        ("postgresql://x:{password}@127.0.0.1/x?nonsense=1", "no URL"),
        ("postgresql://x:a/{password}@127.0.0.1/x", "no URL"),
        ("postgresql://x:#{password}@127.0.0.1/x", "no URL"),
        ("postgresql://x:a@{password}@127.0.0.1/x", "no URL"),
        ("postgresql://x:{password}@127.0.0.1:port/x", 'integer value "port"'),
    ],
)
async def test_what_cannot_be_opened_is_said_without_the_password(
    url, reason, postgres_server, no_leaks, caplog
):
    caplog.set_level("DEBUG")
    url = url.format(password=PASSWORD, port=postgres_server.port)
    with pytest.raises(ConfigurationError, match=reason) as caught:
        await open_store(url)
    shown = "".join(traceback.format_exception(caught.value))
    shown += repr(HubOptions(state=url)) + caplog.text
    assert PASSWORD not in shown


@requirement("hub/store:chosen")
async def test_without_the_driver_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "exec_server.hub.store.postgres")
    with pytest.raises(ConfigurationError, match=r"exec-server\[cluster\]"):
        await open_store("postgresql://db.example.net/registry")


# A server that goes away.


@requirement("hub/store:outage")
@pytest.mark.one_loop
async def test_a_killed_server_is_said_so_in_time_and_used_again(mortal_postgres, caplog):
    async with opened(mortal_postgres.create_database(), SHORT) as store:
        token = await add_token(store)
        mortal_postgres.kill()
        for _ in range(2):
            assert await unavailable(store)
        mortal_postgres.start()
        assert await recovered(store) == [token]
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in told] == [
        "the registry's state is away",
        "the registry's state is back",
    ]


@requirement("hub/store:outage")
@pytest.mark.one_loop
async def test_no_call_gets_a_connection_that_was_lost_meanwhile(mortal_postgres):
    async with opened(mortal_postgres.create_database()) as store:
        calls = 4 * postgres._CONNECTIONS
        for _ in range(2):
            answers = await asyncio.gather(*(store.tokens() for _ in range(calls)))
            assert answers == [[]] * calls
            mortal_postgres.restart()
        # A single call reconnects as well.
        assert await store.tokens() == []


@requirement("hub/store:outage")
@pytest.mark.one_loop
async def test_a_quick_restart_is_only_a_pause(mortal_postgres):
    limits = replace(DEFAULT_LIMITS, hub_store_timeout=20.0)
    async with opened(mortal_postgres.create_database(), limits) as store:
        await store.tokens()
        mortal_postgres.kill()
        calls = [asyncio.ensure_future(store.tokens()) for _ in range(20)]
        # Until the first attempt to connect has failed.
        done, _ = await asyncio.wait(calls, timeout=2 * postgres._KNOCKING_SECONDS)
        assert not done
        mortal_postgres.start()
        async with asyncio.timeout(60):
            assert await asyncio.gather(*calls) == [[]] * 20


@requirement("hub/store:outage")
@pytest.mark.one_loop
async def test_no_call_waits_longer_for_a_server_that_hangs(mortal_postgres):
    async with opened(mortal_postgres.create_database(), SHORT) as store:
        await store.tokens()
        mortal_postgres.pause()
        for _ in range(2):
            assert await unavailable(store)
        mortal_postgres.resume()
        assert await recovered(store) == []


@requirement("hub/store:outage")
async def test_what_was_given_up_does_not_happen_later(database, no_leaks):
    """A statement that waits for a lock ends on the server too."""
    limits = replace(DEFAULT_LIMITS, hub_store_timeout=2.0)
    async with opened(database, limits) as store:
        token = await add_token(store)
        with psycopg.connect(database) as holder:
            holder.execute("SELECT * FROM tokens FOR UPDATE")
            with pytest.raises(StoreUnavailable):
                await store.revoke_token(token.id, now=2.0)
        assert await store.tokens() == [token]


async def test_who_stops_waiting_takes_no_connection_along(database, no_leaks):
    async with opened(database) as store:
        for _ in range(3):
            calls = [asyncio.ensure_future(store.tokens()) for _ in range(20)]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
        calls = [asyncio.ensure_future(store.tokens()) for _ in range(20)]
        assert await asyncio.gather(*calls) == [[]] * 20

"""The store, with SQLite and with PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat

import pytest
from msgspec.structs import replace

from exec_server.access.token_secrets import digest_of
from exec_server.audit.event import AuditEvent
from exec_server.errors import ConfigurationError
from exec_server.hub.access.tokens import new_token
from exec_server.hub.store import StoreUnavailable, sqlite
from exec_server.hub.store.entities import Authorization, ExecutorFacts, Pairing
from exec_server.hub.store.open_store import open_store
from exec_server.limits import DEFAULT_LIMITS
from tests.requirements import requirement


@pytest.fixture
async def store(state, no_leaks):
    """A store in a file, and then one in PostgreSQL."""
    store = await open_store(state)
    yield store
    await store.close()


async def make_token(store, digest=b"d", **options):
    token, _ = new_token("alice", ("enrol",), ("*",), now=1.0, **options)
    await store.add_token(token, digest)
    return token


def authorization(**changes):
    values = {
        "id": "a",
        "environment_id": "e",
        "registration_id": "r",
        "harness_key": "k",
        "token_id": "t",
        "expires_at": 10.0,
        **changes,
    }
    return Authorization(**values)


async def test_tokens_are_found_by_their_digest(store):
    token = await make_token(store)
    assert await store.find_token(b"d") == token
    assert await store.token(token.id) == token
    assert await store.find_token(b"other") is None
    assert await store.tokens() == [token]


@requirement("hub/access:once")
async def test_a_token_for_one_environment_stays_with_the_first(store):
    once = await make_token(store, is_once=True)
    many = await make_token(store, b"m")
    assert await store.bind_token(once, "one", now=2.0)
    assert await store.bind_token(once, "one", now=3.0)
    assert not await store.bind_token(once, "two", now=4.0)
    found = await store.token(once.id)
    assert (found.bound_to, found.last_used_at) == ("one", 3.0)
    assert await store.bind_token(many, "one", now=2.0)
    assert await store.bind_token(many, "two", now=2.0)


async def test_the_last_use_of_a_shared_token_is_known_to_the_minute(store):
    token = await make_token(store)
    last = []
    for now in (100.0, 159.0, 161.0):
        assert await store.bind_token(token, "one", now=now)
        token = await store.token(token.id)
        last.append(token.last_used_at)
    assert last == [100.0, 100.0, 161.0]


async def test_tokens_end_when_they_are_revoked_or_expire(store):
    good = await make_token(store, b"1")
    short = await make_token(store, b"2", lifetime=5.0)
    gone = await make_token(store, b"3")
    assert await store.revoke_token(gone.id, now=2.0)
    assert not await store.revoke_token(gone.id, now=3.0)
    all_ids = {good.id, short.id, gone.id, "unknown"}
    assert await store.ended_tokens(all_ids, now=3.0) == {gone.id, "unknown"}
    assert await store.ended_tokens(all_ids, now=6.0) == {short.id, gone.id, "unknown"}
    assert await store.ended_tokens([], now=3.0) == set()


async def test_any_number_of_tokens_may_be_asked_about(store):
    good = await make_token(store)
    many = [f"unknown-{number}" for number in range(25_000)]
    assert await store.ended_tokens([*many, good.id], now=3.0) == set(many)


async def test_names_are_listed_in_one_order_everywhere(store):
    token = await make_token(store)
    for name in ("b", "B", "a-1", "a.1", "a1", "_a"):
        await store.register(
            name,
            registration_id="r",
            executor_key=None,
            token=token,
            facts=ExecutorFacts(),
            now=2.0,
        )
    names = [environment.id for environment in await store.environments("*", limit=9)]
    assert names == ["B", "_a", "a-1", "a.1", "a1", "b"]


async def test_malformed_texts_do_no_harm(store):
    """PostgreSQL has no NUL in texts, and such a text must not cause an error."""
    token = await make_token(store)
    labels = {"nul": "\0", "emoji": "\N{SNOWMAN}", "percent": "%s", "mark": "?"}
    await store.register(
        "e",
        registration_id="r",
        executor_key="{}",
        token=token,
        facts=ExecutorFacts(labels=labels),
        now=2.0,
    )
    assert (await store.environment("e")).facts.labels == labels
    assert not await store.set_facts("e", registration_id="\0", facts=ExecutorFacts())
    assert await store.environment("e\0") is None
    assert await store.events(environment_id="\0") == []


async def test_registrations_are_counted_and_the_newest_is_kept(store):
    token = await make_token(store)

    async def register(registration_id):
        return await store.register(
            "e",
            registration_id=registration_id,
            executor_key="{}",
            token=token,
            facts=ExecutorFacts(labels={"a": "b"}),
            now=2.0,
        )

    assert [await register("r1"), await register("r2")] == [1, 2]
    environment = await store.environment("e")
    assert (environment.registration_id, environment.generation) == ("r2", 2)
    assert environment.facts.labels == {"a": "b"}
    assert await store.environments("*", limit=2) == [environment]
    assert await store.environment("other") is None


@requirement("hub/validate:single-use")
async def test_an_authorization_is_taken_by_one_of_many(store):
    await store.add_authorization(authorization(), b"d")
    uses = [
        store.use_authorization(b"d", registration_id="r", harness_key="k", now=5.0)
        for _ in range(10)
    ]
    found = await asyncio.gather(*uses)
    assert [each for each in found if each] == [authorization()]
    opened = await asyncio.gather(*(store.open_authorization("a", now=5.0) for _ in range(10)))
    assert sorted(opened) == [False] * 9 + [True]


@pytest.mark.parametrize(
    ("digest", "registration_id", "key", "now"),
    [(b"x", "r", "k", 5.0), (b"d", "x", "k", 5.0), (b"d", "r", "x", 5.0), (b"d", "r", "k", 10.0)],
)
async def test_an_authorization_fits_one_place(store, digest, registration_id, key, now):
    await store.add_authorization(authorization(), b"d")
    found = await store.use_authorization(
        digest, registration_id=registration_id, harness_key=key, now=now
    )
    assert found is None
    assert not await store.open_authorization("a", now=10.0)


async def test_events_are_asked_for_by_environment_principal_and_time(store):
    events = [
        AuditEvent(at=at, name="x", environment_id=f"e{at % 2}", principal="p") for at in range(5)
    ]
    await store.add_events(events[:1])
    await store.add_events(events[1:])
    assert [event.at for event in await store.events()] == [4, 3, 2, 1, 0]
    assert [event.at for event in await store.events(environment_id="e1")] == [3, 1]
    assert [event.at for event in await store.events(since=2, limit=2)] == [4, 3]
    assert [event.at for event in await store.events(environment_id="e0", since=1)] == [4, 2]
    assert await store.events(principal="q") == []


async def test_events_of_one_instant_stay_in_order(store):
    await store.add_events([AuditEvent(at=1.0, name=str(number)) for number in range(300)])
    found = await store.events(limit=1000)
    assert [event.name for event in found] == [str(number) for number in range(299, -1, -1)]


async def test_a_code_is_taken_once_and_in_time(store):
    pairing = Pairing(digest=b"c", environment_id="e", token_id="t", principal="p", expires_at=9.0)
    assert await store.add_pairing(pairing, most=1, now=1.0)
    assert not await store.add_pairing(
        Pairing(digest=b"d", environment_id="e", token_id="t", principal="p", expires_at=9.0),
        most=1,
        now=1.0,
    )
    assert await store.take_pairing(b"c", now=9.0) is None
    taken = await store.take_pairing(b"c", now=8.0)
    assert taken == replace(pairing, claimed_at=8.0, expires_at=taken.expires_at)
    assert await store.take_pairing(b"c", now=8.0) is None
    assert not await store.drop_pairing(b"c")
    # The code is kept for a while, and then removed.
    assert await store.pairings_of("e", now=8.0) == [taken]
    await store.forget(now=taken.expires_at + 1, events_before=0.0)
    assert await store.pairings_of("e", now=8.0) == []


async def test_what_has_expired_is_forgotten(store):
    await store.add_authorization(authorization(), b"d")
    await store.add_events([AuditEvent(at=1.0, name="old"), AuditEvent(at=5.0, name="new")])
    await store.forget(now=11.0, events_before=4.0)
    assert [event.name for event in await store.events()] == ["new"]
    # The digest is free again.
    await store.add_authorization(authorization(), b"d")


@requirement("hub/state:durable", "hub/store:two-engines")
async def test_two_processes_may_share_the_state(state, no_leaks):
    one, two = await open_store(state), await open_store(state)
    assert await one.signing_key() == await two.signing_key()
    token = await make_token(one)
    assert await two.revoke_token(token.id, now=2.0)
    assert await one.ended_tokens({token.id}, now=3.0) == {token.id}
    await one.close()
    await two.close()


@requirement("hub/state:private")
async def test_the_file_is_its_owners_alone_and_holds_no_token(tmp_path, no_leaks):
    path = tmp_path / "state"
    previous = os.umask(0)
    try:
        store = await open_store(str(path))
    finally:
        os.umask(previous)
    token, secret = new_token("alice", ("enrol",), ("*",), now=1.0)
    await store.add_token(token, digest_of(secret))
    for each in tmp_path.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600, each
        assert secret.encode() not in each.read_bytes()
    await store.close()


@requirement("hub/state:migrations")
async def test_an_older_file_is_brought_up_to_date_and_a_newer_one_refused(
    tmp_path, no_leaks, monkeypatch
):
    path = str(tmp_path / "state")
    store = await open_store(path)
    await make_token(store)
    await store.close()
    more = (*sqlite.MIGRATIONS, "ALTER TABLE tokens ADD COLUMN note TEXT")
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "MIGRATIONS", more)
        store = await open_store(path)
        assert len(await store.tokens()) == 1
        await store.close()
    with pytest.raises(ConfigurationError, match="newer version"):
        await open_store(path)


@requirement("hub/state:migrations")
async def test_a_migration_that_fails_changes_nothing(tmp_path, no_leaks, monkeypatch):
    path = str(tmp_path / "state")
    await (await open_store(path)).close()
    broken = (*sqlite.MIGRATIONS, "CREATE TABLE half (x); CREATE TABLE tokens (y)")
    monkeypatch.setattr(sqlite, "MIGRATIONS", broken)
    with pytest.raises(ConfigurationError):
        await open_store(path)
    with sqlite3.connect(path) as db:
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    db.close()
    assert "half" not in names


@requirement("hub/store:outage")
async def test_a_locked_file_is_unavailable_in_time(tmp_path, no_leaks, caplog):
    path = str(tmp_path / "state")
    store = await open_store(path, limits=replace(DEFAULT_LIMITS, hub_store_timeout=0.5))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    token, _ = new_token("alice", ("enrol",), ("*",), now=1.0)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await store.add_token(token, b"d")
    assert await store.tokens() == []
    holder.execute("ROLLBACK")
    holder.close()
    assert await store.bind_token(token, "e", now=2.0) is False
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in told][:2] == [
        "the registry's state is away",
        "the registry's state is back",
    ]
    await store.close()


async def test_a_state_of_another_kind_is_refused(no_leaks):
    with pytest.raises(ConfigurationError, match="postgresql://USER@HOST/DATABASE"):
        await open_store("mysql://root:secret@db.example.net/x")


@pytest.mark.parametrize("content", [None, b"no database at all, but long enough" * 100])
async def test_a_file_that_is_none_of_ours_is_refused(tmp_path, no_leaks, content):
    path = tmp_path / "nowhere" / "state"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="cannot open"):
        await open_store(str(path))

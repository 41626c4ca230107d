"""What is remembered, by whatever keeps it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat

import pytest

from exec_server.errors import ConfigurationError
from exec_server.hub import sqlite
from exec_server.hub.records import Authorization, Event, Facts, Pairing
from exec_server.hub.sqlite import SqliteStore
from exec_server.hub.tokens import new_token
from tests.requirements import requirement


@pytest.fixture
async def store(tmp_path, no_leaks):
    store = await SqliteStore.open(str(tmp_path / "state"))
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
    assert await store.bind_token(once.id, "one", now=2.0)
    assert await store.bind_token(once.id, "one", now=3.0)
    assert not await store.bind_token(once.id, "two", now=4.0)
    found = await store.token(once.id)
    assert (found.bound_to, found.last_used_at) == ("one", 3.0)
    assert await store.bind_token(many.id, "one", now=2.0)
    assert await store.bind_token(many.id, "two", now=2.0)


async def test_tokens_end_when_they_are_revoked_or_expire(store):
    good = await make_token(store, b"1")
    short = await make_token(store, b"2", lifetime=5.0)
    gone = await make_token(store, b"3")
    assert await store.revoke_token(gone.id, now=2.0)
    assert not await store.revoke_token(gone.id, now=3.0)
    everybody = {good.id, short.id, gone.id, "unknown"}
    assert await store.ended_tokens(everybody, now=3.0) == {gone.id, "unknown"}
    assert await store.ended_tokens(everybody, now=6.0) == {short.id, gone.id, "unknown"}


async def test_registrations_are_counted_and_the_newest_is_kept(store):
    token = await make_token(store)

    async def register(registration_id):
        return await store.register(
            "e",
            registration_id=registration_id,
            executor_key="{}",
            token=token,
            facts=Facts(labels={"a": "b"}),
            now=2.0,
        )

    assert [await register("r1"), await register("r2")] == [1, 2]
    environment = await store.environment("e")
    assert (environment.registration_id, environment.generation) == ("r2", 2)
    assert environment.facts.labels == {"a": "b"}
    assert await store.environments() == [environment]
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
    for at in range(5):
        await store.add_event(Event(at=at, name="x", environment_id=f"e{at % 2}", principal="p"))
    assert [event.at for event in await store.events()] == [4, 3, 2, 1, 0]
    assert [event.at for event in await store.events(environment_id="e1")] == [3, 1]
    assert [event.at for event in await store.events(since=2, limit=2)] == [4, 3]
    assert await store.events(principal="q") == []


async def test_a_code_is_taken_once_and_in_time(store):
    pairing = Pairing(digest=b"c", environment_id="e", token_id="t", principal="p", expires_at=9.0)
    assert await store.add_pairing(pairing, most=1, now=1.0)
    assert not await store.add_pairing(
        Pairing(digest=b"d", environment_id="e", token_id="t", principal="p", expires_at=9.0),
        most=1,
        now=1.0,
    )
    assert await store.take_pairing(b"c", now=9.0) is None
    assert await store.take_pairing(b"c", now=8.0) == pairing
    assert await store.take_pairing(b"c", now=8.0) is None


async def test_what_has_expired_is_forgotten(store):
    await store.add_authorization(authorization(), b"d")
    await store.add_event(Event(at=1.0, name="old"))
    await store.add_event(Event(at=5.0, name="new"))
    await store.forget(now=11.0, events_before=4.0)
    assert [event.name for event in await store.events()] == ["new"]
    # The digest is free again.
    await store.add_authorization(authorization(), b"d")


@requirement("hub/state:durable")
async def test_two_processes_may_share_the_file(tmp_path, no_leaks):
    path = str(tmp_path / "state")
    one, two = await SqliteStore.open(path), await SqliteStore.open(path)
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
        store = await SqliteStore.open(str(path))
    finally:
        os.umask(previous)
    token, secret = new_token("alice", ("enrol",), ("*",), now=1.0)
    from exec_server.hub.tokens import digest_of

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
    store = await SqliteStore.open(path)
    await make_token(store)
    await store.close()
    more = (*sqlite.MIGRATIONS, "ALTER TABLE tokens ADD COLUMN note TEXT")
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "MIGRATIONS", more)
        store = await SqliteStore.open(path)
        assert len(await store.tokens()) == 1
        await store.close()
    with pytest.raises(ConfigurationError, match="newer version"):
        await SqliteStore.open(path)


@requirement("hub/state:migrations")
async def test_a_migration_that_fails_changes_nothing(tmp_path, no_leaks, monkeypatch):
    path = str(tmp_path / "state")
    await (await SqliteStore.open(path)).close()
    broken = (*sqlite.MIGRATIONS, "CREATE TABLE half (x); CREATE TABLE tokens (y)")
    monkeypatch.setattr(sqlite, "MIGRATIONS", broken)
    with pytest.raises(ConfigurationError):
        await SqliteStore.open(path)
    with sqlite3.connect(path) as db:
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    db.close()
    assert "half" not in names


@pytest.mark.parametrize("content", [None, b"no database at all, but long enough" * 100])
async def test_a_file_that_is_none_of_ours_is_refused(tmp_path, no_leaks, content):
    path = tmp_path / "nowhere" / "state"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="cannot open"):
        await SqliteStore.open(str(path))
